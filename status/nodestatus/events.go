package nodestatus

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
)

// transitions are the events between two versions of a node, without the object they are about.
func transitions(from, to *v1.Node) []observe.Event {
	var out []observe.Event
	now := func(reason string) {
		out = append(out, observe.Event{Reason: reason, Message: fmt.Sprintf("Node %s status is now: %s", to.Name, reason)})
	}
	if was, is := from.Status.NodeInfo.BootID, to.Status.NodeInfo.BootID; was != "" && is != was {
		out = append(out, observe.Event{
			Warning: true, Reason: "Rebooted",
			Message: fmt.Sprintf("Node %s has been rebooted, boot id: %s", to.Name, is),
		})
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		was, known := from.Status.Capacity[name]
		if is, ok := to.Status.Capacity[name]; known && ok && was.Cmp(is) != 0 {
			out = append(out, observe.Event{
				Reason:  "NodeCapacityChanged",
				Message: fmt.Sprintf("Node %s has another capacity of %s now: %s, before: %s", to.Name, name, is.String(), was.String()),
			})
		}
	}
	for _, p := range pressures() {
		was, is := condition(from, p.kind), condition(to, p.kind)
		switch {
		case is == nil || was != nil && was.Status == is.Status:
		case is.Status == v1.ConditionTrue:
			now(p.eventUnder)
		case is.Status == v1.ConditionFalse:
			now(p.eventFree)
		}
	}
	if was, is := condition(from, v1.NodeReady), condition(to, v1.NodeReady); was != nil && is != nil && was.Status != is.Status {
		if is.Status == v1.ConditionTrue {
			now("NodeReady")
		} else {
			now("NodeNotReady")
		}
	}
	return out
}

// tell gives the events of a delivered change.
func (r *Reporter) tell(from, to *v1.Node) {
	for _, e := range transitions(from, to) {
		r.event(e)
	}
	if was, is := condition(from, v1.NodeReady), condition(to, v1.NodeReady); is != nil && (was == nil || was.Status != is.Status) {
		r.log.Info("node condition changed", "condition", "Ready", "status", is.Status, "reason", is.Reason, "message", is.Message)
	}
	if was, is := addresses(from), addresses(to); was != is && was != "" {
		r.log.Info("node addresses changed", "addresses", is, "before", was)
	}
}

// schedulable tells when somebody cordoned or uncordoned the node.
func (r *Reporter) schedulable(node *v1.Node) {
	if r.unschedulable == node.Spec.Unschedulable {
		return
	}
	r.unschedulable = node.Spec.Unschedulable
	reason := "NodeSchedulable"
	if r.unschedulable {
		reason = "NodeNotSchedulable"
	}
	r.event(observe.Event{Reason: reason, Message: fmt.Sprintf("Node %s status is now: %s", r.cfg.Name, reason)})
}
