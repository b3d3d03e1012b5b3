package podruntime

import (
	"cmp"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Kernel limits of CPU shares and quota, and the period the kubelet uses.
const (
	minShares   = 2
	maxShares   = 262144
	cpuPeriod   = 100_000 // microseconds
	minCPUQuota = 1_000
)

// Policy is what a node decides about the resources of all its containers. The zero value is the kubelet's default.
type Policy struct {
	NoCPUQuota  bool  // CPU limits are not enforced
	CPUPeriod   int64 // microseconds in which a CPU limit holds; 0: 100 ms
	KillSingly  bool  // out of memory, the kernel of cgroup v2 kills one process, not all of the container
	LimitedSwap bool  // containers of burstable pods get swap in proportion to the memory they ask for; otherwise none does
	Reservation bool  // cgroup v2 keeps for containers the memory they ask for
	// Throttle is how far between its request and its limit, 0 to 1, a container is slowed down for using memory; 0: never.
	Throttle float64
}

// sizing turns requests and limits into what the kernel is told.
type sizing struct {
	Policy
	kernel      Kernel
	memory      int64 // of this machine in bytes; 0: unknown
	allocatable int64 // memory of this node for pods; 0: unknown
}

func (r *Runtime) sizing() sizing {
	s := sizing{Policy: r.cfg.Policy, kernel: r.cfg.Kernel, memory: r.cfg.Memory}
	if r.cfg.Node != nil {
		if node := r.cfg.Node(); node != nil {
			s.allocatable = node.Status.Allocatable.Memory().Value()
		}
	}
	return s
}

// container is what the kernel is told of a container.
func (s sizing) container(pod *v1.Pod, c *v1.Container) runtime.Resources {
	cpuLimit, memLimit := inherited(pod, c, v1.ResourceCPU), inherited(pod, c, v1.ResourceMemory)
	request, asked := c.Resources.Requests[v1.ResourceCPU]
	if !asked {
		request = cpuLimit
	}
	out := s.sizes(request, cpuLimit, memLimit)
	out.OOMScoreAdj = oomScore(pod, c, s.memory)
	out.Hugepages = s.hugepages(pod, c)
	s.swap(&out, pod, c)
	s.quality(&out, pod, c)
	return out
}

// inherited is a limit of a container, or where it has none the pod's.
func inherited(pod *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if r := pod.Spec.Resources; limit.IsZero() && podspec.HasPodLevel(r) {
		return r.Limits[name]
	}
	return limit
}

// sizes are those that containers and sandboxes have in common.
func (s sizing) sizes(cpuRequest, cpuLimit, memLimit resource.Quantity) runtime.Resources {
	out := runtime.Resources{CPUShares: shares(cpuRequest), Memory: memLimit.Value()}
	if !s.NoCPUQuota {
		out.CPUPeriod = cpuPeriod
		if s.CPUPeriod > 0 {
			out.CPUPeriod = s.CPUPeriod
		}
		out.CPUQuota = quota(cpuLimit, out.CPUPeriod)
	}
	if s.kernel.CgroupV2 && !s.KillSingly {
		out.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return out
}

func shares(cpu resource.Quantity) int64 {
	return min(max(cpu.MilliValue()*1024/1000, minShares), maxShares)
}

func quota(cpu resource.Quantity, period int64) int64 {
	if cpu.IsZero() {
		return 0
	}
	return max(cpu.MilliValue()*period/1000, minCPUQuota)
}

// sandbox is the sum over a pod's containers without its overhead, for engines that size a sandbox.
func (s sizing) sandbox(pod *v1.Pod) runtime.Resources {
	bare := *pod // shared, but for the overhead
	bare.Spec.Overhead = nil
	requests, limits := podspec.Requests(&bare), podspec.Limits(&bare)
	request, asked := requests[v1.ResourceCPU]
	if !asked {
		request = limits[v1.ResourceCPU]
	}
	return s.sizes(request, limits[v1.ResourceCPU], limits[v1.ResourceMemory])
}

// overhead is what a sandbox takes itself.
func (s sizing) overhead(pod *v1.Pod) runtime.Resources {
	o := pod.Spec.Overhead
	if o == nil {
		return runtime.Resources{}
	}
	return s.sizes(o[v1.ResourceCPU], o[v1.ResourceCPU], o[v1.ResourceMemory])
}

// swap keeps a container from swapping, or within what is its part.
func (s sizing) swap(out *runtime.Resources, pod *v1.Pod, c *v1.Container) {
	switch {
	case !s.kernel.SwapControl:
	case !s.kernel.CgroupV2:
		out.MemorySwap = out.Memory // memory and swap together: no swap beyond the limit
	default:
		unified(out, "memory.swap.max", s.swapOf(pod, c))
	}
}

// swapOf is the swap of a container in bytes: its part of the machine's is that of the memory it asks for.
func (s sizing) swapOf(pod *v1.Pod, c *v1.Container) int64 {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	switch {
	case !s.LimitedSwap, s.memory <= 0, request.Value() > s.memory:
		return 0
	case podspec.QOS(pod) != v1.PodQOSBurstable, podspec.Critical(pod):
		return 0
	case request.Cmp(*limit) == 0: // neither is said, or there is nothing that could be swapped
		return 0
	}
	return int64(float64(request.Value()) / float64(s.memory) * float64(s.kernel.Swap))
}

// quality keeps memory for a container that asked for it, and slows it down as it comes near its limit.
func (s sizing) quality(out *runtime.Resources, pod *v1.Pod, c *v1.Container) {
	if !s.kernel.CgroupV2 {
		return
	}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	switch {
	case !s.Reservation || request == 0:
		unified(out, "memory.min", 0)
		unified(out, "memory.low", 0)
	case podspec.QOS(pod) == v1.PodQOSGuaranteed:
		unified(out, "memory.min", request)
	default:
		unified(out, "memory.low", request)
	}
	if high := s.high(pod, request, limit); high > 0 {
		unified(out, "memory.high", high)
	}
}

// high is from how much memory on a container is slowed down; 0: it is not, or its pod is.
func (s sizing) high(pod *v1.Pod, request, limit int64) int64 {
	if limit == 0 && podspec.HasPodLevel(pod.Spec.Resources) && !pod.Spec.Resources.Limits.Memory().IsZero() {
		return 0
	}
	return podspec.Throttle(request, cmp.Or(limit, s.allocatable), s.Throttle)
}

func unified(out *runtime.Resources, name string, value int64) {
	if out.Unified == nil {
		out.Unified = map[string]string{}
	}
	out.Unified[name] = strconv.FormatInt(value, 10)
}

// hugepages are limits of each size this machine has: what is not said is none.
func (s sizing) hugepages(pod *v1.Pod, c *v1.Container) map[string]uint64 {
	if len(s.kernel.Hugepages) == 0 {
		return nil
	}
	said := map[string]uint64{}
	lists := []v1.ResourceList{c.Resources.Limits}
	if podspec.HasPodLevel(pod.Spec.Resources) {
		lists = []v1.ResourceList{pod.Spec.Resources.Limits, c.Resources.Limits}
	}
	for _, l := range lists {
		for name, q := range l {
			if size, ok := podspec.HugepageSize(name); ok {
				said[size] = uint64(max(q.Value(), 0))
			}
		}
	}
	out := make(map[string]uint64, len(s.kernel.Hugepages))
	for _, size := range s.kernel.Hugepages {
		out[size] = said[size]
	}
	return out
}
