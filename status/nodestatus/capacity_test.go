package nodestatus

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// text shows a list as "cpu=4 memory=8Gi".
func text(l v1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		q := l[name]
		out = append(out, string(name)+"="+q.String())
	}
	return strings.Join(out, " ")
}

func machine(m Machine) func() (Machine, error) { return func() (Machine, error) { return m, nil } }

func TestCapacity(t *testing.T) {
	four := machine(Machine{Cores: 4, Memory: 8 << 30})
	storage := func() (int64, error) { return 100e9, nil }
	for _, c := range []struct {
		rule             string
		sizes            Sizes
		old              v1.NodeStatus
		capacity, allows string
	}{
		{
			rule: "all of the machine, 110 pods", sizes: Sizes{Machine: four},
			capacity: "cpu=4 memory=8Gi pods=110", allows: "cpu=4 memory=8Gi pods=110",
		},
		{
			rule: "pods by cores", sizes: Sizes{Machine: four, PodsPerCore: 10, MaxPods: 110},
			capacity: "cpu=4 memory=8Gi pods=40", allows: "cpu=4 memory=8Gi pods=40",
		},
		{
			rule: "pods by cores, at most max", sizes: Sizes{Machine: four, PodsPerCore: 100, MaxPods: 250},
			capacity: "cpu=4 memory=8Gi pods=250", allows: "cpu=4 memory=8Gi pods=250",
		},
		{
			rule: "reserved twice and the thresholds, a percentage rounded down",
			sizes: Sizes{
				Machine: four, Storage: storage, KubeReserved: list("cpu", "100m", "memory", "1Gi", "pid", "1000"),
				SystemReserved: list("cpu", "200m", "ephemeral-storage", "1G"),
				EvictionHard:   map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%"},
			},
			capacity: "cpu=4 ephemeral-storage=100G memory=8Gi pods=110",
			allows:   "cpu=3700m ephemeral-storage=88999999851 memory=7068Mi pods=110",
		},
		{
			rule: "a threshold that is off", sizes: Sizes{Machine: four, EvictionHard: map[string]string{"memory.available": "0%"}},
			capacity: "cpu=4 memory=8Gi pods=110", allows: "cpu=4 memory=8Gi pods=110",
		},
		{
			rule: "never below zero", sizes: Sizes{Machine: four, SystemReserved: list("cpu", "5", "memory", "9Gi")},
			capacity: "cpu=4 memory=8Gi pods=110", allows: "cpu=0 memory=0 pods=110",
		},
		{
			rule:     "huge pages of each size, their memory is nobody else's",
			sizes:    Sizes{Machine: machine(Machine{Cores: 4, Memory: 8 << 30, HugePages: map[int64]int64{2 << 20: 512, 1 << 30: 2, 64 << 10: 0}})},
			capacity: "cpu=4 hugepages-1Gi=2Gi hugepages-2Mi=1Gi hugepages-64Ki=0 memory=8Gi pods=110",
			allows:   "cpu=4 hugepages-1Gi=2Gi hugepages-2Mi=1Gi hugepages-64Ki=0 memory=5Gi pods=110",
		},
		{
			rule:  "a size of huge pages the kernel no longer has goes, what others put there stays",
			sizes: Sizes{Machine: four},
			old: v1.NodeStatus{
				Capacity:    list("hugepages-2Mi", "1Gi", "example.org/a", "2", "cpu", "1"),
				Allocatable: list("hugepages-2Mi", "1Gi", "example.org/a", "2", "example.org/gone", "1"),
			},
			capacity: "cpu=4 example.org/a=2 memory=8Gi pods=110", allows: "cpu=4 example.org/a=2 memory=8Gi pods=110",
		},
		{
			rule: "devices: all of them, the healthy ones, zero of those whose plugin is gone",
			sizes: Sizes{Machine: four, Devices: func() (v1.ResourceList, v1.ResourceList, []v1.ResourceName) {
				return list("x.org/gpu", "4"), list("x.org/gpu", "3"), []v1.ResourceName{"x.org/fpga"}
			}},
			old:      v1.NodeStatus{Capacity: list("x.org/fpga", "2"), Allocatable: list("x.org/fpga", "2")},
			capacity: "cpu=4 memory=8Gi pods=110 x.org/fpga=0 x.org/gpu=4", allows: "cpu=4 memory=8Gi pods=110 x.org/fpga=0 x.org/gpu=3",
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			set, err := Capacity(c.sizes)
			if err != nil {
				t.Fatal(err)
			}
			n := &v1.Node{Status: c.old}
			for range 2 { // the second time changes nothing
				if err := set(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				if got := text(n.Status.Capacity); got != c.capacity {
					t.Errorf("capacity\n%s, want\n%s", got, c.capacity)
				}
				if got := text(n.Status.Allocatable); got != c.allows {
					t.Errorf("allocatable\n%s, want\n%s", got, c.allows)
				}
			}
		})
	}
}

