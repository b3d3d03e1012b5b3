package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Sizes says how much there is for pods. Machine is required; every other field works at zero.
type Sizes struct {
	Machine func() (Machine, error) // asked in each round: it may answer from memory

	MaxPods     int                   // 0 means 110
	PodsPerCore int                   // 0: no limit by cores
	Storage     func() (int64, error) // bytes of the file system the root directory lies on; nil: local storage is not counted

	// Kept back from pods: cpu, memory, ephemeral-storage, pid. See [ParseReserved].
	KubeReserved, SystemReserved v1.ResourceList

	// EvictionHard are the thresholds by signal as a configuration file has them; those of memory.available and
	// nodefs.available are kept back too.
	EvictionHard map[string]string

	// Devices says what device plugins offer: all of it, the healthy part, and resources whose plugin is gone for good.
	// nil: no plugins.
	Devices func() (capacity, allocatable v1.ResourceList, removed []v1.ResourceName)
}

// Capacity sets capacity and allocatable. A capacity that others put on the node stays. The error is a threshold or a
// reservation that makes no sense.
//
// What the machine has is looked at in each round: memory or CPUs that come or go change the node at once. What is
// allocatable never goes below zero, and pods that run are left alone.
func Capacity(s Sizes) (Setter, error) {
	thresholds, err := s.thresholds()
	if err != nil {
		return nil, err
	}
	if s.Machine == nil {
		return nil, errors.New("nodestatus: Sizes.Machine is required")
	}
	if s.MaxPods == 0 {
		s.MaxPods = 110
	}
	return func(_ context.Context, node *v1.Node) error { return s.set(node, thresholds) }, nil
}

// thresholds are those of EvictionHard that are kept back.
func (s Sizes) thresholds() (map[v1.ResourceName]threshold, error) {
	out := map[v1.ResourceName]threshold{}
	for signal, name := range map[string]v1.ResourceName{"memory.available": v1.ResourceMemory, "nodefs.available": v1.ResourceEphemeralStorage} {
		text, ok := s.EvictionHard[signal]
		if !ok {
			continue
		}
		t, err := parseThreshold(text)
		if err != nil {
			return nil, fmt.Errorf("evictionHard: %s: %w", signal, err)
		}
		out[name] = t
	}
	return out, nil
}

