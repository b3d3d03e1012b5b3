package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// endAll gives every container that may have run an end. What is still shown as running or waiting when nothing of the
// pod is left has ended unseen. Of a pod that never got past its init containers the regular ones never ran.
func endAll(pod *v1.Pod, s *v1.PodStatus) {
	if wasInitialized(pod, s) {
		endUnseen(s.ContainerStatuses)
	}
	endUnseen(begun(s.InitContainerStatuses))
}

func endUnseen(list []v1.ContainerStatus) {
	for i := range list {
		if list[i].State.Terminated == nil {
			list[i].State = v1.ContainerState{Terminated: lost(reasonUnknown, lostWhenEnded)}
			list[i].Ready, list[i].Started = false, new(false)
		}
	}
}

// wasInitialized says that regular containers may have run.
func wasInitialized(pod *v1.Pod, s *v1.PodStatus) bool {
	if len(pod.Spec.InitContainers) == 0 {
		return true
	}
	for _, cs := range s.ContainerStatuses {
		if cs.State.Waiting == nil || cs.LastTerminationState.Terminated != nil {
			return true
		}
	}
	last := &pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
	cs := find(s.InitContainerStatuses, last.Name)
	if plan.InitKind(last) == plan.Sidecar {
		return cs.State.Running != nil && cs.Started != nil && *cs.Started
	}
	if end := cs.State.Terminated; end != nil && !end.FinishedAt.Time.Before(askedToEnd(pod)) {
		return false // it ended as everything did
	}
	return succeeded(cs.State) || succeeded(cs.LastTerminationState)
}

// askedToEnd is when somebody asked for the end of a pod; far from now as long as nobody has.
func askedToEnd(pod *v1.Pod) time.Time {
	at := pod.DeletionTimestamp
	if at == nil {
		return time.Unix(1<<40, 0)
	}
	grace := pod.DeletionGracePeriodSeconds
	if grace == nil {
		return at.Time
	}
	return at.Add(-time.Duration(*grace) * time.Second)
}

func succeeded(s v1.ContainerState) bool { return s.Terminated != nil && !initFailed(s.Terminated) }

// begun are the init containers up to the last that ever started. The first is always among them.
func begun(list []v1.ContainerStatus) []v1.ContainerStatus {
	for i, cs := range slices.Backward(list) {
		if cs.State.Waiting == nil || cs.LastTerminationState.Terminated != nil {
			return list[:i+1]
		}
	}
	return list[:min(1, len(list))]
}

// restartsAll says that a container ended in a way that makes all containers of the pod start over, and that this is
// not done yet as far as was told.
func restartsAll(in *Input, old *v1.PodStatus) bool {
	if c := condition(old.Conditions, v1.AllContainersRestarting); c != nil && c.Status == v1.ConditionTrue {
		return true
	}
	for c := range restartables(in.Pod) {
		if seen := in.Seen.Newest(c.Name); seen != nil && seen.State == runtime.Exited && plan.RestartsAll(c, seen.ExitCode) {
			return true
		}
		told := find(old.ContainerStatuses, c.Name)
		if told.Name == "" {
			told = find(old.InitContainerStatuses, c.Name)
		}
		if end := told.State.Terminated; end != nil && plan.RestartsAll(c, end.ExitCode) {
			return true
		}
	}
	return false
}

// restartables are the init and regular containers.
func restartables(pod *v1.Pod) func(yield func(*v1.Container) bool) {
	return func(yield func(*v1.Container) bool) {
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}