func TestCapacityOfAMachineThatCannotBeRead(t *testing.T) {
	bad := errors.New("no /proc")
	set, err := Capacity(Sizes{Machine: func() (Machine, error) { return Machine{}, bad }})
	if err != nil {
		t.Fatal(err)
	}
	n := &v1.Node{Status: v1.NodeStatus{Capacity: list("cpu", "2")}}
	if err := set(t.Context(), n); !errors.Is(err, bad) || text(n.Status.Capacity) != "cpu=2" {
		t.Errorf("%v, capacity %s", err, text(n.Status.Capacity))
	}
	set, err = Capacity(Sizes{Machine: machine(Machine{Cores: 1, Memory: 1 << 30}), Storage: func() (int64, error) { return 0, bad }})
	if err != nil {
		t.Fatal(err)
	}
	if err := set(t.Context(), n); !errors.Is(err, bad) || text(n.Status.Capacity) != "cpu=1 memory=1Gi pods=110" {
		t.Errorf("%v, capacity %s: what can be read is set", err, text(n.Status.Capacity))
	}
}

func TestCapacityRefuses(t *testing.T) {
	for _, text := range []string{"0", "-1Mi", "101%", "-1%", "NaN%", "x%", "", "%", "1Zi"} {
		_, err := Capacity(Sizes{Machine: machine(Machine{}), EvictionHard: map[string]string{"memory.available": text}})
		if err == nil || !strings.Contains(err.Error(), "evictionHard: memory.available") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Capacity(Sizes{}); err == nil {
		t.Error("no machine: no error")
	}
}

func TestFits(t *testing.T) {
	s := Sizes{KubeReserved: list("memory", "5Gi", "cpu", "1"), SystemReserved: list("memory", "5Gi")}
	err := s.Fits(list("memory", "8Gi", "cpu", "4"))
	if err == nil || !strings.Contains(err.Error(), "memory: 10Gi is kept back from pods, but there is only 8Gi") || strings.Contains(err.Error(), "cpu") {
		t.Error(err)
	}
	if err := s.Fits(list("memory", "10Gi", "cpu", "1")); err != nil {
		t.Error(err)
	}
	s.EvictionHard = map[string]string{"memory.available": "1Mi"}
	if err := s.Fits(list("memory", "10Gi", "cpu", "1")); err == nil || !strings.Contains(err.Error(), "evictionHard") {
		t.Errorf("with a threshold: %v", err)
	}
}

func TestParseReserved(t *testing.T) {
	got, err := ParseReserved(map[string]string{"cpu": "0.1004", "memory": "1Gi", "ephemeral-storage": "1G", "pid": "100"})
	if err != nil || text(got) != "cpu=100m ephemeral-storage=1G memory=1Gi pid=100" {
		t.Error(text(got), err)
	}
	for key, value := range map[string]string{"pods": "1", "cpu": "-1", "memory": "much", "nvidia.com/gpu": "1"} {
		if _, err := ParseReserved(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: %v", key, value, err)
		}
	}
}

func FuzzThreshold(f *testing.F) {
	for _, s := range []string{"100Mi", "10%", "0%", "100%", "1e3", "NaN%", "+Inf%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		threshold, err := parseThreshold(s)
		if err != nil {
			return
		}
		all := resource.MustParse("8Gi")
		if q := threshold.of(all); q.Sign() < 0 || threshold.part > 1 || threshold.part < 0 {
			t.Errorf("%q keeps back %s of %s", s, q.String(), all.String())
		}
	})
}
