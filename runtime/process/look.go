package process

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// life is how far a container has come, by the files of its shim.
type life struct {
	state   runtime.State
	launch  launch
	shim    ident // PID 0: nobody has begun to start it
	started started
	exit    exit
}

// over says that there is nothing to stop: the container has ended, or nobody has begun to start it.
func (l life) over() bool {
	return l.state == runtime.Exited || l.state == runtime.Created && l.shim.PID == 0
}

// life looks how a container is. One that lost its shim is ended here: what it left behind is killed, and the end noted.
func (e *Engine) life(ctx context.Context, id string) (life, error) {
	e.mu.Lock()
	l, known := e.ended[id]
	e.mu.Unlock()
	if known {
		return l, nil
	}
	l, err := e.settled(ctx, id)
	if err != nil || l.state == runtime.Exited || l.shim == (ident{}) || l.shim.alive() {
		return e.remember(id, l), err
	}
	if l, err = e.read(id); err != nil || l.state == runtime.Exited { // it ended orderly in between
		return e.remember(id, l), err
	}
	sweep(id)
	end := exit{At: time.Now(), Code: 137, Reason: "Error", Message: "the shim that kept this container was killed, and the container with it"}
	if l.started.At.IsZero() {
		end = exit{At: end.At, Code: 128, Reason: "StartError", Message: "it was given up before it ran"}
	}
	err = writeOnce(e.path("containers", id, exitFile), end)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) {
			err = runtime.ErrNotFound // removed meanwhile
		}
		return life{}, err
	}
	changed(e.cfg.Root, id)
	l, err = e.read(id)
	return e.remember(id, l), err
}

const (
	startPatience = 30 * time.Second // for a shim to start a container; one that takes longer is no shim
	shimPatience  = 10 * time.Second // from its launch to its first sign
)

// settled reads how a container is, once it has run or never will: an agent that was killed while its container started leaves
// a shim that goes on. One that has no shim by then was never launched, or is not started any more once it is removed. What this
// engine starts itself is as it is.
func (e *Engine) settled(ctx context.Context, id string) (l life, err error) {
	e.mu.Lock()
	own := e.starts[id]
	e.mu.Unlock()
	for began, d := time.Now(), time.Duration(0); ; {
		if l, err = e.read(id); err != nil || own || l.state != runtime.Created || l.launch.Boot != e.boot {
			return l, err
		}
		waited := time.Since(began)
		over := waited > startPatience || !l.shim.alive()
		if l.shim == (ident{}) {
			over = waited > shimPatience || time.Since(l.launch.At) > shimPatience
		}
		if over {
			return l, nil
		}
		if err := pause(ctx, &d); err != nil {
			return l, err
		}
	}
}

func (e *Engine) remember(id string, l life) life {
	if l.state == runtime.Exited {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ended[id] = l
	}
	return l
}

// read reads the files of a start, the last one first: each is written after the one before.
func (e *Engine) read(id string) (l life, err error) {
	ended, err := readFile(e.path("containers", id, exitFile), &l.exit)
	if err != nil {
		return l, err
	}
	running, err := readFile(e.path("containers", id, startedFile), &l.started)
	if err != nil {
		return l, err
	}
	if _, err := readFile(e.path("containers", id, shimFile), &l.shim); err != nil {
		return l, err
	}
	switch {
	case ended:
		l.state = runtime.Exited
	case running:
		l.state = runtime.Running
	default:
		l.state = runtime.Created
		_, err = readFile(e.path("containers", id, launchFile), &l.launch)
	}
	return l, err
}

// ListContainers is a shallow list.
func (e *Engine) ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	records, err := all(e, e.known, "containers")
	if err != nil {
		return nil, err
	}
	var out []runtime.Container
	for _, r := range records {
		if f.Pod != "" && f.Pod != r.Config.Pod.UID {
			continue
		}
		l, err := e.life(ctx, r.ID)
		if errors.Is(err, runtime.ErrNotFound) {
			continue
		}
		if err != nil {
			e.cfg.Observe.Logger().Error("a container's state cannot be read", "container", r.ID, "err", err)
			l.state = runtime.Unknown
		}
		if c := shown(r, l); c.State == runtime.Running || !f.OnlyAlive {
			out = append(out, c)
		}
	}
	return out, nil
}

// shown is what lists show of a container.
func shown(r *containerRecord, l life) runtime.Container {
	return runtime.Container{
		Pod: r.Config.Pod, ID: r.ID, Name: r.Config.Name, SandboxID: r.Sandbox, Restarts: int(r.Config.Attempt),
		Image: cmp.Or(r.Config.UserImage, r.Config.Image), ImageID: r.Config.Image, State: l.state, Created: r.Created,
		Labels: marked(r.Config.Labels, r.Config.Pod, r.Config.Name), Annotations: r.Config.Annotations,
	}
}

// Container is a complete look at one.
func (e *Engine) Container(ctx context.Context, id string) (runtime.Container, error) {
	if err := e.begin(ctx); err != nil {
		return runtime.Container{}, err
	}
	r, err := e.container(id)
	if err != nil {
		return runtime.Container{}, err
	}
	l, err := e.life(ctx, id)
	if err != nil {
		return runtime.Container{}, err
	}
	c := shown(r, l)
	c.ImageRef, c.Mounts, c.LogPath = r.Config.Image, r.Config.Mounts, r.LogPath
	c.Started, c.Finished = l.started.At, l.exit.At
	c.ExitCode, c.Reason, c.Message = l.exit.Code, l.exit.Reason, l.exit.Message
	return c, nil
}
