package nodestatus

import (
	"cmp"
	"context"
	goruntime "runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// compute makes a node with its status from what all setters say now. base is not changed.
func (r *Reporter) compute(ctx context.Context, base *v1.Node) *v1.Node {
	node := base.DeepCopy()
	setKey(&node.Labels, v1.LabelOSStable, goruntime.GOOS)
	setKey(&node.Labels, v1.LabelArchStable, goruntime.GOARCH)
	for i, set := range r.cfg.Setters {
		r.complain(i, r.apply(ctx, set, node))
	}
	return node
}

// apply runs one setter. One that hangs costs a fifth of the time between two rounds, or a second.
func (r *Reporter) apply(ctx context.Context, set Setter, node *v1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, max(r.cfg.Every/5, time.Second))
	defer cancel()
	return set(ctx, node)
}

// complain logs the error of a setter when it is another one than before.
func (r *Reporter) complain(setter int, err error) {
	was := r.complaints[setter]
	switch {
	case err == nil && was != "":
		r.log.Info("part of the node status can be determined again", "setter", setter, "was", was)
		r.complaints[setter] = ""
	case err != nil && err.Error() != was:
		r.log.Warn("part of the node status cannot be determined; the last good one stands", "setter", setter, "err", err)
		r.complaints[setter] = err.Error()
	}
}

// changed says that two versions of a node differ in something that must be told at once: anything of the status but the
// time of the last heartbeat and the order of conditions, or the labels and annotations that are kept right in each round.
func changed(from, to *v1.Node) bool {
	for _, key := range []string{v1.LabelOSStable, v1.LabelArchStable} {
		if from.Labels[key] != to.Labels[key] {
			return true
		}
	}
	was, is := from.Status, to.Status
	was.Conditions, is.Conditions = withoutHeartbeat(was.Conditions), withoutHeartbeat(is.Conditions)
	return from.Annotations[annotationNodeIP] != to.Annotations[annotationNodeIP] || !equality.Semantic.DeepEqual(was, is)
}

func withoutHeartbeat(conditions []v1.NodeCondition) []v1.NodeCondition {
	out := slices.Clone(conditions)
	for i := range out {
		out[i].LastHeartbeatTime = metav1.Time{}
	}
	slices.SortStableFunc(out, func(a, b v1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	return out
}
