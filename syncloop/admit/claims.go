package admit

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Claims refuses pods that claim devices (dynamic resource allocation). It is for an agent that has nobody to prepare them:
// without it such a pod runs, and lacks what it claims.
type Claims struct{}

// Admit refuses with PodFeatureUnsupported. A claim of which the API server says that none was needed does not count.
func (Claims) Admit(_ context.Context, pod *v1.Pod, _ []*v1.Pod) error {
	var names []string
	for _, c := range pod.Spec.ResourceClaims {
		if !needless(pod, c.Name) {
			names = append(names, c.Name)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	if len(names) == 0 {
		return nil
	}
	return refuse("PodFeatureUnsupported", "Pod requires node features that are not available: DynamicResourceAllocation; "+
		"no claimed device can be prepared here (%s): run the pod on a node that has drivers for them", strings.Join(names, ", "))
}

// needless says that a claim was to be made from a template, and that none was made.
func needless(pod *v1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s v1.PodResourceClaimStatus) bool {
		return s.Name == claim && s.ResourceClaimName == nil
	})
}
