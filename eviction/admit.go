package eviction

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// admits says whether a pod may start on a node with these conditions.
func admits(p *v1.Pod, pressure []v1.NodeConditionType) bool {
	if len(pressure) == 0 || podspec.Critical(p) {
		return true
	}
	if !slices.Equal(pressure, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
		return false // what it would use of a disk nobody knows beforehand
	}
	return podspec.QOS(p) != v1.PodQOSBestEffort || slices.ContainsFunc(p.Spec.Tolerations, toleratesMemoryPressure)
}

// toleratesMemoryPressure says that a toleration is for the taint a node under memory pressure gets.
func toleratesMemoryPressure(t v1.Toleration) bool {
	if t.Effect != "" && t.Effect != v1.TaintEffectNoSchedule {
		return false
	}
	switch t.Operator {
	case v1.TolerationOpExists:
		return t.Key == "" || t.Key == v1.TaintNodeMemoryPressure
	case v1.TolerationOpEqual, "":
		return t.Key == v1.TaintNodeMemoryPressure && t.Value == ""
	default:
		return false
	}
}
