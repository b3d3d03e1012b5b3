package podruntime

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Kernel limits of CPU shares and quota, and the period the kubelet uses.
const (
	minShares   = 2
	maxShares   = 262144
	cpuPeriod   = 100_000 // microseconds
	minCPUQuota = 1_000
)

// OOM scores: the guaranteed are killed last, those who asked for nothing first.
const (
	oomCritical   = -997
	oomBestEffort = 1000
	oomMin        = 3
)

// systemNodeCritical is the lowest priority of pods without which the node is no node.
const systemNodeCritical = 2000001000

// resources are what the kernel is told of a container's requests and limits. memory is that of the machine in bytes,
// 0 when it is not known.
func resources(pod *v1.Pod, c *v1.Container, memory int64) runtime.Resources {
	limits := c.Resources.Limits
	cpuLimit := limits[v1.ResourceCPU]
	memLimit := limits[v1.ResourceMemory]
	if pod.Spec.Resources != nil && memLimit.IsZero() {
		memLimit = pod.Spec.Resources.Limits[v1.ResourceMemory]
	}
	request, asked := c.Resources.Requests[v1.ResourceCPU]
	if !asked {
		request = cpuLimit
	}
	return runtime.Resources{
		CPUShares:   shares(request),
		CPUPeriod:   cpuPeriod,
		CPUQuota:    quota(cpuLimit),
		Memory:      memLimit.Value(),
		OOMScoreAdj: oomScore(pod, c, memory),
	}
}

func shares(cpu resource.Quantity) int64 {
	return min(max(cpu.MilliValue()*1024/1000, minShares), maxShares)
}

func quota(cpu resource.Quantity) int64 {
	if cpu.IsZero() {
		return 0
	}
	return max(cpu.MilliValue()*cpuPeriod/1000, minCPUQuota)
}

// oomScore makes the kernel kill first what uses most of what it did not ask for.
func oomScore(pod *v1.Pod, c *v1.Container, memory int64) int64 {
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= systemNodeCritical {
		return oomCritical
	}
	switch podspec.QOS(pod) {
	case v1.PodQOSGuaranteed:
		return oomCritical
	case v1.PodQOSBestEffort:
		return oomBestEffort
	case v1.PodQOSBurstable:
	}
	score := burstable(c.Resources.Requests.Memory().Value(), memory)
	if _, kind := plan.Find(pod, c.Name); kind == plan.Sidecar {
		score = min(score, burstable(smallestRequest(pod), memory)) // a sidecar outlives the containers it serves
	}
	return score
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

// podResources are the sums over a pod's containers, for engines that size a sandbox.
func podResources(pod *v1.Pod) runtime.Resources {
	var cpuRequest, cpuLimit, memLimit resource.Quantity
	for i := range pod.Spec.Containers {
		r := pod.Spec.Containers[i].Resources
		cpuRequest.Add(*r.Requests.Cpu())
		cpuLimit.Add(*r.Limits.Cpu())
		memLimit.Add(*r.Limits.Memory())
	}
	return runtime.Resources{CPUShares: shares(cpuRequest), CPUPeriod: cpuPeriod, CPUQuota: quota(cpuLimit), Memory: memLimit.Value()}
}
