package podruntime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func TestStrangersGetTheRecordedGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("sleep 100") // deaf to the stop signal
		seen, _ := n.sync(p)
		start := time.Now()
		if err := n.Stop(t.Context(), nil, seen, runtime.Termination{}); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 5*time.Second {
			t.Errorf("stopped after %v, want 5s", got)
		}
	})
}

func TestStopIsCutByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("sleep 100")
		seen, _ := n.sync(p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Stop(ctx, p, seen, runtime.Termination{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		start := time.Now()
		if err := n.Stop(t.Context(), p, seen, runtime.Termination{Grace: 2 * time.Second}); err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("a shorter grace took %v, %v", time.Since(start), err)
		}
	})
}

// Its sandbox would take a container with it that could not be stopped and has time left.
func TestWhatCouldNotBeStoppedKeepsItsTimeAndGetsNoMore(t *testing.T) {
	for _, tt := range []struct {
		rule      string
		fault     error
		out, want time.Duration // how long the engine cannot stop it, when it ended
	}{
		{"once", errors.New("no"), time.Second, 5 * time.Second},
		{"until its time is over", errors.New("no"), time.Hour, 5 * time.Second},
		{"an answer was lost, and it knows already that it is to end", runtimetest.Lost(errors.New("lost"))(t.Context(), runtimetest.Call{}), time.Second, 5 * time.Second},
		{"nobody was there for a part of its time: it has the rest", runtime.ErrUnavailable, 2 * time.Second, 5 * time.Second},
		{"nobody was there for all of its time: it has the least there is", runtime.ErrUnavailable, 20 * time.Second, 22 * time.Second},
		{"nobody ever is there", runtime.ErrUnavailable, time.Hour, 5*time.Minute + 5*time.Second},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := pod("sleep 1000") // deaf to the stop signal
				n.sync(p)
				start := time.Now()
				n.engine.Inject("StopContainer", func(context.Context, runtimetest.Call) error {
					if time.Since(start) < tt.out {
						return tt.fault
					}
					return nil
				})
				for range 400 {
					if err := n.Stop(t.Context(), p, n.look(p), runtime.Termination{}); err == nil {
						break
					}
					time.Sleep(time.Second)
				}
				ended := n.look(p).Newest("a").Finished.Sub(start)
				if ended < tt.want || ended > tt.want+time.Second {
					t.Errorf("it ended after %v, want %v", ended, tt.want)
				}
			})
		})
	}
}

func TestSidecarsEndLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("sleep 100")
		always := v1.ContainerRestartPolicyAlways
		side := p.Spec.Containers[0]
		side.Name, side.RestartPolicy = "side", &always
		p.Spec.InitContainers = []v1.Container{side}
		n.sync(p)
		if err := n.Stop(t.Context(), p, n.look(p), runtime.Termination{}); err != nil {
			t.Fatal(err)
		}
		seen := n.look(p)
		if a, s := seen.Newest("a").Finished, seen.Newest("side").Finished; s.Before(a) {
			t.Errorf("the sidecar ended at %v, the container at %v", s, a)
		}
	})
}
