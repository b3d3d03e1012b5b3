package shutdown

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

const systemCritical = 2_000_000_000 // the least priority of pods the node or cluster needs

// Periods are those of two groups: critical pods get the last part of the total, all others the time before.
func Periods(total, critical time.Duration) map[int32]time.Duration {
	return map[int32]time.Duration{0: total - critical, systemCritical: critical}
}

// group of pods that are ended together.
type group struct {
	priority int32
	period   time.Duration
	pods     []*v1.Pod
}

// plan puts pods into the group with the highest priority that is not above their own, or the lowest there is. Groups without
// pods are left out; the least important comes first.
func plan(pods []*v1.Pod, periods map[int32]time.Duration) []group {
	var groups []group
	for _, p := range slices.Sorted(maps.Keys(periods)) {
		groups = append(groups, group{priority: p, period: periods[p]})
	}
	if len(groups) == 0 {
		return nil
	}
	for _, p := range pods {
		at := 0
		for i, g := range groups {
			if g.priority <= podspec.Priority(p) {
				at = i
			}
		}
		groups[at].pods = append(groups[at].pods, p)
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.pods) == 0 })
}

// grace is the shorter of the pod's own and its group's, a second at least: zero would be the pod's own.
func grace(p *v1.Pod, period time.Duration) time.Duration {
	if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
		period = min(period, podspec.Seconds(*own))
	}
	return max(period, time.Second)
}
