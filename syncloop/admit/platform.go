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
	Node func() *v1.Node // as the API server has it; nil, or giving nil: it is not known

	// Info is the container runtime's, which counts as long as Node is not known: for ever without an API server. It is asked only
	// of pods for which it matters, and is given a second. nil: what the runtime would have to do passes.
	Info func(ctx context.Context) (runtime.Info, error)
}

// Admit refuses with PodOSSelectorNodeLabelDoesNotMatch, PodOSNotSupported or SupplementalGroupsPolicyNotSupported. Another error
// is that the runtime does not answer.
func (p Platform) Admit(ctx context.Context, pod *v1.Pod, _ []*v1.Pod) error {
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
	can, err := p.strict(ctx)
	if err == nil && !can {
		err = refuse("SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=%s is not supported in this node", v1.SupplementalGroupsPolicyStrict)
	}
	return err
}

// strict says that containers can be kept from groups that their images name.
func (p Platform) strict(ctx context.Context) (bool, error) {
	if node := known(p.Node); node != nil {
		f := node.Status.Features
		return f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy, nil
	}
	if p.Info == nil {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, freshWithin)
	defer cancel()
	info, err := p.Info(ctx)
	if err == nil && !info.Ready.OK {
		err = fmt.Errorf("it is not ready: %s", info.Ready.Message)
	}
	if err != nil {
		return false, fmt.Errorf("ask the container runtime what it can do: %w", err)
	}
	return info.GroupsPolicy, nil
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