func (s Sizes) set(node *v1.Node, thresholds map[v1.ResourceName]threshold) error {
	m, err := s.Machine()
	if err != nil {
		return fmt.Errorf("look at the machine: %w", err)
	}
	own := s.capacity(m)
	var failed error
	if s.Storage != nil {
		bytes, err := s.Storage()
		if err != nil {
			failed = fmt.Errorf("measure the file system of the root directory: %w", err)
		} else {
			own[v1.ResourceEphemeralStorage] = *resource.NewQuantity(bytes, resource.DecimalSI)
		}
	}
	var healthy v1.ResourceList
	if s.Devices != nil {
		all, good, removed := s.Devices()
		healthy = good
		maps.Copy(own, all)
		for _, name := range removed {
			own[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
	st := &node.Status
	if st.Capacity == nil {
		st.Capacity = v1.ResourceList{}
	}
	maps.DeleteFunc(st.Capacity, func(name v1.ResourceName, _ resource.Quantity) bool {
		_, ok := own[name]
		return isHugePages(name) && !ok
	})
	maps.Copy(st.Capacity, own)
	st.Allocatable = allocatable(st.Capacity, s.reserved(st.Capacity, thresholds), healthy, st.Allocatable)
	return failed
}

// capacity is what the machine itself has.
func (s Sizes) capacity(m Machine) v1.ResourceList {
	pods := s.MaxPods
	if s.PodsPerCore > 0 {
		pods = min(m.Cores*s.PodsPerCore, s.MaxPods)
	}
	c := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(m.Cores)*1000, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(int64(pods), resource.DecimalSI),
	}
	for size, pages := range m.HugePages {
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		c[v1.ResourceName(name)] = *resource.NewQuantity(size*pages, resource.BinarySI)
	}
	return c
}

// reserved is what is kept back of a capacity.
func (s Sizes) reserved(capacity v1.ResourceList, thresholds map[v1.ResourceName]threshold) v1.ResourceList {
	out := v1.ResourceList{}
	for name, all := range capacity {
		kept := *resource.NewQuantity(0, resource.DecimalSI)
		kept.Add(s.SystemReserved[name])
		kept.Add(s.KubeReserved[name])
		if t, ok := thresholds[name]; ok {
			kept.Add(t.of(all))
		}
		if !kept.IsZero() {
			out[name] = kept
		}
	}
	return out
}

// allocatable is what pods may have: the capacity without what is reserved, of devices the healthy ones, and of memory
// nothing that is set aside for huge pages. Old entries of resources that are not extended ones stay.
func allocatable(capacity, reserved, healthy, old v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range old {
		if !isExtended(name) && !isHugePages(name) {
			out[name] = q
		}
	}
	for name, all := range capacity {
		out[name] = lessBy(all, reserved[name])
	}
	maps.Copy(out, healthy)
	for name, all := range capacity {
		if isHugePages(name) {
			out[v1.ResourceMemory] = lessBy(out[v1.ResourceMemory], all)
		}
	}
	return out
}

// lessBy is a-b, at least zero.
func lessBy(a, b resource.Quantity) resource.Quantity {
	a = a.DeepCopy()
	a.Sub(b)
	if a.Sign() < 0 {
		a.Set(0)
	}
	return a
}

// Fits says of what more is kept back than there is: a node like that can run nothing, and is better not started. The
// capacity is that of a node after the setter.
func (s Sizes) Fits(capacity v1.ResourceList) error {
	thresholds, err := s.thresholds()
	if err != nil {
		return err
	}
	var problems []error
	for name, kept := range s.reserved(capacity, thresholds) {
		if all := capacity[name]; kept.Cmp(all) > 0 {
			problems = append(problems, fmt.Errorf("%s: %s is kept back from pods, but there is only %s: lower kubeReserved, systemReserved or evictionHard",
				name, kept.String(), all.String()))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// ParseReserved reads kubeReserved or systemReserved of a configuration file.
func ParseReserved(m map[string]string) (v1.ResourceList, error) {
	out := v1.ResourceList{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name := v1.ResourceName(key)
		switch name {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "pid":
		default:
			return nil, fmt.Errorf("cannot reserve %q: only cpu, memory, ephemeral-storage and pid", key)
		}
		q, err := resource.ParseQuantity(m[key])
		switch {
		case err != nil:
			return nil, fmt.Errorf("reserved %s %q: %w", key, m[key], err)
		case q.Sign() < 0:
			return nil, fmt.Errorf("reserved %s %q is negative", key, m[key])
		case name == v1.ResourceCPU:
			q.SetMilli((q.ScaledValue(resource.Micro) + 500) / 1000)
		}
		out[name] = q
	}
	return out, nil
}

// threshold of a hard eviction: an amount, or a part of the capacity.
type threshold struct {
	amount resource.Quantity
	part   float32
}

func (t threshold) of(capacity resource.Quantity) resource.Quantity {
	if t.part == 0 {
		return t.amount
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*float64(t.part)), resource.BinarySI)
}

func parseThreshold(text string) (threshold, error) {
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		q, err := resource.ParseQuantity(text)
		if err == nil && q.Sign() <= 0 {
			err = errors.New("must be more than zero")
		}
		if err != nil {
			return threshold{}, fmt.Errorf("threshold %q: %w", text, err)
		}
		return threshold{amount: q}, nil
	}
	f, err := strconv.ParseFloat(percent, 32)
	switch {
	case err != nil:
		return threshold{}, fmt.Errorf("threshold %q: %w", text, err)
	case !(f >= 0 && f <= 100):
		return threshold{}, fmt.Errorf("threshold %q is not between 0%% and 100%%", text)
	case text == "0%" || text == "100%": // the way to switch one off
		return threshold{}, nil
	}
	return threshold{part: float32(f) / 100}, nil
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isExtended says that a resource is none of Kubernetes' own: a device, or what an administrator put there.
func isExtended(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}
