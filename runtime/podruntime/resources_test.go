package podruntime

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// list is a list of resources: cpu, 1, memory, 2Gi.
func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func asking(requests, limits v1.ResourceList) v1.Container {
	return v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func podOf(containers ...v1.Container) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: containers}}
}

const gib = 1 << 30

// v2 is a machine of 8 GiB with 4 GiB of swap.
func v2(p Policy) sizing {
	return sizing{Policy: p, kernel: Kernel{CgroupV2: true, SwapControl: true, Swap: 4 * gib}, memory: 8 * gib, allocatable: 7 * gib}
}

func TestUnifiedResources(t *testing.T) {
	none := map[string]string{"memory.oom.group": "1", "memory.swap.max": "0", "memory.min": "0", "memory.low": "0"}
	with := func(pairs ...string) map[string]string {
		out := maps.Clone(none)
		for i := 0; i < len(pairs); i += 2 {
			if out[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
				delete(out, pairs[i])
			}
		}
		return out
	}
	burstable := podOf(asking(list("memory", "1Gi"), list("memory", "2Gi")))
	guaranteed := podOf(asking(list("memory", "1Gi", "cpu", "1"), list("memory", "1Gi", "cpu", "1")))
	best := podOf(asking(nil, nil))
	critical := burstable.DeepCopy()
	critical.Spec.Priority = new(int32(2_000_000_000))
	static := burstable.DeepCopy()
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	full := podOf(asking(list("memory", "2Gi"), list("memory", "2Gi")), asking(nil, nil))
	greedy := podOf(asking(list("memory", "16Gi"), nil))
	level := podOf(asking(list("memory", "1Gi"), nil))
	level.Spec.Resources = &v1.ResourceRequirements{Requests: list("memory", "2Gi"), Limits: list("memory", "4Gi")}
	noControl := v2(Policy{LimitedSwap: true})
	noControl.kernel.SwapControl = false
	for _, row := range []struct {
		rule string
		s    sizing
		pod  *v1.Pod
		want map[string]string
	}{
		{"nobody swaps, all of a container is killed at once", v2(Policy{}), burstable, none},
		{"one process is killed", v2(Policy{KillSingly: true}), burstable, with("memory.oom.group", "")},
		{"without control of swap nothing is said of it", noControl, burstable, with("memory.swap.max", "")},
		{"an eighth of the memory is an eighth of the swap", v2(Policy{LimitedSwap: true}), burstable, with("memory.swap.max", fmt.Sprint(gib/2))},
		{"guaranteed pods do not swap", v2(Policy{LimitedSwap: true}), guaranteed, none},
		{"nor those who asked for nothing", v2(Policy{LimitedSwap: true}), best, none},
		{"nor critical ones", v2(Policy{LimitedSwap: true}), critical, none},
		{"nor those from files", v2(Policy{LimitedSwap: true}), static, none},
		{"nor containers that have all they may", v2(Policy{LimitedSwap: true}), full, none},
		{"nor those who ask for more than there is", v2(Policy{LimitedSwap: true}), greedy, none},
		{"what burstable pods ask for is protected", v2(Policy{Reservation: true}), burstable, with("memory.min", "", "memory.low", fmt.Sprint(gib))},
		{"what guaranteed pods ask for is kept", v2(Policy{Reservation: true}), guaranteed, with("memory.low", "", "memory.min", fmt.Sprint(gib))},
		{"who asks for nothing is kept nothing", v2(Policy{Reservation: true}), best, none},
		{"between request and limit it gets slower", v2(Policy{Throttle: 0.9}), burstable, with("memory.high", fmt.Sprint(498073*4096))},
		{"without a limit what the node has is the limit", v2(Policy{Throttle: 0.5}), best, with("memory.high", fmt.Sprint(7*gib/2))},
		{"where request and limit are the same there is no between", v2(Policy{Throttle: 0.9}), guaranteed, none},
		{"nor where the pod has the limit", v2(Policy{Throttle: 0.9}), level, none},
	} {
		t.Run(row.rule, func(t *testing.T) {
			got := row.s.container(row.pod, &row.pod.Spec.Containers[0])
			if diff := cmp.Diff(row.want, got.Unified); diff != "" {
				t.Error(diff)
			}
			if got.MemorySwap != 0 {
				t.Errorf("the swap limit of cgroup v1: %d", got.MemorySwap)
			}
		})
	}
}

