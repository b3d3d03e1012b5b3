package nodestatus

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/observe"
)

const (
	labelOS   = "beta.kubernetes.io/os"
	labelArch = "beta.kubernetes.io/arch"

	annotationAttach = "volumes.kubernetes.io/controller-managed-attach-detach"
)

// register creates the node, or puts an older one right.
func (r *Reporter) register(ctx context.Context) error {
	initial := r.compute(ctx, r.cfg.Initial)
	node, err := r.make(ctx, initial)
	if err != nil {
		return fmt.Errorf("register node %s: %w", r.cfg.Name, err)
	}
	r.uid.Store(string(node.UID))
	fresh := r.cfg.Fresh != nil && r.cfg.Fresh()
	right := Reconcile(initial, node, fresh)
	if !equality.Semantic.DeepEqual(node, right) {
		if err := r.send(ctx, node, right); err != nil {
			return fmt.Errorf("put node %s right, it was registered before: %w", r.cfg.Name, err)
		}
	}
	r.registered, r.before, r.after, r.reported, r.stagger = true, node, right, time.Time{}, 0
	if !changed(node, initial) { // it is the one that was made just now
		r.before, r.reported, r.created = nil, time.Now(), time.Now()
		r.metrics.registration.Record(time.Since(r.began).Seconds())
	}
	r.log.Info("node registered", "node", r.cfg.Name, "uid", node.UID)
	for _, e := range transitions(&v1.Node{}, initial) {
		r.event(e)
	}
	return nil
}

func (r *Reporter) make(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Every)
	defer cancel()
	return r.cfg.Sink.Register(ctx, node)
}

// Reconcile is what a node that exists already must look like for an agent that would have registered initial: the labels
// that are the agent's, the annotation for attaching volumes, huge pages, and with fresh also no extended resources until
// their plugins are back. Taints, provider ID and all that others have put there stay. Neither argument is changed.
func Reconcile(initial, existing *v1.Node, fresh bool) *v1.Node {
	node := existing.DeepCopy()
	for _, key := range defaultLabels() {
		switch value, ok := initial.Labels[key]; {
		case !ok:
		case value == "":
			delete(node.Labels, key)
		default:
			setKey(&node.Labels, key, value)
		}
	}
	if value, ok := initial.Annotations[annotationAttach]; ok {
		setKey(&node.Annotations, annotationAttach, value)
	} else {
		delete(node.Annotations, annotationAttach)
	}
	s := &node.Status
	if s.Capacity == nil {
		s.Capacity = initial.Status.Capacity.DeepCopy()
	}
	if s.Allocatable == nil {
		s.Allocatable = initial.Status.Allocatable.DeepCopy()
	}
	if s.Allocatable == nil {
		s.Allocatable = v1.ResourceList{} // counts as none
	}
	for name := range s.Capacity {
		_, ours := initial.Status.Capacity[name]
		switch {
		case ours:
		case isHugePages(name):
			delete(s.Capacity, name)
			delete(s.Allocatable, name)
		case fresh && isExtended(name):
			s.Capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
			s.Allocatable[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
	return node
}

// defaultLabels are kept right on a node that exists already; all others apply only to a new one.
func defaultLabels() []string {
	return []string{
		v1.LabelHostname, v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone,
		v1.LabelFailureDomainBetaRegion, v1.LabelInstanceTypeStable, v1.LabelInstanceType,
		v1.LabelOSStable, v1.LabelArchStable, v1.LabelWindowsBuild, labelOS, labelArch,
	}
}

func setKey(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

func (r *Reporter) event(e observe.Event) {
	e.About = r.Ref()
	r.cfg.Observe.Event(e)
}
