package status

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Input is all a status depends on. Only Pod and Now are required.
type Input struct {
	Pod  *v1.Pod      // allocated resources in its spec; its Status is what the source last showed
	Last v1.PodStatus // what Compute said before; zero: nothing yet, then Pod.Status counts as said before

	Seen         runtime.Pod          // a complete look; what is not in it does not exist
	ProbeResults runtime.ProbeResults // by container ID

	Termination *runtime.Termination // set once the pod is being stopped
	Rejection   *runtime.Rejection   // set when the pod was refused: it never starts
	Ended       bool                 // nothing of it runs any more, nor will

	Extra       []v1.PodCondition // conditions the caller owns: a resize that waits or is under way
	HostIPs     []string          // the node's, its primary address first; empty: not known
	RuntimeName string            // scheme of container IDs: containerd, cri-o; empty means "unknown"
	Now         time.Time
}

// Compute says how the pod is. The answer shares no memory with the input that a caller could change by it.
func Compute(in Input) v1.PodStatus {
	old := in.Last.DeepCopy()
	if old.Phase == "" {
		old = in.Pod.Status.DeepCopy()
	}
	s := v1.PodStatus{
		ObservedGeneration: max(in.Pod.Generation, old.ObservedGeneration),
		QOSClass:           cmp.Or(in.Pod.Status.QOSClass, old.QOSClass),
		StartTime:          old.StartTime,
		VolumeHealth:       old.VolumeHealth,
	}
	if s.QOSClass == "" {
		s.QOSClass = QOS(in.Pod)
	}
	if s.StartTime.IsZero() {
		s.StartTime = new(stamp(in.Now))
	}
	keepOthers(&s, in.Pod)
	if in.Rejection != nil {
		reject(&s, in, old)
		return s
	}

	l := look{in: &in, old: old, restarting: restartsAll(&in, old)}
	l.containers(&s)
	if in.Ended {
		endAll(in.Pod, &s)
	}
	setPhase(&s, in, old)
	s.Conditions = conditions(&in, old, &s, l.restarting)
	setAddresses(&s, in, old)
	setResources(&s, in.Pod, in.Seen.Level)
	trim(in.Pod, &s)
	return s
}

// keepOthers takes over the fields that others write and nobody but the source knows.
func keepOthers(s *v1.PodStatus, pod *v1.Pod) {
	shown := pod.Status.DeepCopy()
	s.ResourceClaimStatuses = shown.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = shown.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses = shown.NodeAllocatableResourceClaimStatuses
}

// reject is the status of a pod that was refused. It has no conditions: what the scheduler wrote stays in the API.
func reject(s *v1.PodStatus, in Input, old *v1.PodStatus) {
	if phase, ended := stays(in.Pod, old); ended {
		s.Phase = phase
		keepReason(s, in.Pod, old)
		return
	}
	s.Phase = v1.PodFailed
	s.Reason = in.Rejection.Reason
	s.Message = "Pod was rejected: " + in.Rejection.Message
}

// stamp is a time as the API keeps it.
func stamp(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

// maxMessages is how many bytes the termination messages of a pod have together.
const maxMessages = 12 << 10

// trim gives every container the same share of maxMessages, and makes text of what is none: a server would keep it so, and who
// compares would send it again and again.
func trim(pod *v1.Pod, s *v1.PodStatus) {
	n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers)
	share := maxMessages / max(n, 1)
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			for _, t := range []*v1.ContainerStateTerminated{list[i].State.Terminated, list[i].LastTerminationState.Terminated} {
				switch {
				case t == nil:
				case len(t.Message) > share:
					t.Message = strings.ToValidUTF8(t.Message[:share], "") // never half a rune
				case !utf8.ValidString(t.Message):
					t.Message = string([]rune(t.Message))
				}
			}
		}
	}
}
