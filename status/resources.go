package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Requests is what a pod takes of a node: the sum of its containers or, where that is more, what its init containers
// need one after the other beside the sidecars started before; replaced by requests of the pod itself; plus overhead.
func Requests(pod *v1.Pod) v1.ResourceList { return podspec.Requests(pod) }

// Resizing says that a container runs with other sizes than the pod's spec has.
func Resizing(pod *v1.Pod, seen runtime.Pod) bool { return plan.Resizing(pod, seen) }

// setResources tells what the pod as a whole was promised, and what it has: while it gets other sizes, those it had.
func setResources(s *v1.PodStatus, pod *v1.Pod, applied *runtime.Sizes) {
	if requests := Requests(pod); len(requests) > 0 {
		s.AllocatedResources = requests
	}
	s.Resources = pod.Spec.Resources.DeepCopy()
	if s.Resources != nil && applied != nil && s.Phase == v1.PodRunning {
		asApplied(s.Resources, applied)
		had := *pod
		had.Spec.Resources = s.Resources.DeepCopy()
		pod = &had
	}
	requests, limits := Requests(pod), podspec.Limits(pod)
	if s.Resources == nil && len(requests)+len(limits) > 0 {
		s.Resources = new(v1.ResourceRequirements)
	}
	if s.Resources != nil {
		s.Resources.Requests, s.Resources.Limits = requests, limits
	}
}

// containerResources is what a container was given; of one that runs, as the kernel has it or, where the kernel knows
// nothing of it, as it was applied last. A value that the kernel rounded stays as the spec wrote it.
func containerResources(c *v1.Container, seen *runtime.Container, applied *runtime.Sizes) *v1.ResourceRequirements {
	out := c.Resources.DeepCopy()
	if seen.State != runtime.Running {
		return out
	}
	if applied != nil {
		asApplied(out, applied)
	}
	kernel := seen.Resources
	if kernel == nil {
		return out
	}
	if out.Requests != nil && kernel.CPUShares > 0 && kernel.CPUShares != shares(out.Requests.Cpu().MilliValue()) {
		out.Requests[v1.ResourceCPU] = ofMilli((kernel.CPUShares*1000 + 1023) / 1024)
	}
	if out.Limits != nil && kernel.CPUQuota > 0 && kernel.CPUPeriod > 0 &&
		kernel.CPUQuota != quota(out.Limits.Cpu().MilliValue(), kernel.CPUPeriod) {
		out.Limits[v1.ResourceCPU] = ofMilli(kernel.CPUQuota * 1000 / kernel.CPUPeriod)
	}
	if out.Limits != nil && kernel.Memory > 0 && kernel.Memory != out.Limits.Memory().Value() {
		out.Limits[v1.ResourceMemory] = ofBytes(kernel.Memory)
	}
	return out
}

// asApplied replaces what the spec says by what was applied, where that differs in effect.
func asApplied(r *v1.ResourceRequirements, applied *runtime.Sizes) {
	set := func(list v1.ResourceList, name v1.ResourceName, wanted, had, least int64, as func(int64) resource.Quantity) {
		if list != nil && had > 0 && had != wanted && max(had, wanted) > least {
			list[name] = as(had)
		}
	}
	set(r.Requests, v1.ResourceCPU, r.Requests.Cpu().MilliValue(), applied.CPURequest, leastRequest, ofMilli)
	set(r.Requests, v1.ResourceMemory, r.Requests.Memory().Value(), applied.MemoryRequest, 0, ofBytes)
	if _, own := r.Limits[v1.ResourceCPU]; own {
		set(r.Limits, v1.ResourceCPU, r.Limits.Cpu().MilliValue(), applied.CPULimit, leastLimit, ofMilli)
	}
	if _, own := r.Limits[v1.ResourceMemory]; own {
		set(r.Limits, v1.ResourceMemory, r.Limits.Memory().Value(), applied.MemoryLimit, 0, ofBytes)
	}
}

func ofMilli(n int64) resource.Quantity { return *resource.NewMilliQuantity(n, resource.DecimalSI) }

func ofBytes(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }

// The least the kernel takes: shares and, in microseconds, a quota.
const (
	minShares = 2
	minQuota  = 1000
)

// The same in thousandths of a CPU, with the usual period of 100 ms: sizes up to there are all the same to the kernel.
const (
	leastRequest = 2
	leastLimit   = 10
)

func shares(milli int64) int64 { return max(milli*1024/1000, minShares) }

func quota(milli, period int64) int64 { return max(milli*period/1000, minQuota) }
