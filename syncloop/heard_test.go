package syncloop_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// heard is an engine whose acts are written down.
type heard struct {
	*runtimetest.Engine
	n *node
}

// container and sandbox write down what is done to one that exists.
func (h heard) container(id string, format string, args ...any) {
	_, containers := h.Truth()
	if i := slices.IndexFunc(containers, func(c runtime.Container) bool { return c.ID == id }); i >= 0 {
		h.n.say(containers[i].Pod.Name, format, append([]any{containers[i].Name}, args...)...)
	}
}

func (h heard) sandbox(id string, format string, which func(runtime.Sandbox) bool) {
	sandboxes, _ := h.Truth()
	if i := slices.IndexFunc(sandboxes, func(s runtime.Sandbox) bool { return s.ID == id && which(s) }); i >= 0 {
		h.n.say(sandboxes[i].Name, format, sandboxes[i].Attempt)
	}
}

func (h heard) RunSandbox(ctx context.Context, c *runtime.SandboxConfig) (string, error) {
	h.n.say(c.Pod.Name, "run sandbox %d", c.Attempt)
	return h.Engine.RunSandbox(ctx, c)
}

func (h heard) StartContainer(ctx context.Context, id string) error {
	h.container(id, "start %s")
	h.n.judge.starts(id)
	_, containers := h.Truth()
	if i := slices.IndexFunc(containers, func(c runtime.Container) bool { return c.ID == id }); i >= 0 {
		h.n.mu.Lock()
		over := h.n.over[containers[i].Pod.UID]
		h.n.mu.Unlock()
		if over {
			h.n.fault("a container of %s starts, which was told as over", containers[i].Pod.UID)
		}
	}
	return h.Engine.StartContainer(ctx, id)
}

func (h heard) UpdateContainer(ctx context.Context, id string, r runtime.Resources) error {
	h.container(id, "update %s to %d shares", r.CPUShares)
	return h.Engine.UpdateContainer(ctx, id, r)
}

func (h heard) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	h.container(id, "stop %s within %v", grace)
	h.n.judge.stops(id, grace)
	err := h.Engine.StopContainer(ctx, id, grace)
	if errors.Is(err, runtime.ErrUnavailable) {
		h.n.judge.unheard(id)
	}
	return err
}

func (h heard) RemoveContainer(ctx context.Context, id string) error {
	h.container(id, "remove %s")
	h.n.judge.ends(func(c runtime.Container) bool { return c.ID == id })
	return h.Engine.RemoveContainer(ctx, id)
}

func (h heard) StopSandbox(ctx context.Context, id string) error {
	h.sandbox(id, "stop sandbox %d", func(s runtime.Sandbox) bool { return s.Ready })
	h.n.judge.ends(func(c runtime.Container) bool { return c.SandboxID == id })
	return h.Engine.StopSandbox(ctx, id)
}

func (h heard) RemoveSandbox(ctx context.Context, id string) error {
	h.sandbox(id, "remove sandbox %d", func(runtime.Sandbox) bool { return true })
	h.n.judge.ends(func(c runtime.Container) bool { return c.SandboxID == id })
	return h.Engine.RemoveSandbox(ctx, id)
}

// told is what the engine has, with the times it wrote down.
func (h heard) told(c runtime.Container) runtime.Container {
	if h.n.clock != nil {
		c.Created, c.Started, c.Finished = h.n.clock(c.Created), h.n.clock(c.Started), h.n.clock(c.Finished)
	}
	return c
}

func (h heard) Container(ctx context.Context, id string) (runtime.Container, error) {
	c, err := h.Engine.Container(ctx, id)
	return h.told(c), err
}

func (h heard) ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error) {
	all, err := h.Engine.ListContainers(ctx, f)
	slices.SortFunc(all, func(a, b runtime.Container) int { return cmp.Compare(a.ID, b.ID) }) // what is played again is not to differ
	for i := range all {
		all[i] = h.told(all[i])
	}
	return all, err
}

func (h heard) Sandbox(ctx context.Context, id string) (runtime.Sandbox, error) {
	s, err := h.Engine.Sandbox(ctx, id)
	if h.n.clock != nil {
		s.Created = h.n.clock(s.Created)
	}
	return s, err
}

func (h heard) ListSandboxes(ctx context.Context, f runtime.Filter) ([]runtime.Sandbox, error) {
	all, err := h.Engine.ListSandboxes(ctx, f)
	slices.SortFunc(all, func(a, b runtime.Sandbox) int { return cmp.Compare(a.ID, b.ID) })
	for i := range all {
		if h.n.clock != nil {
			all[i].Created = h.n.clock(all[i].Created)
		}
	}
	return all, err
}
