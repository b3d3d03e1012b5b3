package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// away is how long the runtime is gone at least.
const away = 8 * time.Second

// The runtime ends and comes back under an agent that runs. Containers do not notice, the agent says so and stays, and
// what changed meanwhile is carried out when the runtime is back.
func TestRuntimeRestart(t *testing.T) {
	n := newNode(t)
	for name, k := range map[string]string{"stays-web": "web", "stays-sidecar": "sidecar"} {
		n.Write(name+".yaml", kindNamed(k).manifest(name, 0))
	}
	n.Start()
	pid := n.PID()
	for i, way := range []struct {
		name string
		end  func(context.Context) error
	}{{"stop", n.bed.Stop}, {"kill", n.bed.Kill}} {
		t.Run(way.name, func(t *testing.T) { n.outage(t, i, way.end) })
	}
	if n.PID() != pid || born(pid) == "" {
		t.Error("the agent is another process than before")
	}
	t.Run("agent starts first", n.first)
}

// first starts the agent before the runtime.
func (n *node) first(t *testing.T) {
	stays := []string{"stays-web", "stays-sidecar"}
	before := n.running(t, stays...)
	n.Kill()
	if err := n.bed.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Start()
	agent.Eventually(t, patience, "the agent answers without a runtime", func() error { return n.Healthy(t.Context(), "ping") })
	if err := n.Healthy(t.Context(), "runtime"); err == nil {
		t.Error("a runtime that is not there is healthy")
	}
	n.Write("early.yaml", kindNamed("plain").manifest("early", 0))
	<-time.After(3 * time.Second)
	if err := n.bed.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	agent.Eventually(t, patience, "all pods are ready", func() error { return n.ready(t.Context(), append(stays, "early")...) })
	t.Logf("all pods ready %v after the runtime was there", round(time.Since(back)))
	if after := n.running(t, stays...); !maps.Equal(before, after) {
		t.Errorf("containers changed:\n%v\n%v", before, after)
	}
}

func (n *node) outage(t *testing.T, number int, end func(context.Context) error) {
	t.Helper()
	stays := []string{"stays-web", "stays-sidecar"}
	leaves, comes, dies := fmt.Sprint("leaves-", number), fmt.Sprint("comes-", number), fmt.Sprint("dies-", number)
	for _, name := range []string{leaves, dies} {
		n.Write(name+".yaml", kindNamed("plain").manifest(name, 0))
	}
	agent.Eventually(t, patience, "the pods are ready", func() error { return n.ready(t.Context(), append(stays, leaves, dies)...) })
	before, victim, said := n.running(t, stays...), n.running(t, dies)[dies+"/app"], len(n.Log())

	begun := time.Now()
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent.Eventually(t, patience, "the agent reports the runtime as down", func() error {
		if err := n.Healthy(t.Context(), "runtime"); err == nil || !strings.Contains(err.Error(), "500") {
			return fmt.Errorf("/healthz/runtime: %w", errors.Join(err, errors.New("want an answer 500")))
		}
		return nil
	})
	t.Logf("reported as down %v after it went", round(time.Since(begun)))
	if !strings.Contains(n.Log()[said:], "the container runtime is down") {
		t.Error("the agent's log does not say that the runtime is down")
	}
	n.Write(comes+".yaml", kindNamed("plain").manifest(comes, 0))
	n.Remove(leaves + ".yaml")
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatalf("kill the container of %s: %v", dies, err)
	}
	<-time.After(time.Until(begun.Add(away)))
	for name, i := range before {
		if born(i.PID) != i.Born {
			t.Errorf("container %s ended while the runtime was away", name)
		}
	}
	if err := n.Healthy(t.Context(), "ping"); err != nil {
		t.Errorf("the agent does not answer without a runtime: %v", err)
	}
	n.returns(t, comes, leaves, dies, victim.Attempt, begun, said)
	if after := n.running(t, stays...); !maps.Equal(before, after) {
		t.Errorf("containers changed:\n%v\n%v", before, after)
	}
}

// returns starts the runtime again and waits for what was wanted meanwhile.
func (n *node) returns(t *testing.T, comes, leaves, dies string, attempt uint32, begun time.Time, said int) {
	t.Helper()
	starting := time.Now()
	if err := n.bed.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	t.Logf("away for %v, %v of that to start; meanwhile the agent wrote %d lines of log",
		round(back.Sub(begun)), round(back.Sub(starting)), strings.Count(n.Log()[said:], "\n"))
	missing := map[string]func() error{
		"reported as up": func() error { return n.Healthy(t.Context(), "runtime") },
		"new pod ready":  func() error { return n.ready(t.Context(), comes) },
		"old pod gone": func() error {
			v, err := n.view(t.Context())
			for _, s := range v.sandboxes {
				if s.GetMetadata().GetName() == leaves+"-"+agent.Node {
					err = errors.Join(err, errors.New("its sandbox is there"))
				}
			}
			return err
		},
		"dead container started again": func() error {
			if i, runs := n.running(t, dies)[dies+"/app"]; !runs || i.Attempt != attempt+1 {
				return fmt.Errorf("its instance is %+v", i)
			}
			return nil
		},
	}
	agent.Eventually(t, patience, "the agent catches up", func() error {
		var errs []error
		for what, ok := range missing {
			if err := ok(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", what, err))
				continue
			}
			t.Logf("%s %v after the runtime was back", what, round(time.Since(back)))
			delete(missing, what)
		}
		return errors.Join(errs...)
	})
}
