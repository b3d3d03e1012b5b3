package runtimetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// killed is the exit code of a process that got SIGKILL.
const killed = 137

// container is what a complete look shows, and the life of its process.
type container struct {
	runtime.Container
	config    *runtime.ContainerConfig
	log       *os.File
	does      Behavior
	timers    []*time.Timer
	signalled bool
	ended     chan struct{} // closed when the process has ended
}

// CreateContainer makes a container in a ready sandbox.
func (e *Engine) CreateContainer(ctx context.Context, sandbox string, c *runtime.ContainerConfig) (string, error) {
	call := Call{Method: "CreateContainer", ID: sandbox, Pod: c.Pod, Container: c.Name}
	return do(ctx, e, call, func() (string, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		s := e.sandboxes[sandbox]
		if s == nil {
			return "", fmt.Errorf("create container %s: %w", c.Name, notFound("sandbox", sandbox))
		}
		if !s.Ready {
			return "", fmt.Errorf("create container %s: sandbox %s is not ready", c.Name, sandbox)
		}
		image, ok := e.find(c.Image)
		if !ok {
			return "", fmt.Errorf("create container %s: %w", c.Name, notFound("image", c.Image))
		}
		for _, other := range e.containers {
			if other.Pod == c.Pod && other.Name == c.Name && other.config.Attempt == c.Attempt {
				return "", fmt.Errorf("create container %s: attempt %d exists as %s", c.Name, c.Attempt, other.ID)
			}
		}
		k := &container{config: c, ended: make(chan struct{}), Container: runtime.Container{
			Pod: c.Pod, ID: e.newID("container"), Name: c.Name, SandboxID: sandbox, Restarts: int(c.Attempt),
			Image: cmp.Or(c.UserImage, c.Image), ImageID: image.ID, ImageRef: firstOr(image.Digests, image.ID),
			State: runtime.Created, Created: time.Now(),
			Labels: marked(c.Labels, c.Pod, c.Name), Annotations: c.Annotations,
			Resources: &c.Resources, Mounts: c.Mounts,
		}}
		if c.LogPath != "" && s.config.LogDir != "" {
			k.LogPath = s.config.LogDir + "/" + c.LogPath
		}
		e.containers[k.ID] = k
		e.tell(k.Pod, k.ID)
		return k.ID, nil
	})
}

// StartContainer starts what Behave, or Shell, says.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	return doErr(ctx, e, Call{Method: "StartContainer", ID: id}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		c := e.containers[id]
		switch {
		case c == nil:
			return notFound("container", id)
		case c.State != runtime.Created:
			return fmt.Errorf("start container %s: it is %v", id, c.State)
		case !e.sandboxes[c.SandboxID].Ready:
			return fmt.Errorf("start container %s: its sandbox is not ready", id)
		}
		behave := e.Behave
		if behave == nil {
			behave = Shell
		}
		return e.start(c, behave(c.config))
	})
}

// UpdateContainer changes the sizes that r names.
func (e *Engine) UpdateContainer(ctx context.Context, id string, r runtime.Resources) error {
	return doErr(ctx, e, Call{Method: "UpdateContainer", ID: id}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		c := e.containers[id]
		switch {
		case c == nil:
			return notFound("container", id)
		case c.State == runtime.Exited:
			return fmt.Errorf("update container %s: it has exited", id)
		}
		r = updated(*c.Resources, r)
		c.Resources = &r
		return nil
	})
}

// StopContainer waits on the clock of package time.
func (e *Engine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return doErr(ctx, e, Call{Method: "StopContainer", ID: id}, func() error {
		if grace <= 0 {
			return ignoreNotFound(e.Exit(id, killed))
		}
		ended := e.signal(id)
		if ended == nil {
			return nil
		}
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stop container %s: %w", id, ctx.Err())
		case <-t.C:
			return ignoreNotFound(e.Exit(id, killed))
		}
	})
}

// RemoveContainer kills it where it runs.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	return doErr(ctx, e, Call{Method: "RemoveContainer", ID: id}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if c := e.containers[id]; c != nil {
			e.forget(c)
		}
		return nil
	})
}

// ListContainers is a shallow list, in a different order each time.
func (e *Engine) ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error) {
	return do(ctx, e, Call{Method: "ListContainers"}, func() ([]runtime.Container, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		var list []runtime.Container
		for _, c := range e.containers {
			if selects(f, c.Pod.UID, c.State == runtime.Running) {
				list = append(list, shallow(c.Container))
			}
		}
		return list, nil
	})
}

// Container is a complete look at one.
func (e *Engine) Container(ctx context.Context, id string) (runtime.Container, error) {
	return do(ctx, e, Call{Method: "Container", ID: id}, func() (runtime.Container, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		c := e.containers[id]
		if c == nil {
			return runtime.Container{}, notFound("container", id)
		}
		return c.Container, nil
	})
}

// Newest is the ID of the newest container of that name, empty when there is none.
func (e *Engine) Newest(pod types.UID, name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, attempt := "", -1
	for _, c := range e.containers {
		if c.Pod.UID == pod && c.Name == name && c.Restarts > attempt {
			id, attempt = c.ID, c.Restarts
		}
	}
	return id
}

// Edit changes what looks show of a container: an unknown state, a reason, the health of a device.
func (e *Engine) Edit(id string, change func(*runtime.Container)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	change(&c.Container)
	e.tell(c.Pod, id)
	return nil
}

// shallow leaves of a container what lists show.
func shallow(c runtime.Container) runtime.Container {
	return runtime.Container{
		Pod: c.Pod, ID: c.ID, Name: c.Name, SandboxID: c.SandboxID, Restarts: c.Restarts, Image: c.Image,
		ImageID: c.ImageID, State: c.State, Labels: c.Labels, Annotations: c.Annotations, Created: c.Created,
	}
}

// updated is r with the fields that are set in change; zero fields of change leave what is there.
func updated(r, change runtime.Resources) runtime.Resources {
	r.CPUShares = cmp.Or(change.CPUShares, r.CPUShares)
	r.CPUQuota = cmp.Or(change.CPUQuota, r.CPUQuota)
	r.CPUPeriod = cmp.Or(change.CPUPeriod, r.CPUPeriod)
	r.Memory = cmp.Or(change.Memory, r.Memory)
	r.MemorySwap = cmp.Or(change.MemorySwap, r.MemorySwap)
	r.OOMScoreAdj = cmp.Or(change.OOMScoreAdj, r.OOMScoreAdj)
	r.CPUs = cmp.Or(change.CPUs, r.CPUs)
	r.Mems = cmp.Or(change.Mems, r.Mems)
	r.Hugepages = merged(r.Hugepages, change.Hugepages)
	r.Unified = merged(r.Unified, change.Unified)
	return r
}

func merged[V any](m, over map[string]V) map[string]V {
	if len(over) == 0 {
		return m
	}
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	maps.Copy(m, over)
	return m
}
