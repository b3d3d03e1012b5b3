package nodestatus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pressure is what a condition of shortage says in its two states.
type pressure struct {
	kind                      v1.NodeConditionType
	reasonUnder, messageUnder string
	reasonFree, messageFree   string
	eventUnder, eventFree     string
}

func pressures() []pressure {
	return []pressure{
		{
			v1.NodeMemoryPressure,
			"KubeletHasInsufficientMemory", "kubelet has insufficient memory available",
			"KubeletHasSufficientMemory", "kubelet has sufficient memory available",
			"NodeHasInsufficientMemory", "NodeHasSufficientMemory",
		},
		{
			v1.NodeDiskPressure,
			"KubeletHasDiskPressure", "kubelet has disk pressure",
			"KubeletHasNoDiskPressure", "kubelet has no disk pressure",
			"NodeHasDiskPressure", "NodeHasNoDiskPressure",
		},
		{
			v1.NodePIDPressure,
			"KubeletHasInsufficientPID", "kubelet has insufficient PID available",
			"KubeletHasSufficientPID", "kubelet has sufficient PID available",
			"NodeHasInsufficientPID", "NodeHasSufficientPID",
		},
	}
}

// Pressure sets MemoryPressure, DiskPressure and PIDPressure: true are those that active names. nil: none ever.
func Pressure(active func() []v1.NodeConditionType) Setter {
	return func(_ context.Context, node *v1.Node) error {
		var under []v1.NodeConditionType
		if active != nil {
			under = active()
		}
		for _, p := range pressures() {
			c := v1.NodeCondition{Type: p.kind, Status: v1.ConditionFalse, Reason: p.reasonFree, Message: p.messageFree}
			if slices.Contains(under, p.kind) {
				c.Status, c.Reason, c.Message = v1.ConditionTrue, p.reasonUnder, p.messageUnder
			}
			setCondition(node, c, time.Now())
		}
		return nil
	}
}

// Ready sets the condition Ready: true when all health functions, asked in this order, have no complaint and the node has
// a capacity of CPU, memory and pods. It belongs behind all setters of capacity and conditions: clients expect it last.
// Health functions answer from memory.
func Ready(health ...func() error) Setter {
	return func(_ context.Context, node *v1.Node) error {
		var complaints []string
		for _, ask := range health {
			if err := ask(); err != nil {
				complaints = append(complaints, err.Error())
			}
		}
		if err := missingCapacity(node.Status.Capacity); err != nil {
			complaints = append(complaints, err.Error())
		}
		c := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
		if len(complaints) > 0 {
			c.Status, c.Reason, c.Message = v1.ConditionFalse, "KubeletNotReady", aggregate(complaints)
		}
		setCondition(node, c, time.Now())
		return nil
	}
}

func missingCapacity(capacity v1.ResourceList) error {
	var missing []string
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods} {
		if _, ok := capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	if missing == nil {
		return nil
	}
	return errors.New("missing node capacity for resources: " + strings.Join(missing, ", "))
}

// aggregate puts complaints into one text, as Kubernetes shows several errors; each is said once.
func aggregate(complaints []string) string {
	var once []string
	for _, c := range complaints {
		if !slices.Contains(once, c) {
			once = append(once, c)
		}
	}
	if len(once) == 1 {
		return once[0]
	}
	return "[" + strings.Join(once, ", ") + "]"
}

// setCondition puts a condition in its place, with a heartbeat of now. The time of the last transition is kept as long as
// the status is.
func setCondition(node *v1.Node, c v1.NodeCondition, now time.Time) {
	c.LastHeartbeatTime = metav1.NewTime(now.Truncate(time.Second)) // as the API keeps times
	c.LastTransitionTime = c.LastHeartbeatTime
	old := condition(node, c.Type)
	if old == nil {
		node.Status.Conditions = append(node.Status.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
}

// condition finds a condition of a node, nil when it has none of that type.
func condition(node *v1.Node, kind v1.NodeConditionType) *v1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func isReady(node *v1.Node) bool {
	c := condition(node, v1.NodeReady)
	return c != nil && c.Status == v1.ConditionTrue
}
