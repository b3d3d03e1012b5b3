package cgroup

import (
	"cmp"
	"maps"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// values of a cgroup. Unlimited is no limit; zero leaves what is there.
type values struct {
	shares    int64 // as cgroup v1 has them
	quota     int64 // microseconds of CPU in each period
	period    int64 // microseconds
	memory    int64 // bytes
	pids      int64 // processes and threads
	hugepages map[string]int64
	keep      *keep // nil leaves what is there
	high      int64 // bytes from which on using memory is slowed down, with cgroup v2
}

// keep is memory in bytes that the kernel takes from a cgroup for nobody else: never, and only as the last resort. What a cgroup
// is given holds as far as those above it are given as much. Version 1 has no such thing.
type keep struct{ min, low int64 }

const unlimited = -1

func (v values) equal(o values) bool {
	pages := maps.Equal(v.hugepages, o.hugepages)
	v.hugepages, o.hugepages = nil, nil
	return pages && reflect.DeepEqual(v, o)
}

// Limits of the kernel.
const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000 // microseconds
)

func shares(cpu *resource.Quantity) int64 {
	return min(max(cpu.MilliValue()*1024/1000, minShares), maxShares)
}

// weight is how cgroup v2 says shares.
func weight(shares int64) int64 { return 1 + (shares-minShares)*9999/(maxShares-minShares) }

// unweight is the least number of shares that has this weight.
func unweight(weight int64) int64 {
	return minShares + ((weight-1)*(maxShares-minShares)+9998)/9999
}

func quota(cpu *resource.Quantity, period int64) int64 {
	return max(cpu.MilliValue()*period/1000, minQuota)
}

// classOf is the class that was told of a pod, else that of its spec: it never changes while the pod lives.
func classOf(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return podspec.QOS(pod)
}

// podValues are what a pod's cgroup is to have. A limit is one only if all containers have it, or the pod as a whole.
func (c *Config) podValues(pod *v1.Pod) values {
	v := values{shares: minShares, quota: unlimited, period: c.Period.Microseconds(), memory: unlimited, pids: unlimited}
	if c.PodPids > 0 {
		v.pids = c.PodPids
	}
	requests, limits := podspec.Requests(pod), podspec.Limits(pod)
	v.hugepages = hugepages(requests)
	v.keep = c.keeps(pod)
	if classOf(pod) == v1.PodQOSBestEffort {
		return v
	}
	v.shares = shares(requests.Cpu())
	if !c.NoQuota && podspec.Limited(pod, v1.ResourceCPU) {
		v.quota = quota(limits.Cpu(), v.period)
	}
	if podspec.Limited(pod, v1.ResourceMemory) {
		v.memory = limits.Memory().Value()
		v.high = c.high(pod, requests.Memory().Value(), v.memory)
	}
	return v
}

// high is for a pod that has sizes as a whole: its containers without a limit of their own are slowed down by nothing else.
func (c *Config) high(pod *v1.Pod, request, limit int64) int64 {
	if c.Throttle == 0 || !podspec.HasPodLevel(pod.Spec.Resources) {
		return 0
	}
	return cmp.Or(podspec.Throttle(request, limit, c.Throttle), unlimited)
}

// hugepages are the limits by size as the kernel names them, such as 2MB.
func hugepages(requests v1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for name, q := range requests {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			if s := pageSize(size); s != "" {
				out[s] = q.Value()
			}
		}
	}
	return out
}

func pageSize(size string) string {
	q, err := resource.ParseQuantity(size)
	if err != nil {
		return ""
	}
	n := q.Value()
	for _, unit := range []string{"B", "KB", "MB"} {
		if n%1024 != 0 {
			return resource.NewQuantity(n, resource.DecimalExponent).String() + unit
		}
		n /= 1024
	}
	return resource.NewQuantity(n, resource.DecimalExponent).String() + "GB"
}

// keeps is what is kept for pods; nothing takes back what was, before Reserve was turned off.
func (c *Config) keeps(pods ...*v1.Pod) *keep {
	var k keep
	for _, p := range pods {
		if !c.Reserve {
			break
		}
		requests := podspec.Requests(p)
		switch classOf(p) {
		case v1.PodQOSGuaranteed:
			k.min += requests.Memory().Value()
		case v1.PodQOSBurstable:
			k.low += requests.Memory().Value()
		case v1.PodQOSBestEffort: // asks for none
		}
	}
	return &k
}

// tierValues are those of the cgroup of a class: the burstable together weigh what they ask for, the others next to nothing.
func (c *Config) tierValues(class string, pods []*v1.Pod) values {
	v := values{shares: minShares, keep: &keep{}}
	if class != burstable {
		return v
	}
	var cpu resource.Quantity
	for _, p := range pods {
		if classOf(p) == v1.PodQOSBurstable {
			requests := podspec.Requests(p)
			cpu.Add(*requests.Cpu())
		}
	}
	v.shares, v.keep.low = shares(&cpu), c.keeps(pods...).low
	return v
}

// rootValues are those of all pods together.
func rootValues(allocatable v1.ResourceList) values {
	var v values
	if q, ok := allocatable[v1.ResourceCPU]; ok {
		v.shares = shares(&q)
	}
	if q, ok := allocatable[v1.ResourceMemory]; ok {
		v.memory = q.Value()
	}
	if q, ok := allocatable["pid"]; ok {
		v.pids = q.Value()
	}
	v.hugepages = hugepages(allocatable)
	return v
}

// raised is has, but for what wants has more of.
func raised(has, wants values) values {
	more := func(a, b int64) int64 {
		if a == unlimited || b == unlimited {
			return unlimited
		}
		return max(a, b)
	}
	out := wants
	out.shares, out.memory, out.pids = max(has.shares, wants.shares), more(has.memory, wants.memory), more(has.pids, wants.pids)
	if wants.high != 0 {
		out.high = more(has.high, wants.high)
	}
	if has.period == wants.period {
		out.quota = more(has.quota, wants.quota)
	}
	return out
}
