package status

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// setPhase sets phase, reason and message. A terminal phase is never left; a termination with a reason fails the pod;
// otherwise the containers decide, and reason and message stay as long as the phase does.
func setPhase(s *v1.PodStatus, in Input, old *v1.PodStatus) {
	phase, ended := stays(in.Pod, old)
	t := in.Termination
	switch {
	case ended:
		s.Phase = phase
	case t != nil && t.Reason != "":
		s.Phase = v1.PodFailed
	default:
		s.Phase = phaseOf(in.Pod, s, in.Ended || t != nil, initialized(in.Pod, in.Seen))
		if in.Ended && !static(in.Pod) && !terminal(s.Phase) {
			s.Phase = v1.PodFailed // whatever it was, it is over
		}
	}
	if t != nil && t.Reason != "" && s.Phase == v1.PodFailed {
		s.Reason, s.Message = t.Reason, t.Message
		return
	}
	keepReason(s, in.Pod, old)
}

// keepReason keeps reason and message of a phase that did not change.
func keepReason(s *v1.PodStatus, pod *v1.Pod, old *v1.PodStatus) {
	if s.Phase != old.Phase && s.Phase != pod.Status.Phase {
		return
	}
	if s.Phase == old.Phase {
		s.Reason, s.Message = old.Reason, old.Message
	}
	s.Reason = cmp.Or(s.Reason, pod.Status.Reason)
	s.Message = cmp.Or(s.Message, pod.Status.Message)
}

// stays answers the terminal phase that a pod has reached already. What the API shows comes first: it takes no other.
func stays(pod *v1.Pod, old *v1.PodStatus) (v1.PodPhase, bool) {
	for _, p := range []v1.PodPhase{pod.Status.Phase, old.Phase} {
		if terminal(p) {
			return p, true
		}
	}
	return "", false
}

func terminal(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// static says that the pod comes from a file or URL. Nothing but its exit codes ends such a pod.
func static(pod *v1.Pod) bool { return podspec.Static(pod) }

// initialized says that a regular container exists in the sandbox that serves now. Leftovers of an older one do not
// count, or init containers would be skipped after a reboot.
func initialized(pod *v1.Pod, seen runtime.Pod) bool {
	if len(seen.Sandboxes) == 0 || !seen.Sandboxes[0].Ready {
		return false
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if spec, kind := plan.Find(pod, c.Name); spec != nil && kind == plan.Regular && c.SandboxID == seen.Sandboxes[0].ID {
			return true
		}
	}
	return false
}

// counts of containers by what they mean for the phase.
type counts struct {
	pendingInit, failedInit, pendingSidecar int
	waiting, running, stopped, unknown      int
	final, succeeded                        int // of the stopped: not restarted, exited with 0
}

// phaseOf is the phase the container statuses of s amount to. stopping: nothing is restarted any more.
func phaseOf(pod *v1.Pod, s *v1.PodStatus, stopping, initialized bool) v1.PodPhase {
	n := count(pod, s)
	done := n.final > 0 && n.final == len(pod.Spec.Containers) // whatever is known of its sidecars
	switch {
	case n.failedInit > 0:
		return v1.PodFailed
	case n.pendingInit > 0:
		return v1.PodPending
	case !done && (n.pendingSidecar > 0 && !initialized || n.waiting > 0 || n.unknown > 0):
		return v1.PodPending
	case n.running > 0:
		return v1.PodRunning
	case n.stopped == 0:
		return v1.PodPending
	case (!stopping || static(pod)) && n.stopped != n.final:
		return v1.PodRunning // being restarted
	case n.stopped == n.succeeded:
		return v1.PodSucceeded
	default:
		return v1.PodFailed
	}
}

func count(pod *v1.Pod, s *v1.PodStatus) (n counts) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := find(s.InitContainerStatuses, c.Name)
		if plan.InitKind(c) == plan.Sidecar {
			n.sidecar(cs)
		} else {
			n.init(pod, c, cs)
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		n.regular(pod, c, find(s.ContainerStatuses, c.Name))
	}
	return n
}

func (n *counts) init(pod *v1.Pod, c *v1.Container, cs v1.ContainerStatus) {
	end := ended(cs)
	switch {
	case end == nil:
		n.pendingInit++
	case initFailed(end) && end.Reason != reasonRestartingAll && !plan.InitRestarts(pod, c, end.ExitCode):
		n.failedInit++
	}
}

// sidecar counts one that may hold the pod back or keep it running. One that ended counts for nothing.
func (n *counts) sidecar(cs v1.ContainerStatus) {
	switch {
	case ended(cs) != nil:
	case cs.State.Running != nil:
		n.running++
		if cs.Started == nil || !*cs.Started {
			n.pendingSidecar++
		}
	case cs.State.Waiting != nil:
		n.waiting++
		n.pendingSidecar++
	default:
		n.unknown++
	}
}

func (n *counts) regular(pod *v1.Pod, c *v1.Container, cs v1.ContainerStatus) {
	end := ended(cs)
	switch {
	case end != nil:
		n.stopped++
		if !restartable(pod, c, end) {
			n.final++
		}
		// One that waits for its next start has not succeeded, whatever it exited with.
		if cs.State.Terminated != nil && end.ExitCode == 0 {
			n.succeeded++
		}
	case cs.State.Running != nil:
		n.running++
	case cs.State.Waiting != nil:
		n.waiting++
	default:
		n.unknown++
	}
}

// ended is how a container ended that does not run now: the termination it shows, or the one it waits after.
func ended(cs v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case cs.State.Terminated != nil:
		return cs.State.Terminated
	case cs.State.Waiting != nil:
		return cs.LastTerminationState.Terminated
	default:
		return nil
	}
}

// initFailed says that an init container which ended did not do its work.
func initFailed(end *v1.ContainerStateTerminated) bool {
	return plan.InitFailed(end.ExitCode, end.Reason)
}

func restartable(pod *v1.Pod, c *v1.Container, end *v1.ContainerStateTerminated) bool {
	return end.Reason == reasonRestartingAll || plan.RestartsAfter(pod, c, end.ExitCode)
}

// find returns the status of that name, the zero one when there is none.
func find(list []v1.ContainerStatus, name string) v1.ContainerStatus {
	if s := lookup(list, name); s != nil {
		return *s
	}
	return v1.ContainerStatus{}
}

func lookup(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
