package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// Reason is that of pods ended or refused by this package.
const Reason = "Evicted"

// Annotations of the event on an evicted pod.
const (
	offendingContainers      = "offending_containers"
	offendingContainersUsage = "offending_containers_usage"
	offendingPod             = "offending_pod"
	offendingPodUsage        = "offending_pod_usage"
	starvedResource          = "starved_resource"
)

// explain says why a pod is ended, in words and as annotations, as kubelets do: alerts and dashboards match them. What volumes
// use, which no container is blamed for, comes last.
func explain(p *v1.Pod, what v1.ResourceName, due []Threshold, o Observation) (string, map[string]string) {
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %v. ", what)
	for _, t := range due { // the first of this resource, perhaps of another signal
		if l, ok := o.Levels[t.Signal]; ok && t.Signal.resource() == what {
			quantity := t.Value.Quantity
			if quantity == nil {
				quantity = size(t.Value.of(l.Capacity))
			}
			fmt.Fprintf(&b, "Threshold quantity: %v, available: %v. ", quantity, t.Signal.amount(l.Available))
			break
		}
	}
	u, ok := o.Usage[p.UID]
	if !ok {
		return b.String(), map[string]string{}
	}
	notes := map[string]string{starvedResource: string(what)}
	if q, ok := podRequest(p, what); ok {
		fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %v. ", p.Name, size(u.Memory), &q, what)
		notes[offendingPod], notes[offendingPodUsage] = p.Name, size(u.Memory).String()
	}
	var names, amounts []string
	for _, c := range u.Containers {
		spec := containerOf(p, c.Name)
		if spec == nil {
			continue
		}
		used, request := size(c.amount(what)), spec.Resources.Requests[what]
		if used.Cmp(request) > 0 {
			fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %v. ", c.Name, used, &request, what)
			names, amounts = append(names, c.Name), append(amounts, used.String())
		}
	}
	if n := volumesOf(p, u).Bytes; what == v1.ResourceEphemeralStorage && n > 0 {
		fmt.Fprintf(&b, "Volumes of the pod were using %s. ", size(n))
	}
	notes[offendingContainers], notes[offendingContainersUsage] = strings.Join(names, ","), strings.Join(amounts, ",")
	return b.String(), notes
}

// amount is what a container uses, as far as that is known of single ones.
func (c ContainerUsage) amount(what v1.ResourceName) int64 {
	switch what {
	case v1.ResourceMemory:
		return c.Memory
	case v1.ResourceEphemeralStorage:
		return c.Rootfs.Bytes + c.Logs.Bytes
	default:
		return 0
	}
}

// podRequest is the memory a pod requests as a whole.
func podRequest(p *v1.Pod, what v1.ResourceName) (resource.Quantity, bool) {
	if what != v1.ResourceMemory || !podspec.HasPodLevel(p.Spec.Resources) {
		return resource.Quantity{}, false
	}
	q, ok := p.Spec.Resources.Requests[what]
	return q, ok
}

// containerOf finds a container in the spec. Ephemeral ones request nothing and are never blamed.
func containerOf(p *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func size(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }
