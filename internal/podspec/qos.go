package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// QOS is the quality of service class of a pod by its spec: Guaranteed when every container limits CPU and memory and
// requests as much, BestEffort when none says anything about them, else Burstable. Requests of the pod itself, where it
// has them, decide alone. The class in the pod's status is not looked at.
func QOS(pod *v1.Pod) v1.PodQOSClass {
	all := make([]v1.ResourceRequirements, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	if r := pod.Spec.Resources; HasPodLevel(r) {
		all = append(all, *r)
	} else {
		for i := range pod.Spec.InitContainers {
			all = append(all, pod.Spec.InitContainers[i].Resources)
		}
		for i := range pod.Spec.Containers {
			all = append(all, pod.Spec.Containers[i].Resources)
		}
	}
	said, guaranteed := false, len(all) > 0
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			said = said || !request.IsZero() || !limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
		}
	}
	switch {
	case !said:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// PodLevel says whether a resource may be asked for by a pod as a whole (KEP-2837).
func PodLevel(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// HasPodLevel says that a pod as a whole asks for something it may ask for.
func HasPodLevel(r *v1.ResourceRequirements) bool {
	if r == nil {
		return false
	}
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			if PodLevel(name) {
				return true
			}
		}
	}
	return false
}
