package podruntime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// endless is an engine whose commands never end by themselves.
type endless struct {
	runtime.Engine
	cut     time.Time // when the command was cut off
	stopped time.Time // when the container was asked to stop
	grace   time.Duration
}

func (e *endless) Exec(ctx context.Context, _ string, _ []string) (runtime.ExecResult, error) {
	<-ctx.Done()
	e.cut = time.Now()
	return runtime.ExecResult{}, ctx.Err()
}

func (e *endless) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	e.stopped, e.grace = time.Now(), grace
	return e.Engine.StopContainer(ctx, id, grace)
}

// As with the kubelet, a hook that does not end has all the time that its container has.
func TestAHookThatDoesNotEndGoesOnUntilItsContainerIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endless{}
		n := newNode(t, func(c *Config) { e.Engine, c.Engine = c.Engine, e })
		p := pod("trap '' TERM; sleep 1000")
		p.Spec.TerminationGracePeriodSeconds = new(int64(5))
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/bin/sh", "-c", "sleep 1000"}}}}
		seen, _ := n.sync(p)
		began := time.Now()
		if err := n.Stop(t.Context(), p, seen, runtime.Termination{}); err != nil {
			t.Fatal(err)
		}
		if at := e.stopped.Sub(began); at != 5*time.Second || e.grace != 2*time.Second {
			t.Errorf("the container was asked to stop after %v, with a grace of %v", at, e.grace)
		}
		if at := e.cut.Sub(began); at != 7*time.Second {
			t.Errorf("the hook was cut off after %v", at)
		}
	})
}
