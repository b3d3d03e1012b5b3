package status

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// equal says that b has nothing to tell whoever knows a: conditions count by type, status, reason and message, their
// times and generations do not; claim statuses are written by others; everything else counts.
func equal(a, b *v1.PodStatus) bool {
	return sameConditions(a.Conditions, b.Conditions) && equality.Semantic.DeepEqual(bare(a), bare(b))
}

func sameConditions(a, b []v1.PodCondition) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		c := condition(b, a[i].Type)
		if c == nil || c.Status != a[i].Status || c.Reason != a[i].Reason || c.Message != a[i].Message {
			return false
		}
	}
	return true
}

func bare(s *v1.PodStatus) v1.PodStatus {
	b := *s
	b.Conditions = nil
	b.ResourceClaimStatuses = nil
	b.ExtendedResourceClaimStatus = nil
	b.NodeAllocatableResourceClaimStatuses = nil
	return b
}

// legal refuses a move that cannot be true: a container that ended for good does not run or wait again.
func legal(pod *v1.Pod, from, to *v1.PodStatus) error {
	for c := range restartables(pod) {
		for _, l := range [][2][]v1.ContainerStatus{
			{from.InitContainerStatuses, to.InitContainerStatuses},
			{from.ContainerStatuses, to.ContainerStatuses},
		} {
			was, is := lookup(l[0], c.Name), lookup(l[1], c.Name)
			if was == nil || is == nil || was.State.Terminated == nil || is.State.Terminated != nil {
				continue
			}
			if !plan.RestartsAfter(pod, c, was.State.Terminated.ExitCode) && !couldRestartAll(pod) {
				return fmt.Errorf("container %s ended with exit code %d for good and cannot be shown as not ended",
					c.Name, was.State.Terminated.ExitCode)
			}
		}
	}
	return nil
}
