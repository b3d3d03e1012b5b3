package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	podresource "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Fit refuses pods for which this node has no room or to which it does not belong. For a critical pod it names others that are
// to make room.
type Fit struct {
	Node func() *v1.Node // as the API server has it; nil, or giving nil: it is not known

	// Own is the node by its own account, which counts as long as Node is not known: for ever without an API server. Of a pod
	// that came from one it judges the room alone, as whoever sent that pod knew more of the node. nil, or giving nil: only host
	// ports are compared.
	Own func() *v1.Node

	// Kept says that a pod was let in before this agent came; neither Own nor labels of the node that have changed since refuse any of
	// those. syncloop's Roster knows. nil: none was.
	Kept func(uid types.UID) bool

	// Fresh asks for the node as it is now, when nothing but its labels stands against a pod: whoever sent the pod may have
	// seen labels that are new. It is given a second. nil: what Node says counts.
	Fresh func(ctx context.Context) (*v1.Node, error)
}

const freshWithin = time.Second

// Admit refuses with OutOfpods, OutOfcpu, OutOfmemory, OutOfephemeral-storage or OutOf<resource>, NodeAffinity, NodeName,
// NodePorts or TaintToleration. A pod among the others with the same UID is the pod as it was, and is not counted.
//
// A critical pod (static, mirror, or of a priority of 2000000000 and more) is not refused for lack of room as long as others of
// lower standing hold what it lacks: the refusal names them in Instead. When they do not, it is an UnexpectedAdmissionError.
func (f Fit) Admit(ctx context.Context, pod *v1.Pod, others []*v1.Pod) error {
	others = slices.DeleteFunc(slices.Clone(others), func(o *v1.Pod) bool { return o.UID == pod.UID && pod.UID != "" })
	kept := f.Kept != nil && f.Kept(pod.UID)
	node, judge := known(f.Node), against
	if node == nil && !kept {
		node = known(f.Own)
		if !podspec.Static(pod) {
			judge = crowding
		}
	}
	if node == nil {
		return ports(pod, others)
	}
	lacks, all := judge(pod, others, node)
	if kept { // labels are for those who choose a node
		all = slices.DeleteFunc(all, func(err error) bool { return isRefusal(err, "NodeAffinity") })
	}
	if f.Fresh != nil && len(lacks) == 0 && len(all) == 1 && isRefusal(all[0], "NodeAffinity") {
		ctx, cancel := context.WithTimeout(ctx, freshWithin)
		defer cancel()
		if now, err := f.Fresh(ctx); err == nil && now != nil {
			lacks, all = against(pod, others, now)
		}
	}
	switch critical := podspec.Critical(pod); {
	case len(lacks) > 0 && !critical:
		return lacks[0].refusal()
	case len(all) > 0: // for which nobody's end would help
		return all[0]
	case len(lacks) > 0:
		return preempt(pod, others, lacks)
	}
	return nil
}

// against is all that stands against a pod, in the kubelet's order: what it lacks, and what else.
func against(pod *v1.Pod, others []*v1.Pod, node *v1.Node) (lacks []shortage, all []error) {
	return room(pod, others, node.Status.Allocatable), slices.DeleteFunc([]error{
		affinity(pod, node), name(pod, node), ports(pod, others), taints(pod, node),
	}, func(err error) bool { return err == nil })
}

// crowding is that part of it which others are to blame for, and the size of the node.
func crowding(pod *v1.Pod, others []*v1.Pod, node *v1.Node) (lacks []shortage, all []error) {
	if err := ports(pod, others); err != nil {
		all = []error{err}
	}
	return room(pod, others, node.Status.Allocatable), all
}

func isRefusal(err error, reason string) bool {
	r, ok := errors.AsType[*runtime.Rejection](err)
	return ok && r.Reason == reason
}

