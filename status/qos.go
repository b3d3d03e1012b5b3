package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// QOS is the class of a pod by its spec: Guaranteed when every container limits cpu and memory and requests as much,
// BestEffort when none says anything about them, else Burstable. Requests of the pod itself, where it has them, decide
// alone. A class that the API server wrote into the pod's status is not looked at.
func QOS(pod *v1.Pod) v1.PodQOSClass { return podspec.QOS(pod) }
