package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// preempt refuses a critical pod as long as those run in whose place it is to.
func preempt(pod *v1.Pod, others []*v1.Pod, lacks []shortage) error {
	missing := needs{}
	for _, s := range lacks {
		missing = append(missing, need{s.name, s.requested - (s.capacity - s.used)})
	}
	instead, left := victims(pod, others, missing)
	if len(left) > 0 {
		return refuse("UnexpectedAdmissionError", "Unexpected error while attempting to recover from admission failure: "+
			"preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: %s", left)
	}
	r := lacks[0].refusal()
	r.Instead = instead
	return r
}

// need is an amount of a resource that must become free.
type need struct {
	name   v1.ResourceName
	amount int64
}

type needs []need

// String is what the kubelet writes for a list of them.
func (n needs) String() string {
	var b strings.Builder
	for _, one := range n {
		fmt.Fprintf(&b, "(res: %s, q: %d), ", one.name, one.amount)
	}
	return "[" + b.String() + "]"
}

// candidate is a pod that may be ended, and what that gives back.
type candidate struct {
	uid      types.UID
	requests v1.ResourceList
}

func (c candidate) frees(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, c.requests)
}

// victims are the pods to be ended so that what a critical pod lacks becomes free, the best effort ones first; or what is
// missing though all should end that may. Those of a better class of service are spared before those of a lower one, and it
// is tried to end few, and small ones.
func victims(pod *v1.Pod, others []*v1.Pod, missing needs) (out []types.UID, left needs) {
	var effort, burstable, guaranteed []candidate
	for _, o := range others {
		if !yields(pod, o) {
			continue
		}
		c := candidate{o.UID, requests(o)}
		switch cmp.Or(o.Status.QOSClass, podspec.QOS(o)) {
		case v1.PodQOSGuaranteed:
			guaranteed = append(guaranteed, c)
		case v1.PodQOSBurstable:
			burstable = append(burstable, c)
		case v1.PodQOSBestEffort:
			effort = append(effort, c)
		}
	}
	if left = missing.without(effort, burstable, guaranteed); len(left) > 0 {
		return nil, left
	}
	guaranteed = nearest(guaranteed, missing.without(effort, burstable))
	burstable = nearest(burstable, missing.without(effort, guaranteed))
	effort = nearest(effort, missing.without(burstable, guaranteed))
	for _, c := range slices.Concat(effort, burstable, guaranteed) {
		out = append(out, c.uid)
	}
	return out, nil
}

// yields says that a critical pod may take another's place.
func yields(pod, other *v1.Pod) bool {
	mine, its := pod.Spec.Priority, other.Spec.Priority
	return !podspec.Critical(other) || mine != nil && its != nil && *mine > *its
}

// without is what is still missing once all these have ended.
func (n needs) without(gone ...[]candidate) (left needs) {
	for _, one := range n {
		for _, list := range gone {
			for _, c := range list {
				one.amount -= c.frees(one.name)
			}
		}
		if one.amount > 0 {
			left = append(left, one)
		}
	}
	return left
}

// nearest takes pods, each time the one after which the least is missing, until nothing is. Of equals it takes the smaller,
// of equally small ones the later. Together they must have enough.
func nearest(from []candidate, missing needs) (out []candidate) {
	from = slices.Clone(from)
	for len(missing) > 0 && len(from) > 0 {
		best := 0
		for i := range from {
			if missing.compare(from[i], from[best]) <= 0 {
				best = i
			}
		}
		out = append(out, from[best])
		missing = missing.without(from[best : best+1])
		from = slices.Delete(from, best, best+1)
	}
	return out
}

func (n needs) compare(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(n.distance(a), n.distance(b)),
		cmp.Compare(a.frees(v1.ResourceMemory), b.frees(v1.ResourceMemory)),
		cmp.Compare(a.frees(v1.ResourceCPU), b.frees(v1.ResourceCPU)),
	)
}

// distance is how much is missing after the end of a pod: the sum of the squares of what part of each need stays.
func (n needs) distance(c candidate) (sum float64) {
	for _, one := range n {
		if left := float64(one.amount - c.frees(one.name)); left > 0 {
			part := left / float64(one.amount)
			sum += part * part
		}
	}
	return sum
}
