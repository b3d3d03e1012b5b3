package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// sandbox is what a complete look shows, and what it was made from.
type sandbox struct {
	runtime.Sandbox
	config    *runtime.SandboxConfig
	resources runtime.Resources
	overhead  runtime.Resources
}

// RunSandbox makes a ready sandbox, with an address unless it has the host's network or was given a
// network namespace.
func (e *Engine) RunSandbox(ctx context.Context, c *runtime.SandboxConfig) (string, error) {
	return do(ctx, e, Call{Method: "RunSandbox", Pod: c.Pod}, func() (string, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, s := range e.sandboxes {
			if s.PodRef == c.Pod && s.Attempt == c.Attempt {
				return "", fmt.Errorf("run sandbox of %v: attempt %d exists as %s", c.Pod, c.Attempt, s.ID)
			}
		}
		if !slices.ContainsFunc(e.info.Handlers, func(h runtime.Handler) bool { return h.Name == c.Handler }) {
			return "", fmt.Errorf("run sandbox of %v: no runtime handler %q", c.Pod, c.Handler)
		}
		s := &sandbox{config: c, resources: c.Resources, overhead: c.Overhead, Sandbox: runtime.Sandbox{
			PodRef: c.Pod, ID: e.newID("sandbox"), Attempt: c.Attempt, Ready: true, Created: time.Now(),
			Labels: marked(c.Labels, c.Pod, ""), Annotations: c.Annotations, Handler: c.Handler,
			HostNetwork: c.Namespaces.HostNetwork, NetworkKnown: c.NetNS == "",
		}}
		if s.NetworkKnown && !s.HostNetwork {
			s.IPs = []string{fmt.Sprintf("10.88.%d.%d", e.serial/250, e.serial%250+2)}
		}
		e.sandboxes[s.ID] = s
		e.tell(s.PodRef, s.ID)
		return s.ID, nil
	})
}

// UpdateSandbox keeps the sizes; SandboxResources shows them.
func (e *Engine) UpdateSandbox(ctx context.Context, id string, r, overhead runtime.Resources) error {
	return doErr(ctx, e, Call{Method: "UpdateSandbox", ID: id}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		s := e.sandboxes[id]
		if s == nil {
			return notFound("sandbox", id)
		}
		s.resources, s.overhead = updated(s.resources, r), updated(s.overhead, overhead)
		return nil
	})
}

// SandboxResources are the sizes a sandbox has for its containers and for itself, zero for one that does not exist.
func (e *Engine) SandboxResources(id string) (sizes, overhead runtime.Resources) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sandboxes[id]; s != nil {
		return s.resources, s.overhead
	}
	return runtime.Resources{}, runtime.Resources{}
}

// StopSandbox kills what runs in it and takes its address back.
func (e *Engine) StopSandbox(ctx context.Context, id string) error {
	return doErr(ctx, e, Call{Method: "StopSandbox", ID: id}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.end(id)
		return nil
	})
}

// RemoveSandbox stops it, and removes it with its containers.
func (e *Engine) RemoveSandbox(ctx context.Context, id string) error {
	return doErr(ctx, e, Call{Method: "RemoveSandbox", ID: id}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.end(id)
		for _, c := range e.containers {
			if c.SandboxID == id {
				e.forget(c)
			}
		}
		if s := e.sandboxes[id]; s != nil {
			delete(e.sandboxes, id)
			e.tell(s.PodRef, id)
		}
		return nil
	})
}

// EndSandbox ends a sandbox as an accident does: it is not ready any more and all in it was killed.
func (e *Engine) EndSandbox(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(id)
}

// Reboot ends all sandboxes as an accident does; what they were is still listed.
func (e *Engine) Reboot() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.sandboxes {
		e.end(id)
	}
}

// end kills what runs in a sandbox and makes it not ready. The caller holds mu.
func (e *Engine) end(id string) {
	for _, c := range e.containers {
		if c.SandboxID == id {
			e.exit(c, killed)
		}
	}
	if s := e.sandboxes[id]; s != nil && s.Ready {
		s.Ready, s.IPs = false, nil
		e.tell(s.PodRef, id)
	}
}

// ListSandboxes is a shallow list, in a different order each time.
func (e *Engine) ListSandboxes(ctx context.Context, f runtime.Filter) ([]runtime.Sandbox, error) {
	return do(ctx, e, Call{Method: "ListSandboxes"}, func() ([]runtime.Sandbox, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		var list []runtime.Sandbox
		for _, s := range e.sandboxes {
			if selects(f, s.UID, s.Ready) {
				shallow := s.Sandbox
				shallow.IPs, shallow.NetworkKnown, shallow.HostNetwork = nil, false, false
				list = append(list, shallow)
			}
		}
		return list, nil
	})
}

// Sandbox is a complete look at one.
func (e *Engine) Sandbox(ctx context.Context, id string) (runtime.Sandbox, error) {
	return do(ctx, e, Call{Method: "Sandbox", ID: id}, func() (runtime.Sandbox, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		s := e.sandboxes[id]
		if s == nil {
			return runtime.Sandbox{}, notFound("sandbox", id)
		}
		return s.Sandbox, nil
	})
}

// EditSandbox changes what complete looks show of a sandbox: other addresses, a network that is not known.
func (e *Engine) EditSandbox(id string, change func(*runtime.Sandbox)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sandboxes[id]
	if s == nil {
		return notFound("sandbox", id)
	}
	change(&s.Sandbox)
	e.tell(s.PodRef, id)
	return nil
}
