package manager

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func podUID(n int) types.UID { return types.UID(fmt.Sprint("pod-", n)) }

// reported puts into the pod's status what an agent before this one said of container ID a.
func reported(p *v1.Pod, id string, ready, started bool) *v1.Pod {
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", ContainerID: "containerd://" + id, Ready: ready, Started: &started}}
	return p
}

// Cases c033, c034 and c035, trap 32: what a restarted agent knows before it has asked anybody.
func TestCase_c033_c034_c035_ResultsAfterARestart(t *testing.T) {
	readiness := v1.Container{ReadinessProbe: every("ready", 30)}
	startup := v1.Container{StartupProbe: every("start", 30, failures(600)), LivenessProbe: every("live", 30)}
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		age  time.Duration
		want runtime.ProbeResult
	}{
		{"c033: ready stays ready", reported(pod(readiness), "a", true, true), time.Hour, runtime.ProbeResult{Readiness: passing}},
		{"c033: not ready stays so", reported(pod(readiness), "a", false, true), time.Hour, runtime.ProbeResult{Readiness: failing}},
		{"ready of another container does not count", reported(pod(readiness), "b", true, true), time.Hour, runtime.ProbeResult{Readiness: failing}},
		{"nothing reported is not ready", pod(readiness), time.Hour, runtime.ProbeResult{Readiness: failing}},
		{"a young container stays ready, too", reported(pod(readiness), "a", true, true), time.Second, runtime.ProbeResult{Readiness: passing}},
		{"c034: not started stays undecided", reported(pod(startup), "a", false, false), time.Hour, runtime.ProbeResult{Liveness: passing}},
		{"c035: started stays started", reported(pod(startup), "a", true, true), time.Hour, runtime.ProbeResult{Liveness: passing, Startup: passing}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.m.Track(c.pod, running("a", c.age), false)
				w.result("a", c.want)
			})
		})
	}
}

func TestCase_c034_LivenessWaitsOnAfterARestart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(always(probe.Failure, "no"))
		p := pod(v1.Container{StartupProbe: every("start", 4, failures(600)), LivenessProbe: every("live", 1)})
		w.m.Track(reported(p, "a", false, false), running("a", 11*time.Second), false)
		time.Sleep(time.Minute)
		for _, l := range w.take() {
			if l[len(l)-len("live a"):] == "live a" {
				t.Fatal(l)
			}
		}
		w.result("a", runtime.ProbeResult{Liveness: passing})
	})
}

func TestCase_c035_NoStartupProbeAfterARestart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(always(probe.Failure, "only once"))
		p := pod(v1.Container{StartupProbe: every("start", 1)})
		w.m.Track(reported(p, "a", true, true), running("a", time.Hour), false)
		w.after(time.Minute)
		w.m.Track(p, running("b", 0), false) // its successor does begin with it
		w.after(0, "60s start b", "60s Unhealthy spec.containers{c}: Startup probe failed: only once", "60s changed u")
	})
}

// Case c033: the first checks after a restart are spread, and prompt all the same.
func TestCase_c033_FirstChecksAreSpread(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 200
		for i := range n {
			p := reported(pod(v1.Container{ReadinessProbe: every("ready", 30)}), "a", true, true)
			p.UID = podUID(i)
			w.m.Track(p, running("a", time.Hour), false)
		}
		time.Sleep(longestSpread)
		lines := w.take()
		if len(lines) != n { // all asked, none changed
			t.Fatalf("%d lines in %v", len(lines), longestSpread)
		}
		at := map[string]int{}
		for _, l := range lines {
			at[l]++
		}
		if len(at) < n/4 {
			t.Errorf("only %d different times", len(at))
		}
	})
}
