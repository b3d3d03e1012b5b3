package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// MinGrace is the shortest time a container is given to end. Less is never passed to a runtime: with none it kills at
// once, and a process that would have ended cleanly loses data.
const MinGrace = 2 * time.Second

// orphanGrace is for pods whose spec nobody knows any more.
const orphanGrace = MinGrace

// Grace is how long a pod may take to end: the shorter of what its deletion and its killer ask for, else what its spec says.
// A nil pod gets the shortest.
func Grace(pod *v1.Pod, how runtime.Termination) time.Duration {
	var grace time.Duration
	switch {
	case pod == nil:
		grace = orphanGrace
	case pod.DeletionGracePeriodSeconds != nil:
		grace = podspec.Seconds(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = podspec.Seconds(*pod.Spec.TerminationGracePeriodSeconds)
	case how.Grace == 0:
		grace = v1.DefaultTerminationGracePeriodSeconds * time.Second
	default:
		grace = how.Grace
	}
	if how.Grace > 0 {
		grace = min(grace, how.Grace)
	}
	return max(grace, MinGrace)
}

// Stop plans the end of a pod. Its actions are taken side by side, each as soon as those in After have ended or its own
// grace is over: a sidecar waits for all regular containers and for the sidecars behind it, a
// sandbox for all containers. pod is nil when nobody knows the spec any more; then nothing waits for anything but the
// sandboxes.
func Stop(pod *v1.Pod, seen runtime.Pod, grace time.Duration) []Action {
	var out []Action
	sidecars := map[string]int{}
	if pod != nil {
		for i := range pod.Spec.InitContainers {
			if InitKind(&pod.Spec.InitContainers[i]) == Sidecar {
				sidecars[pod.Spec.InitContainers[i].Name] = i
			}
		}
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if c.State != runtime.Running && c.State != runtime.Unknown {
			continue
		}
		kind := Regular
		if pod != nil {
			_, kind = Find(pod, c.Name)
		}
		out = append(out, Action{
			Verb: StopContainer, ID: c.ID, Container: c.Name, Kind: kind,
			Grace: max(grace, MinGrace), Why: "Stopping container " + c.Name,
		})
	}
	for i := range out {
		place, isSidecar := sidecars[out[i].Container]
		if !isSidecar {
			continue
		}
		for j := range out {
			other, otherSidecar := sidecars[out[j].Container]
			if out[j].Kind == Regular || otherSidecar && other > place {
				out[i].After = append(out[i].After, j)
			}
		}
	}
	all := make([]int, len(out))
	for i := range all {
		all[i] = i
	}
	for _, s := range seen.Sandboxes {
		out = append(out, Action{Verb: StopSandbox, ID: s.ID, After: all})
	}
	return out
}
