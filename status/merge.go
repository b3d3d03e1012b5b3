package status

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Merge is what to write over the status of a pod as a server has it, so that nothing of anybody else is lost. It is a pure
// function; the answer shares no memory with its arguments. Whoever sends it asks for the uid in the same request.
//
//   - Conditions of others, claim statuses, the nominated node, the start time and the QoS class stay as the server has them.
//   - A terminal phase of the server stays, with its reason and message.
//   - A terminal phase of ours waits until no container status of ours shows Running: until then phase, reason and message
//     stay the server's. DisruptionTarget is told together with the terminal phase, and not before.
//   - With a terminal phase Ready and ContainersReady are never True.
//   - An init container that ended for good and runs once more, in a new sandbox, stays ended and is not ready: a server takes
//     no other status of it, and with it none of the pod.
func Merge(pod *v1.Pod, ours v1.PodStatus) v1.PodStatus {
	server, out := *pod.Status.DeepCopy(), *ours.DeepCopy()
	keepEnds(pod, &server, &out)
	out.ObservedGeneration = max(server.ObservedGeneration, ours.ObservedGeneration)
	out.NominatedNodeName = server.NominatedNodeName
	out.ResourceClaimStatuses = server.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = server.ExtendedResourceClaimStatus
	out.NodeAllocatableResourceClaimStatuses = server.NodeAllocatableResourceClaimStatuses
	out.QOSClass = cmp.Or(server.QOSClass, out.QOSClass)
	if server.StartTime != nil {
		out.StartTime = server.StartTime
	}

	ends := terminal(ours.Phase) && !terminal(server.Phase)
	held := ends && anyRunning(&ours)
	if held || terminal(server.Phase) && server.Phase != ours.Phase {
		out.Phase, out.Reason, out.Message = server.Phase, server.Reason, server.Message
	}
	out.Conditions = mergeConditions(server.Conditions, out.Conditions, ends && !held)
	if terminal(out.Phase) {
		notReady(&out, server.Conditions)
	}
	return out
}

// keepEnds leaves init containers ended that the server knows to have ended for good.
func keepEnds(pod *v1.Pod, server, out *v1.PodStatus) {
	if plan.CouldRestartAll(pod) {
		return
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		was, is := find(server.InitContainerStatuses, c.Name).State.Terminated, lookup(out.InitContainerStatuses, c.Name)
		if was != nil && is != nil && is.State.Terminated == nil && !plan.RestartsAfter(pod, c, was.ExitCode) {
			is.State = v1.ContainerState{Terminated: was}
		}
	}
}

func anyRunning(s *v1.PodStatus) bool {
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil {
				return true
			}
		}
	}
	return false
}

// mergeConditions keeps the others' conditions of the server in their order and puts the node's own behind them.
func mergeConditions(server, mine []v1.PodCondition, ends bool) []v1.PodCondition {
	var out []v1.PodCondition
	for _, c := range server {
		if !ours(c.Type) {
			out = append(out, c)
		}
	}
	for _, c := range mine {
		switch was := condition(out, c.Type); {
		case ours(c.Type):
			out = append(out, c)
		case c.Type != v1.DisruptionTarget || !ends:
		case was != nil:
			*was = c
		default:
			out = append(out, c)
		}
	}
	return out
}

// notReady makes a status of a pod that is over say so. The time of the change is the server's if that knew already.
func notReady(s *v1.PodStatus, server []v1.PodCondition) {
	reason := reasonPodCompleted
	if s.Phase == v1.PodFailed {
		reason = reasonPodFailed
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type != v1.PodReady && c.Type != v1.ContainersReady || c.Status != v1.ConditionTrue {
			continue
		}
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reason, ""
		if was := condition(server, c.Type); was != nil && was.Status == v1.ConditionFalse {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
}
