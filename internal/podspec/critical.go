package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// systemCritical is the lowest priority of pods without which a cluster is none.
const systemCritical = 2_000_000_000

// Critical says that a pod is one without which the node or the cluster is none: from a file, or of high priority.
func Critical(pod *v1.Pod) bool {
	_, mirror := pod.Annotations[MirrorAnnotation]
	return Static(pod) || mirror || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// Priority is that of a pod. Of one from a file nobody has filled in what its class is worth: that of the classes each cluster
// has is known.
func Priority(pod *v1.Pod) int32 {
	switch {
	case pod.Spec.Priority != nil:
		return *pod.Spec.Priority
	case !Static(pod):
		return 0
	case pod.Spec.PriorityClassName == "system-cluster-critical":
		return systemCritical
	case pod.Spec.PriorityClassName == nodeCritical:
		return systemCritical + 1000
	}
	return 0
}

const nodeCritical = "system-node-critical"

// NodeCritical says that a pod is one without which the node is none, and is of the class named so.
func NodeCritical(pod *v1.Pod) bool {
	return Critical(pod) && pod.Spec.PriorityClassName == nodeCritical
}

// HugepageSize is the size of huge pages that a resource is an amount of, as the kernel names it: 2MB for hugepages-2Mi. ok
// is false for other resources, and for sizes no kernel has.
func HugepageSize(name v1.ResourceName) (size string, ok bool) {
	said, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return "", false
	}
	q, err := resource.ParseQuantity(said)
	bytes := q.Value()
	if err != nil || bytes <= 0 {
		return "", false
	}
	unit, units := 0, []string{"B", "KB", "MB", "GB", "TB", "PB"}
	for bytes%1024 == 0 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return fmt.Sprint(bytes, units[unit]), bytes <= 1024
}
