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

// legal refuses a move that cannot be true: a container that ended for good does not run or wait again. An init container that did
// its work does so in a new sandbox.
func legal(pod *v1.Pod, from, to *v1.PodStatus) error {
	if pod.Spec.RestartPolicy == v1.RestartPolicyAlways || plan.CouldRestartAll(pod) {
		return nil
	}
	for c := range restartables(pod) {
		was := find(from.ContainerStatuses, c.Name).State.Terminated
		is, restarts := lookup(to.ContainerStatuses, c.Name), plan.RestartsAfter
		if is == nil {
			was = find(from.InitContainerStatuses, c.Name).State.Terminated
			is, restarts = lookup(to.InitContainerStatuses, c.Name), plan.InitRestarts
			if was != nil && !initFailed(was) {
				continue
			}
		}
		if was == nil || is == nil || is.State.Terminated != nil || restarts(pod, c, was.ExitCode) {
			continue
		}
		if was.ExitCode == 0 || pod.Spec.RestartPolicy != v1.RestartPolicyOnFailure {
			return fmt.Errorf("container %s ended for good with exit code %d and is shown as not ended", c.Name, was.ExitCode)
		}
	}
	return nil
}
