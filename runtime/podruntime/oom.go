package podruntime

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// OOM scores: the guaranteed are killed last, those who asked for nothing first.
const (
	oomCritical   = -997
	oomBestEffort = 1000
	oomMin        = 3
)

// oomScore makes the kernel kill first what uses most of what it did not ask for. memory is that of the machine in bytes, 0
// when it is not known.
func oomScore(pod *v1.Pod, c *v1.Container, memory int64) int64 {
	if podspec.NodeCritical(pod) {
		return oomCritical
	}
	switch podspec.QOS(pod) {
	case v1.PodQOSGuaranteed:
		return oomCritical
	case v1.PodQOSBestEffort:
		return oomBestEffort
	case v1.PodQOSBurstable:
	}
	share := unassigned(pod)
	request := c.Resources.Requests.Memory().Value() + share
	if _, kind := plan.Find(pod, c.Name); kind == plan.Sidecar {
		request = max(request, smallestRequest(pod)+share) // a sidecar outlives the containers it serves
	}
	return burstable(request, memory)
}

func burstable(request, memory int64) int64 {
	if memory <= 0 {
		return oomBestEffort - 1
	}
	score := oomBestEffort - oomBestEffort*request/memory
	return min(max(score, oomMin), oomBestEffort-1)
}

func smallestRequest(pod *v1.Pod) int64 {
	smallest := int64(-1)
	for i := range pod.Spec.Containers {
		if r := pod.Spec.Containers[i].Resources.Requests.Memory().Value(); smallest < 0 || r < smallest {
			smallest = r
		}
	}
	return max(smallest, 0)
}

// unassigned is a container's part of the memory that the pod as a whole asks for and no container does.
func unassigned(pod *v1.Pod) int64 {
	r := pod.Spec.Resources
	if r == nil || !podspec.HasPodLevel(&v1.ResourceRequirements{Requests: r.Requests}) {
		return 0
	}
	bare := *pod // shared, but for what is said of it as a whole
	bare.Spec.Resources, bare.Spec.Overhead = nil, nil
	assigned := podspec.Requests(&bare)
	rest := max(r.Requests.Memory().Value()-assigned.Memory().Value(), 0)
	return rest / int64(len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
}