func affinity(pod *v1.Pod, node *v1.Node) error {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return fails("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

func name(pod *v1.Pod, node *v1.Node) error {
	if n := pod.Spec.NodeName; n != "" && n != node.Name {
		return fails("NodeName", "node(s) didn't match the requested node name")
	}
	return nil
}

// shortage is what a node has too little of for a pod.
type shortage struct {
	name                      v1.ResourceName
	requested, used, capacity int64
}

func (s shortage) refusal() *runtime.Rejection {
	return &runtime.Rejection{Reason: "OutOf" + string(s.name), Message: fmt.Sprintf(
		"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", s.name, s.requested, s.used, s.capacity)}
}

// room compares what the pod asks for with what others leave. A node that says nothing of its size has room for all.
func room(pod *v1.Pod, others []*v1.Pod, allocatable v1.ResourceList) (lacks []shortage) {
	if len(allocatable) == 0 {
		return nil
	}
	if most := allocatable.Pods().Value(); int64(len(others)) >= most {
		lacks = append(lacks, shortage{v1.ResourcePods, 1, int64(len(others)), most})
	}
	wanted := requests(pod)
	used := v1.ResourceList{}
	for _, o := range others {
		for name, q := range requests(o) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	for _, name := range inOrder(wanted) {
		if _, ok := allocatable[name]; !ok && extended(name) {
			continue // someone else's to hand out
		}
		want, have, most := amount(name, wanted), amount(name, used), amount(name, allocatable)
		if want > 0 && want > most-have {
			lacks = append(lacks, shortage{name, want, have, most})
		}
	}
	return lacks
}

func requests(pod *v1.Pod) v1.ResourceList {
	return podresource.PodRequests(pod, podresource.PodResourcesOptions{})
}

// amount is a quantity as schedulers count it: of processors in thousandths.
func amount(name v1.ResourceName, l v1.ResourceList) int64 {
	q := l[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// fails says what programs that read refusals know from the kubelet.
func fails(predicate, why string) error {
	return refuse(predicate, "Predicate %s failed: %s", predicate, why)
}

// inOrder are the names as the kubelet looks at them: processor, memory, storage, then the others by name.
func inOrder(l v1.ResourceList) []v1.ResourceName {
	rank := map[v1.ResourceName]int{v1.ResourceCPU: -3, v1.ResourceMemory: -2, v1.ResourceEphemeralStorage: -1}
	return slices.SortedFunc(maps.Keys(l), func(a, b v1.ResourceName) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b))
	})
}

// extended says that a resource is not Kubernetes' own.
func extended(name v1.ResourceName) bool {
	n := string(name)
	return strings.Contains(n, "/") && !strings.Contains(n, v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(n, v1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+n)) == 0
}

// ports compares the host ports of the pod with those of the others. One without an address takes all addresses.
func ports(pod *v1.Pod, others []*v1.Pod) error {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return nil
	}
	for _, o := range others {
		for _, taken := range hostPorts(o) {
			for _, p := range wanted {
				if p.port == taken.port && p.protocol == taken.protocol && (p.ip == taken.ip || p.ip == everywhere || taken.ip == everywhere) {
					return fails("NodePorts", "node(s) didn't have free ports for the requested pod ports")
				}
			}
		}
	}
	return nil
}

const everywhere = "0.0.0.0"

type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
}

// hostPorts are those the pod holds as long as it runs.
func hostPorts(pod *v1.Pod) (list []hostPort) {
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				list = append(list, hostPort{cmp.Or(p.HostIP, everywhere), cmp.Or(p.Protocol, v1.ProtocolTCP), p.HostPort})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podspec.Sidecar(c) {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return list
}

// taints refuses a pod that would be driven out at once. What the node runs on its own account stays.
func taints(pod *v1.Pod, node *v1.Node) error {
	if podspec.Static(pod) {
		return nil
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect == v1.TaintEffectNoExecute && !slices.ContainsFunc(pod.Spec.Tolerations, func(tol v1.Toleration) bool { return tolerates(&tol, t) }) {
			return fails("TaintToleration", "node(s) had taints that the pod didn't tolerate")
		}
	}
	return nil
}

// tolerates says that a toleration covers a taint. The operators Lt and Gt, which are alpha, cover none.
func tolerates(tol *v1.Toleration, t *v1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	switch tol.Operator {
	case v1.TolerationOpExists:
		return true
	case v1.TolerationOpEqual, "":
		return tol.Value == t.Value
	case v1.TolerationOpLt, v1.TolerationOpGt:
	}
	return false
}
