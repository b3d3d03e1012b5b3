package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// RunSandbox notes a sandbox: it has the host's network and nothing of its own.
func (e *Engine) RunSandbox(ctx context.Context, c *runtime.SandboxConfig) (string, error) {
	id := newID()
	err := e.begin(ctx)
	if err == nil {
		err = refuseSandbox(c)
	}
	if err == nil {
		err = e.exclusive(ctx, func() error {
			others, err := all(e, e.frames, "sandboxes")
			if err != nil {
				return err
			}
			for _, s := range others {
				if s.Config.Pod == c.Pod && s.Config.Attempt == c.Attempt {
					return fmt.Errorf("attempt %d exists as %s", c.Attempt, s.ID)
				}
			}
			return e.keep("sandboxes", id, sandboxRecord{ID: id, Boot: e.boot, Created: time.Now(), Config: *c})
		})
	}
	if err != nil {
		return "", fmt.Errorf("run sandbox of %v: %w", c.Pod, err)
	}
	changed(e.cfg.Root, id)
	return id, nil
}

// refuseSandbox names what a sandbox asks for that would change what its programs do, and that no host process can have.
func refuseSandbox(c *runtime.SandboxConfig) error {
	switch {
	case c.Handler != "":
		return fmt.Errorf("no runtime handler %q: containers here are host processes", c.Handler)
	case c.NetNS != "":
		return fmt.Errorf("host processes stay in the host's network, not in %s: %w", c.NetNS, errors.ErrUnsupported)
	case len(c.Sysctls) > 0:
		return fmt.Errorf("sysctls of host processes are the host's: %w", errors.ErrUnsupported)
	}
	return nil
}

// StopSandbox kills what runs in it. Its record stays.
func (e *Engine) StopSandbox(ctx context.Context, id string) error {
	if err := e.stopSandbox(ctx, id); err != nil && !errors.Is(err, runtime.ErrNotFound) {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

func (e *Engine) stopSandbox(ctx context.Context, id string) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if _, err := e.sandbox(id); err != nil {
		return err
	}
	// Marked first: what is created later is refused, and a shim that starts looks for the mark after it can be found here.
	err := e.exclusive(ctx, func() error {
		err := writeOnce(e.path("sandboxes", id, stoppedFile), time.Now())
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
		return err
	})
	if err != nil {
		return err
	}
	inside, err := e.inside(id)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for _, c := range inside {
		g.Go(func() error { return e.StopContainer(ctx, c.ID, 0) })
	}
	err = g.Wait()
	changed(e.cfg.Root, id)
	return err
}

// inside are the containers of a sandbox.
func (e *Engine) inside(sandbox string) (out []*containerRecord, err error) {
	containers, err := all(e, e.known, "containers")
	for _, c := range containers {
		if c.Sandbox == sandbox {
			out = append(out, c)
		}
	}
	return out, err
}

// RemoveSandbox stops a sandbox and forgets it with its containers.
func (e *Engine) RemoveSandbox(ctx context.Context, id string) error {
	err := e.stopSandbox(ctx, id)
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	var containers []*containerRecord
	if err == nil {
		containers, err = e.inside(id)
	}
	for _, c := range containers {
		if err == nil {
			err = e.RemoveContainer(ctx, c.ID)
		}
	}
	if err == nil {
		err = e.exclusive(ctx, func() error {
			changed(e.cfg.Root, id)
			err := e.drop("sandboxes", id)
			e.tidy()
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}

func (e *Engine) stopped(id string) bool {
	_, err := os.Stat(e.path("sandboxes", id, stoppedFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// ready says that containers may be made in a sandbox: it was not stopped, and the machine has not been started anew.
func (e *Engine) ready(s *sandboxRecord) bool {
	return s.Boot == e.boot && !e.stopped(s.ID)
}

// ListSandboxes is a shallow list.
func (e *Engine) ListSandboxes(ctx context.Context, f runtime.Filter) ([]runtime.Sandbox, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	records, err := all(e, e.frames, "sandboxes")
	if err != nil {
		return nil, err
	}
	var out []runtime.Sandbox
	for _, s := range records {
		if f.Pod != "" && f.Pod != s.Config.Pod.UID {
			continue
		}
		if b := e.shownSandbox(s); b.Ready || !f.OnlyAlive {
			out = append(out, b)
		}
	}
	return out, nil
}

func (e *Engine) shownSandbox(s *sandboxRecord) runtime.Sandbox {
	return runtime.Sandbox{
		PodRef: s.Config.Pod, ID: s.ID, Attempt: s.Config.Attempt, Ready: e.ready(s), Created: s.Created,
		Labels: marked(s.Config.Labels, s.Config.Pod, ""), Annotations: s.Config.Annotations,
	}
}

// Sandbox is a complete look at one.
func (e *Engine) Sandbox(ctx context.Context, id string) (runtime.Sandbox, error) {
	if err := e.begin(ctx); err != nil {
		return runtime.Sandbox{}, err
	}
	s, err := e.sandbox(id)
	if err != nil {
		return runtime.Sandbox{}, err
	}
	b := e.shownSandbox(s)
	b.NetworkKnown, b.HostNetwork = true, s.Config.Namespaces.HostNetwork
	if b.Ready {
		b.IPs = e.cfg.IPs()
	}
	return b, nil
}

// marked is the given labels with the pod's identity written over them.
func marked(given map[string]string, pod runtime.PodRef, container string) map[string]string {
	m := maps.Clone(given)
	if m == nil {
		m = map[string]string{}
	}
	m[runtime.LabelPodName] = pod.Name
	m[runtime.LabelPodNamespace] = pod.Namespace
	m[runtime.LabelPodUID] = string(pod.UID)
	if container != "" {
		m[runtime.LabelContainerName] = container
	}
	return m
}
