package podruntime

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Allocations is what was set aside for single containers: devices, CPUs, memory nodes, resource claims. It is asked each
// time a container is about to be made, after its images are there, for containers of several pods at once, and answers the
// same for the same instance. An error keeps the container from being made and stands in its status; asked again later, it
// may be gone.
type Allocations interface {
	Allocation(ctx context.Context, pod *v1.Pod, container string) (Allocation, error)
}

// Allocation is what is added to the config of one container. The zero value adds nothing.
type Allocation struct {
	Env         []runtime.Env    // the container's own go before it
	Mounts      []runtime.Mount  // before those of its volumes
	Devices     []runtime.Device // before its block volumes
	CDI         []string
	Annotations map[string]string // those of the agent go before it
	CPUs, Mems  string            // cpusets; empty: all there are
	Exclusive   bool              // nobody else is on the CPUs: no quota holds it back
}

// grant asks for what was set aside for a container.
func (r *Runtime) grant(ctx context.Context, pod *v1.Pod, c *v1.Container) (Allocation, error) {
	if r.cfg.Allocations == nil {
		return Allocation{}, nil
	}
	a, err := r.cfg.Allocations.Allocation(ctx, pod, c.Name)
	if err != nil {
		return a, fmt.Errorf("what is set aside for container %s: %w", c.Name, err)
	}
	return a, nil
}

// into adds it to a config.
func (a Allocation) into(c *runtime.ContainerConfig) {
	said := map[string]bool{}
	for _, v := range c.Env {
		said[v.Name] = true
	}
	env := slices.DeleteFunc(slices.Clone(a.Env), func(v runtime.Env) bool { return said[v.Name] })
	c.Env = append(env, c.Env...)
	c.Mounts = append(slices.Clone(a.Mounts), c.Mounts...)
	c.Devices = append(slices.Clone(a.Devices), c.Devices...)
	c.CDI = append(c.CDI, a.CDI...)
	annotations := maps.Clone(a.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, c.Annotations)
	c.Annotations = annotations
	a.limit(&c.Resources)
}

// limit adds it to the resources of a container that is made, or gets other ones.
func (a Allocation) limit(r *runtime.Resources) {
	r.CPUs, r.Mems = a.CPUs, a.Mems
	if a.Exclusive && r.CPUPeriod > 0 {
		r.CPUQuota = -1
	}
}
