package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// SizesOf are the sizes in the spec of a container. A limit that it does not have is that of the pod as a whole.
func SizesOf(pod *v1.Pod, c *v1.Container) runtime.Sizes {
	s := runtime.Sizes{
		CPURequest: c.Resources.Requests.Cpu().MilliValue(), CPULimit: c.Resources.Limits.Cpu().MilliValue(),
		MemoryRequest: c.Resources.Requests.Memory().Value(), MemoryLimit: c.Resources.Limits.Memory().Value(),
	}
	if r := pod.Spec.Resources; r != nil {
		s.CPULimit = cmp.Or(s.CPULimit, r.Limits.Cpu().MilliValue())
		s.MemoryLimit = cmp.Or(s.MemoryLimit, r.Limits.Memory().Value())
	}
	return s
}

// LevelOf are the sizes that the spec of a pod has for the pod as a whole, nil when it has none.
func LevelOf(pod *v1.Pod) *runtime.Sizes {
	if pod.Spec.Resources == nil {
		return nil
	}
	s := SizesOf(&v1.Pod{}, &v1.Container{Resources: *pod.Spec.Resources})
	return &s
}

// Resizing says that a container, or the pod as a whole, runs with other sizes than the spec has. What does not run gets
// them when it starts.
func Resizing(pod *v1.Pod, seen runtime.Pod) bool {
	return ResizingLevel(pod, seen) || slices.ContainsFunc(specContainers(pod), func(c *v1.Container) bool {
		newest := seen.Newest(c.Name)
		return newest != nil && newest.State == runtime.Running && len(changes(pod, c, seen)) > 0
	})
}

// ResizingLevel says that of a pod as a whole.
func ResizingLevel(pod *v1.Pod, seen runtime.Pod) bool {
	wants := LevelOf(pod)
	return wants != nil && seen.Level != nil && *wants != *seen.Level && seen.Running()
}

// change is a resource of which a container has another amount than its spec says.
type change struct {
	resource v1.ResourceName
	more     int // 1: it gets more, -1: less
}

// changes between what a container was given and its spec. When it is not known what it was given there are none.
func changes(pod *v1.Pod, c *v1.Container, seen runtime.Pod) (out []change) {
	has, known := seen.Applied[c.Name]
	if !known {
		return nil
	}
	wants := SizesOf(pod, c)
	note := func(r v1.ResourceName, limit, request int) {
		if more := cmp.Or(limit, request); more != 0 { // a limit is what the kernel holds it to
			out = append(out, change{r, more})
		}
	}
	note(v1.ResourceMemory, cmp.Compare(wants.MemoryLimit, has.MemoryLimit), cmp.Compare(wants.MemoryRequest, has.MemoryRequest))
	note(v1.ResourceCPU, cmp.Compare(wants.CPULimit, has.CPULimit), cmp.Compare(wants.CPURequest, has.CPURequest))
	return out
}

// restartsToResize says that a container must be started anew to get the sizes of its spec.
func (p *planner) restartsToResize(c *v1.Container) bool {
	return slices.ContainsFunc(changes(p.Pod, c, p.Seen), func(ch change) bool {
		return slices.ContainsFunc(c.ResizePolicy, func(r v1.ContainerResizePolicy) bool {
			return r.ResourceName == ch.resource && r.RestartPolicy == v1.RestartContainer
		})
	})
}

// updates plans the new sizes of containers that go on running: memory first, then CPU, and of each first what becomes
// less, so that there is room for what becomes more.
func (p *planner) updates(stops []Action) (out []Action) {
	for _, resource := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		for _, more := range []int{-1, 1} {
			for _, c := range specContainers(p.Pod) {
				seen := p.Seen.Newest(c.Name)
				if p.stays(seen, stops) && slices.Contains(changes(p.Pod, c, p.Seen), change{resource, more}) {
					_, kind := Find(p.Pod, c.Name)
					out = append(out, Action{Verb: UpdateContainer, ID: seen.ID, Container: c.Name, Kind: kind, Resource: resource, Less: more < 0})
				}
			}
		}
	}
	return out
}

// stays says that a container goes on running.
func (p *planner) stays(c *runtime.Container, stops []Action) bool {
	return c != nil && c.State == runtime.Running && c.SandboxID == p.sandbox &&
		!slices.ContainsFunc(stops, func(a Action) bool { return a.ID == c.ID })
}