func TestSwapOnCgroupV1(t *testing.T) {
	s := sizing{kernel: Kernel{SwapControl: true, Swap: gib}, memory: 8 * gib, Policy: Policy{LimitedSwap: true}}
	for _, row := range []struct {
		rule string
		pod  *v1.Pod
		want int64
	}{
		{"memory and swap together are no more than memory", podOf(asking(list("memory", "1Gi"), list("memory", "2Gi"))), 2 * gib},
		{"without a limit there is none", podOf(asking(list("memory", "1Gi"), nil)), 0},
	} {
		got := s.container(row.pod, &row.pod.Spec.Containers[0])
		if got.MemorySwap != row.want || got.Unified != nil {
			t.Errorf("%s: %d, %v", row.rule, got.MemorySwap, got.Unified)
		}
	}
	s.kernel.SwapControl = false
	if got := s.container(podOf(asking(nil, list("memory", "2Gi"))), new(asking(nil, list("memory", "2Gi")))); got.MemorySwap != 0 {
		t.Errorf("without control of swap: %d", got.MemorySwap)
	}
}

func TestCPUQuota(t *testing.T) {
	c := asking(nil, list("cpu", "1500m"))
	for _, row := range []struct {
		rule          string
		p             Policy
		period, quota int64
	}{
		{"100 ms", Policy{}, 100_000, 150_000},
		{"another period", Policy{CPUPeriod: 5000}, 5000, 7500},
		{"none", Policy{NoCPUQuota: true, CPUPeriod: 5000}, 0, 0},
	} {
		if got := (sizing{Policy: row.p}).container(podOf(c), &c); got.CPUPeriod != row.period || got.CPUQuota != row.quota {
			t.Errorf("%s: %d of %d", row.rule, got.CPUQuota, got.CPUPeriod)
		}
	}
	small := asking(nil, list("cpu", "1m"))
	if got := (sizing{}).container(podOf(small), &small); got.CPUQuota != 1000 || got.CPUShares != 2 {
		t.Errorf("the least there is: quota %d, shares %d", got.CPUQuota, got.CPUShares)
	}
	big := asking(list("cpu", "1k"), nil)
	if got := (sizing{}).container(podOf(big), &big); got.CPUShares != 262144 {
		t.Errorf("the most there is: shares %d", got.CPUShares)
	}
}

func TestHugepages(t *testing.T) {
	s := sizing{kernel: Kernel{Hugepages: []string{"1GB", "2MB", "64KB"}}}
	level := podOf(asking(nil, list("hugepages-2Mi", "4Mi")), asking(nil, nil))
	level.Spec.Resources = &v1.ResourceRequirements{Limits: list("hugepages-2Mi", "8Mi", "hugepages-1Gi", "2Gi")}
	for _, row := range []struct {
		rule string
		pod  *v1.Pod
		at   int
		want map[string]uint64
	}{
		{"none but what is said", podOf(asking(nil, list("hugepages-2Mi", "4Mi"))), 0, map[string]uint64{"1GB": 0, "2MB": 4 << 20, "64KB": 0}},
		{"in the kernel's units", podOf(asking(nil, list("hugepages-64Ki", "128Ki"))), 0, map[string]uint64{"1GB": 0, "2MB": 0, "64KB": 128 << 10}},
		{"sizes this machine has not are not told", podOf(asking(nil, list("hugepages-32Mi", "64Mi"))), 0, map[string]uint64{"1GB": 0, "2MB": 0, "64KB": 0}},
		{"the container's own go before the pod's", level, 0, map[string]uint64{"1GB": 2 << 30, "2MB": 4 << 20, "64KB": 0}},
		{"the pod's are for all", level, 1, map[string]uint64{"1GB": 2 << 30, "2MB": 8 << 20, "64KB": 0}},
	} {
		if diff := cmp.Diff(row.want, s.container(row.pod, &row.pod.Spec.Containers[row.at]).Hugepages); diff != "" {
			t.Errorf("%s: %s", row.rule, diff)
		}
	}
	if got := (sizing{}).container(level, &level.Spec.Containers[0]); got.Hugepages != nil {
		t.Errorf("a machine without huge pages: %v", got.Hugepages)
	}
}

func TestSandboxResources(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	sum := podOf(asking(list("cpu", "100m", "memory", "10Mi"), list("cpu", "1", "memory", "20Mi")), asking(list("cpu", "200m"), list("cpu", "1", "memory", "20Mi")))
	sidecar := sum.DeepCopy()
	side := asking(list("cpu", "300m"), list("cpu", "500m", "memory", "5Mi"))
	side.RestartPolicy = &always
	sidecar.Spec.InitContainers = []v1.Container{side}
	big := sum.DeepCopy()
	big.Spec.InitContainers = []v1.Container{asking(list("cpu", "4"), list("cpu", "8", "memory", "1Gi"))}
	level := big.DeepCopy()
	level.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "250m"), Limits: list("cpu", "500m", "memory", "64Mi")}
	over := sum.DeepCopy()
	over.Spec.Overhead = list("cpu", "250m", "memory", "120Mi")
	limits := podOf(asking(nil, list("cpu", "1")))
	for _, row := range []struct {
		rule           string
		pod            *v1.Pod
		want, overhead runtime.Resources
	}{
		{"the sum", sum, runtime.Resources{CPUShares: 307, CPUQuota: 200_000, Memory: 40 << 20}, runtime.Resources{}},
		{"sidecars are part of it", sidecar, runtime.Resources{CPUShares: 614, CPUQuota: 250_000, Memory: 45 << 20}, runtime.Resources{}},
		{"an init container that needs more", big, runtime.Resources{CPUShares: 4096, CPUQuota: 800_000, Memory: 1 << 30}, runtime.Resources{}},
		{"what the pod says as a whole", level, runtime.Resources{CPUShares: 256, CPUQuota: 50_000, Memory: 64 << 20}, runtime.Resources{}},
		{
			"overhead is told apart", over,
			runtime.Resources{CPUShares: 307, CPUQuota: 200_000, Memory: 40 << 20},
			runtime.Resources{CPUShares: 256, CPUQuota: 25_000, Memory: 120 << 20},
		},
		{"no request is the limit", limits, runtime.Resources{CPUShares: 1024, CPUQuota: 100_000}, runtime.Resources{}},
		{"nothing at all", podOf(asking(nil, nil)), runtime.Resources{CPUShares: 2}, runtime.Resources{}},
	} {
		t.Run(row.rule, func(t *testing.T) {
			period := cmpopts.IgnoreFields(runtime.Resources{}, "CPUPeriod")
			if diff := cmp.Diff(row.want, (sizing{}).sandbox(row.pod), period); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(row.overhead, (sizing{}).overhead(row.pod), period); diff != "" {
				t.Errorf("overhead %s", diff)
			}
		})
	}
	if got := v2(Policy{}).sandbox(sum).Unified; !cmp.Equal(got, map[string]string{"memory.oom.group": "1"}) {
		t.Errorf("a sandbox on cgroup v2: %v", got)
	}
}

func TestOOMScores(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	guaranteed := podOf(asking(list("cpu", "1", "memory", "1Gi"), list("cpu", "1", "memory", "1Gi")))
	burstable := podOf(asking(list("memory", "2Gi"), nil))
	critical := burstable.DeepCopy()
	critical.Spec.Priority, critical.Spec.PriorityClassName = new(int32(2_000_001_000)), "system-node-critical"
	high := critical.DeepCopy()
	high.Spec.PriorityClassName = "my-own"
	file := burstable.DeepCopy()
	file.Annotations, file.Spec.PriorityClassName = map[string]string{"kubernetes.io/config.source": "file"}, "system-node-critical"
	named := burstable.DeepCopy()
	named.Spec.PriorityClassName = "system-node-critical"
	sidecars := podOf(asking(list("memory", "4Gi"), nil), v1.Container{Name: "d", Resources: v1.ResourceRequirements{Requests: list("memory", "2Gi")}})
	side := asking(list("memory", "1Gi"), nil)
	side.Name, side.RestartPolicy = "side", &always
	sidecars.Spec.InitContainers = []v1.Container{side}
	level := podOf(asking(list("memory", "1Gi"), nil), v1.Container{Name: "d"})
	level.Spec.Resources = &v1.ResourceRequirements{Requests: list("memory", "5Gi")}
	less := podOf(asking(list("memory", "2Gi"), nil))
	less.Spec.Resources = &v1.ResourceRequirements{Requests: list("memory", "1Gi")}
	const memory = 8 * gib
	for _, row := range []struct {
		rule   string
		pod    *v1.Pod
		c      *v1.Container
		memory int64
		want   int64
	}{
		{"guaranteed", guaranteed, nil, memory, -997},
		{"nothing asked for", podOf(asking(nil, nil)), nil, memory, 1000},
		{"a quarter of the memory asked for", burstable, nil, memory, 750},
		{"next to nothing asked for is still more than nothing", podOf(asking(list("memory", "1Mi"), nil)), nil, memory, 999},
		{"only CPU asked for", podOf(asking(list("cpu", "1"), nil)), nil, memory, 999},
		{"all of it asked for is not yet guaranteed", podOf(asking(list("memory", "8Gi"), nil)), nil, memory, 3},
		{"more than there is", podOf(asking(list("memory", "80Gi"), nil)), nil, memory, 3},
		{"memory is not known", burstable, nil, 0, 999},
		{"what the node cannot be without", critical, nil, memory, -997},
		{"and comes from a file", file, nil, memory, -997},
		{"a high priority of another class", high, nil, memory, 750},
		{"the class without the priority", named, nil, memory, 750},
		{"a sidecar outlives those it serves", sidecars, &sidecars.Spec.InitContainers[0], memory, 750},
		{"what only the pod asks for is shared", level, nil, memory, 625},
		{"between all", level, &level.Spec.Containers[1], memory, 750},
		{"there is nothing to share", less, nil, memory, 750},
	} {
		if row.c == nil {
			row.c = &row.pod.Spec.Containers[0]
		}
		if got := oomScore(row.pod, row.c, row.memory); got != row.want {
			t.Errorf("%s: %d, want %d", row.rule, got, row.want)
		}
	}
}
