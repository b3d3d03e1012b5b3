package chaos

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// The agent is asked to end and started again. It ends soon and well, leaves all pods alone, and the next one takes them
// over as they are.
func TestAgentStop(t *testing.T) {
	n := newNode(t)
	names := []string{"plain", "web", "sidecar", "crash", "done"}
	for _, name := range names {
		n.Write(name+".yaml", kindNamed(name).manifest(name, 0))
	}
	n.Start()
	agent.Eventually(t, patience, "services are ready, the job is done, and a container has crashed and runs again", func() error {
		err := n.ready(t.Context(), "plain", "web", "sidecar")
		job, jobErr := n.pod(t.Context(), "done")
		crash, crashErr := n.pod(t.Context(), "crash")
		switch err = errors.Join(err, jobErr, crashErr); {
		case err != nil:
			return err
		case job.Status.Phase != v1.PodSucceeded:
			return fmt.Errorf("the job is %s", job.Status.Phase)
		case restarts(crash)["app"] < 2: // 10 s after the first crash, so the others are no newcomers
			return fmt.Errorf("restarts are %v", restarts(crash))
		}
		return nil
	})
	before := n.lasting(t)
	counts, err := n.counts(t)
	if err != nil {
		t.Fatal(err)
	}

	code, took := n.Stop()
	t.Logf("ended with code %d after %v", code, round(took))
	if code != 0 || took > 15*time.Second {
		t.Error("want code 0 within 15 seconds")
	}
	if now := n.lasting(t); !maps.Equal(before, now) {
		t.Errorf("containers changed when the agent ended:\n%v\n%v", before, now)
	}
	n.Start()
	n.adopts(t, counts)
	if now := n.lasting(t); !maps.Equal(before, now) {
		t.Errorf("containers changed when the agent started again:\n%v\n%v", before, now)
	}
	for _, name := range names {
		n.Remove(name + ".yaml")
	}
	t.Logf("all pods deleted: nothing is left after %v", round(n.empty(t)))
}

// lasting are the running containers of these pods but for the one that crashes.
func (n *node) lasting(t *testing.T) map[string]instance {
	t.Helper()
	all := n.running(t, "plain", "web", "sidecar", "crash")
	delete(all, "crash/app")
	return all
}

func restarts(p *v1.Pod) map[string]int32 {
	out := map[string]int32{}
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		out[s.Name] = s.RestartCount
	}
	return out
}

// counts are the restarts of all containers, by pod and container.
func (n *node) counts(t *testing.T) (map[string]int32, error) {
	t.Helper()
	pods, err := n.Pods(t.Context())
	out := map[string]int32{}
	for i := range pods {
		for c, count := range restarts(&pods[i]) {
			out[pods[i].Name+"/"+c] = count
		}
	}
	return out, err
}

// adopts watches from outside how the agent takes over. Whatever has no probe that decides it is ready from the first
// word on; who has a readiness probe is ready when that has been asked once, as no status from before is kept anywhere.
func (n *node) adopts(t *testing.T, counts map[string]int32) {
	t.Helper()
	start := time.Now()
	seen, ready := map[string]time.Duration{}, map[string]time.Duration{}
	look := func() error {
		pods, err := n.Pods(t.Context())
		if err != nil {
			return err
		}
		now := time.Since(start)
		for i := range pods {
			p := &pods[i]
			name := strings.TrimSuffix(p.Name, "-"+agent.Node)
			if len(p.Status.ContainerStatuses) == 0 {
				continue
			}
			if _, known := seen[name]; !known {
				seen[name] = now
			}
			for c, count := range restarts(p) {
				if count < counts[p.Name+"/"+c] {
					t.Errorf("restarts of %s/%s are %d, they were %d", name, c, count, counts[p.Name+"/"+c])
				}
			}
			switch _, was := ready[name]; {
			case agent.PodReady(p) && !was:
				ready[name] = now
			case !agent.PodReady(p) && was && name != "crash":
				t.Errorf("pod %s was ready %v after the start, and is not any more", name, ready[name])
			}
			if name == "done" && p.Status.Phase != v1.PodSucceeded {
				t.Errorf("the job is %s", p.Status.Phase)
			}
		}
		if len(seen) < 5 || now < 5*time.Second { // long enough to see a flap
			return fmt.Errorf("%d pods are known", len(seen))
		}
		return nil
	}
	agent.Eventually(t, patience, "all pods are known again", look)
	for _, name := range []string{"plain", "sidecar", "web"} {
		gap := ready[name] - seen[name]
		t.Logf("%s: known %v after the start, ready %v later", name, round(seen[name]), round(gap))
		if _, is := ready[name]; !is || name != "web" && gap > 0 || gap > 15*time.Second {
			t.Errorf("pod %s is not ready as it should be", name)
		}
	}
}
