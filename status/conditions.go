package status

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Reasons of conditions.
const (
	reasonSandboxNotReady = "PodSandboxNotReady"
	reasonUnknownStatuses = "UnknownContainerStatuses"
	reasonPodCompleted    = "PodCompleted"
	reasonPodFailed       = "PodFailed"
	reasonNotReady        = "ContainersNotReady"
	reasonNotInitialized  = "ContainersNotInitialized"
	reasonGatesNotReady   = "ReadinessGatesNotReady"
	reasonAllRestarting   = "RestartAllContainersStarted"
)

// ours says whether a condition is written by the node alone.
func ours(t v1.PodConditionType) bool {
	switch t {
	case v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
		v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
		return true
	default:
		return false
	}
}

// conditions in the kubelet's order: what others wrote, resizes, DisruptionTarget, then the computed ones.
func conditions(in *Input, old, s *v1.PodStatus, restarting bool) []v1.PodCondition {
	target := disruption(in, old, s)
	var out []v1.PodCondition
	for _, c := range in.Pod.Status.Conditions {
		if !ours(c.Type) && (target == nil || c.Type != target.Type) {
			out = append(out, c)
		}
	}
	foreign := len(out)
	out = append(out, in.Extra...)
	if target != nil {
		out = append(out, *target)
	}
	containers := containersReady(in.Pod, s)
	computed := []v1.PodCondition{
		readyToStart(in),
		podInitialized(in.Pod, old, s),
		ready(in.Pod, out, containers),
		containers,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	}
	for i := range computed {
		computed[i].ObservedGeneration = in.Pod.Generation
	}
	out = append(out, computed...)
	if c := allRestarting(in, s, restarting); c != nil {
		out = append(out, *c)
	}
	for i := foreign; i < len(out); i++ {
		setTransition(&out[i], in, old)
	}
	return out
}

// setTransition keeps the time of the last change of the condition's status.
func setTransition(c *v1.PodCondition, in *Input, old *v1.PodStatus) {
	c.LastProbeTime = stamp(c.LastProbeTime.Time)
	if !c.LastTransitionTime.IsZero() { // its owner keeps it
		c.LastTransitionTime = stamp(c.LastTransitionTime.Time)
		return
	}
	c.LastTransitionTime = stamp(in.Now)
	if was := condition(old.Conditions, c.Type); was != nil && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
		c.LastTransitionTime = was.LastTransitionTime
	}
}

func condition(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// disruption is DisruptionTarget of a pod that the node ends for its own sake. Told once, it stays.
func disruption(in *Input, old, s *v1.PodStatus) *v1.PodCondition {
	was := condition(old.Conditions, v1.DisruptionTarget)
	t := in.Termination
	if t == nil || !t.Disruption || s.Phase == v1.PodSucceeded {
		return was
	}
	message := cmp.Or(t.Disrupted, t.Message)
	if was != nil && was.Reason == v1.PodReasonTerminationByKubelet && was.Message == message {
		return was
	}
	return &v1.PodCondition{
		Type:               v1.DisruptionTarget,
		ObservedGeneration: in.Pod.Generation,
		Status:             v1.ConditionTrue,
		Reason:             v1.PodReasonTerminationByKubelet,
		Message:            message,
	}
}

func readyToStart(in *Input) v1.PodCondition {
	ok, why := plan.SandboxOK(in.Pod, in.Seen)
	if ok {
		return v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue}
	}
	return v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse, Reason: reasonSandboxNotReady, Message: why}
}

func podInitialized(pod *v1.Pod, old, s *v1.PodStatus) v1.PodCondition {
	yes := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if s.Phase == v1.PodSucceeded {
		yes.Reason = reasonPodCompleted
		return yes
	}
	// A pod past its init containers stays so, also while a sidecar restarts.
	for _, cs := range s.ContainerStatuses {
		if cs.State.Running != nil || cs.State.Terminated != nil {
			return yes
		}
	}
	incomplete := unfinished(pod, s)
	if len(incomplete) == 0 {
		return yes
	}
	if was := condition(old.Conditions, v1.PodInitialized); was != nil && was.Status == v1.ConditionTrue {
		return yes
	}
	return v1.PodCondition{
		Type:    v1.PodInitialized,
		Status:  v1.ConditionFalse,
		Reason:  reasonNotInitialized,
		Message: fmt.Sprintf("containers with incomplete status: %s", incomplete),
	}
}

// unfinished are the init containers that hold the regular ones back.
func unfinished(pod *v1.Pod, s *v1.PodStatus) (names []string) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := find(s.InitContainerStatuses, c.Name)
		done := cs.Ready
		if plan.InitKind(c) == plan.Sidecar {
			done = cs.Started != nil && *cs.Started
		}
		if !done {
			names = append(names, c.Name)
		}
	}
	return names
}

func containersReady(pod *v1.Pod, s *v1.PodStatus) v1.PodCondition {
	no := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	unready := unreadyNames(pod, s)
	switch {
	case len(s.ContainerStatuses) == 0 && len(s.InitContainerStatuses) == 0:
		no.Reason = reasonUnknownStatuses
	case s.Phase == v1.PodSucceeded:
		no.Reason = reasonPodCompleted
	case s.Phase == v1.PodFailed:
		no.Reason = reasonPodFailed
	case len(unready) > 0:
		no.Reason = reasonNotReady
		no.Message = fmt.Sprintf("containers with unready status: %s", unready)
	default:
		return v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionTrue}
	}
	return no
}

// unreadyNames lists sidecars first, each group in the order of the spec.
func unreadyNames(pod *v1.Pod, s *v1.PodStatus) (names []string) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if plan.InitKind(c) == plan.Sidecar && !find(s.InitContainerStatuses, c.Name).Ready {
			names = append(names, c.Name)
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; !find(s.ContainerStatuses, c.Name).Ready {
			names = append(names, c.Name)
		}
	}
	return names
}

// ready is ContainersReady, and then what the readiness gates of the pod ask of the other conditions.
func ready(pod *v1.Pod, others []v1.PodCondition, containers v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var missing []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch got := condition(others, gate.ConditionType); {
		case got == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case got.Status != v1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, got.Status))
		}
	}
	if len(missing) > 0 {
		c.Status = v1.ConditionFalse
		c.Reason = reasonGatesNotReady
		c.Message = strings.Join(missing, ", ")
	}
	return c
}

// allRestarting is told only of pods in which a rule asks for it. It is true until no old instance is left.
func allRestarting(in *Input, s *v1.PodStatus, restarting bool) *v1.PodCondition {
	if !plan.CouldRestartAll(in.Pod) {
		return nil
	}
	left := false
	for c := range restartables(in.Pod) {
		left = left || in.Seen.Newest(c.Name) != nil
	}
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case s.Phase == v1.PodSucceeded:
		c.Reason = reasonPodCompleted
	case s.Phase == v1.PodFailed:
		c.Reason = reasonPodFailed
	case restarting && left:
		c.Status, c.Reason = v1.ConditionTrue, reasonAllRestarting
		c.Message = "container exited with restart policy rule"
	}
	return &c
}
