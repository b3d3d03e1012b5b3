package admit

import (
	"cmp"
	"context"
	"fmt"
	goruntime "runtime"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Platform refuses pods for another operating system, and those that ask for what the container runtime cannot do.
type Platform struct {
	OS   string          // of this node; empty means the one this program was built for
	Node func() *v1.Node // nil, or giving nil: what depends on the node passes
}

// Admit refuses with PodOSSelectorNodeLabelDoesNotMatch, PodOSNotSupported or SupplementalGroupsPolicyNotSupported.
func (p Platform) Admit(_ context.Context, pod *v1.Pod, _ []*v1.Pod) error {
	os := cmp.Or(p.OS, goruntime.GOOS)
	if want, ok := pod.Labels[v1.LabelOSStable]; ok && want != os {
		return refuse("PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `%s` label doesn't match node label", v1.LabelOSStable)
	}
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != os {
		return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
	}
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	node := known(p.Node)
	if node == nil {
		return nil
	}
	if f := node.Status.Features; f == nil || f.SupplementalGroupsPolicy == nil || !*f.SupplementalGroupsPolicy {
		return refuse("SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=%s is not supported in this node", v1.SupplementalGroupsPolicyStrict)
	}
	return nil
}

// known is the node, nil when nobody knows it.
func known(node func() *v1.Node) *v1.Node {
	if node == nil {
		return nil
	}
	return node()
}

func refuse(reason, format string, args ...any) error {
	return &runtime.Rejection{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
