package status

import (
	v1 "k8s.io/api/core/v1"
)

// QOS is the class of a pod by its spec: Guaranteed when every container limits cpu and memory and requests as much,
// BestEffort when none says anything about them, else Burstable. Requests of the pod itself, where it has them, decide
// alone. A class that the API server wrote into the pod's status is not looked at.
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if podLevel(pod.Spec.Resources) {
		return qosOf(pod.Spec.Resources)
	}
	var class v1.PodQOSClass
	for c := range restartables(pod) {
		if class = worse(class, qosOf(&c.Resources)); class == v1.PodQOSBurstable {
			return class
		}
	}
	if class == "" {
		return v1.PodQOSBestEffort
	}
	return class
}

func qosOf(r *v1.ResourceRequirements) (class v1.PodQOSClass) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		switch {
		case !request.Equal(limit):
			return v1.PodQOSBurstable
		case request.IsZero():
			class = worse(class, v1.PodQOSBestEffort)
		default:
			class = worse(class, v1.PodQOSGuaranteed)
		}
	}
	return class
}

// worse joins the classes of two parts; an empty one says nothing.
func worse(a, b v1.PodQOSClass) v1.PodQOSClass {
	if a == "" || a == b {
		return b
	}
	return v1.PodQOSBurstable
}
