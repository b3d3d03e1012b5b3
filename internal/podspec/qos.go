package podspec

import (
	v1 "k8s.io/api/core/v1"
)

// QOS is the quality of service class of a pod: that of its status when it has one, else worked out from its requests
// and limits of CPU and memory.
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	var all []v1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil {
		all = append(all, *r)
	} else {
		for _, c := range pod.Spec.InitContainers {
			all = append(all, c.Resources)
		}
		for _, c := range pod.Spec.Containers {
			all = append(all, c.Resources)
		}
	}
	any, guaranteed := false, len(all) > 0
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			any = any || !request.IsZero() || !limit.IsZero()
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !any:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
