package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// CreateContainer notes a container and makes its working directory. An image that is neither "host" nor a directory is a
// *runtime.WaitingError with the reason ErrImageNeverPull, and runtime.ErrNotFound.
func (e *Engine) CreateContainer(ctx context.Context, sandbox string, c *runtime.ContainerConfig) (string, error) {
	id := newID()
	err := e.begin(ctx)
	if err == nil {
		err = e.exclusive(ctx, func() error { return e.create(ctx, id, sandbox, c) })
	}
	if err != nil {
		return "", fmt.Errorf("create container %s: %w", c.Name, err)
	}
	changed(e.cfg.Root, id)
	return id, nil
}

func (e *Engine) create(ctx context.Context, id, sandbox string, c *runtime.ContainerConfig) error {
	s, err := e.sandbox(sandbox)
	if err != nil {
		return err
	}
	if !e.ready(s) {
		return fmt.Errorf("sandbox %s is not ready", sandbox)
	}
	others, err := all(e, e.known, "containers")
	if err != nil {
		return err
	}
	for _, o := range others {
		if o.Config.Pod == c.Pod && o.Config.Name == c.Name && o.Config.Attempt == c.Attempt {
			return fmt.Errorf("attempt %d exists as %s", c.Attempt, o.ID)
		}
	}
	if _, err := e.Image(ctx, c.Image); errors.Is(err, runtime.ErrNotFound) {
		return &runtime.WaitingError{Waiting: runtime.Waiting{Reason: "ErrImageNeverPull", Message: err.Error()}, Err: err}
	} else if err != nil {
		return err
	}
	if err := refuseContainer(c); err != nil {
		return err
	}
	r := e.describe(id, s, c)
	if err := e.keep("containers", id, r); err != nil {
		return err
	}
	if err := e.furnish(r); err != nil {
		return errors.Join(err, e.drop("containers", id))
	}
	return nil
}

// refuseContainer names what a container asks for that would change what its programs do, and that it cannot have.
func refuseContainer(c *runtime.ContainerConfig) error {
	uid, gid := ids(c)
	switch {
	case len(c.Command)+len(c.Args) == 0:
		return errors.New("it names no command, and an image that is a directory has none to offer")
	case c.TTY:
		return fmt.Errorf("a terminal (tty: true): %w", errors.ErrUnsupported)
	case len(c.Devices)+len(c.CDI) > 0:
		return fmt.Errorf("devices: %w", errors.ErrUnsupported)
	case c.Security.UID == nil && c.Security.Username != "":
		return fmt.Errorf("user %q is a name; set runAsUser to a number", c.Security.Username)
	case os.Geteuid() != 0 && (uid != os.Geteuid() || c.Security.GID != nil && gid != os.Getegid()):
		return fmt.Errorf("it is to run as user %d and group %d, but this engine is not root and runs all as its own user %d and group %d", uid, gid, os.Geteuid(), os.Getegid())
	}
	for _, m := range c.Mounts {
		if m.Image != "" {
			return fmt.Errorf("mount %s: image volumes: %w", m.ContainerPath, errors.ErrUnsupported)
		}
	}
	_, err := signalNamed(c.StopSignal)
	return err
}

// ids are user and group of a container's processes.
func ids(c *runtime.ContainerConfig) (uid, gid int) {
	uid, gid = os.Geteuid(), os.Getegid()
	if u := c.Security.UID; u != nil {
		uid = int(*u)
	}
	if g := c.Security.GID; g != nil {
		gid = int(*g)
	}
	return uid, gid
}

// mountsEnv names the variable with the directory where a container finds its volumes.
const mountsEnv = "KUBELETKIT_MOUNTS"

// describe decides what the shim will start.
func (e *Engine) describe(id string, s *sandboxRecord, c *runtime.ContainerConfig) *containerRecord {
	r := &containerRecord{
		ID: id, Sandbox: s.ID, Created: time.Now(), Config: *c,
		Command: slices.Concat(c.Command, c.Args), Dir: c.Dir,
	}
	r.Config.Sandbox = nil
	if c.LogPath != "" && s.Config.LogDir != "" {
		r.LogPath = filepath.Join(s.Config.LogDir, c.LogPath)
	}
	path := cmp.Or(os.Getenv("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	work := e.path("containers", id, "work")
	if c.Image != host {
		work = c.Image
		path = strings.Join([]string{c.Image, filepath.Join(c.Image, "bin"), path}, string(filepath.ListSeparator))
	}
	if !filepath.IsAbs(r.Dir) {
		r.Dir = filepath.Join(work, r.Dir)
	}
	r.Env = []string{"PATH=" + path, "HOME=" + cmp.Or(os.Getenv("HOME"), work)}
	if name := s.Config.Hostname; name != "" {
		r.Env = append(r.Env, "HOSTNAME="+name)
	}
	for _, v := range c.Env { // the last one of a name counts
		r.Env = append(r.Env, v.Name+"="+v.Value)
	}
	r.Env = append(r.Env, mountsEnv+"="+e.path("containers", id, "mounts"), markEnv+"="+id)
	return r
}

// furnish makes the directory a container works in, and the links to its volumes.
func (e *Engine) furnish(r *containerRecord) error {
	dir, err := os.OpenRoot(e.path("containers", r.ID))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Mkdir("work", 0o700); err != nil {
		return err
	}
	if uid, gid := ids(&r.Config); uid != os.Geteuid() || gid != os.Getegid() {
		if err := dir.Chown("work", uid, gid); err != nil {
			return err
		}
	}
	if err := dir.Mkdir("mounts", 0o755); err != nil {
		return err
	}
	links, err := dir.OpenRoot("mounts")
	if err != nil {
		return err
	}
	defer links.Close()
	for _, m := range r.Config.Mounts {
		at := strings.TrimPrefix(filepath.Clean("/"+m.ContainerPath), "/")
		if parent := filepath.Dir(at); parent != "." {
			if err := links.MkdirAll(parent, 0o755); err != nil {
				return fmt.Errorf("link volume at %s (a volume cannot lie below another one): %w", m.ContainerPath, err)
			}
		}
		if err := links.Symlink(m.HostPath, at); err != nil {
			return fmt.Errorf("link volume at %s: %w", m.ContainerPath, err)
		}
	}
	return nil
}

// StartContainer has a shim start a created container, and returns when its first process runs.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	err := e.begin(ctx)
	var c *containerRecord
	if err == nil {
		c, err = e.container(id)
	}
	var s *sandboxRecord
	if err == nil {
		s, err = e.sandbox(c.Sandbox)
	}
	var l life
	if err == nil {
		l, err = e.life(ctx, id)
	}
	switch {
	case err != nil:
	case l.state != runtime.Created || l.shim.PID != 0:
		err = fmt.Errorf("it is %v already", l.state)
	case !e.ready(s):
		err = errors.New("its sandbox is not ready")
	default:
		err = e.launch(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("start container %s: %w", id, err)
	}
	return nil
}

// killPatience is how long a shim has to kill its container before it is killed itself.
const killPatience = 3 * time.Second

// StopContainer has the shim signal the container's first process and all of its group.
func (e *Engine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	err := e.begin(ctx)
	if err == nil && grace > 0 {
		err = e.request(ctx, id, askSignal, grace)
	}
	if err == nil {
		err = e.request(ctx, id, killSignal, killPatience)
	}
	if err == nil {
		err = e.killShim(ctx, id)
	}
	if err != nil && !errors.Is(err, runtime.ErrNotFound) {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// request sends a shim a signal and waits for the container to end, for as long as patience lasts.
func (e *Engine) request(ctx context.Context, id string, how os.Signal, patience time.Duration) error {
	give, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d time.Duration
	for sent := false; ; {
		if _, err := e.container(id); err != nil {
			return err
		}
		l, err := e.life(ctx, id)
		if err != nil || l.over() {
			return err
		}
		if !sent {
			if err := l.shim.signal(how); err != nil {
				return err
			}
			sent = true
		}
		if pause(give, &d) != nil {
			return ctx.Err()
		}
	}
}

// killShim ends a container whose shim does not do as it is asked.
func (e *Engine) killShim(ctx context.Context, id string) error {
	var d time.Duration
	for {
		l, err := e.life(ctx, id)
		if err != nil || l.over() {
			return err
		}
		e.cfg.Observe.Logger().Warn("a shim does not end its container and is killed", "container", id, "pid", l.shim.PID)
		if err := l.shim.signal(os.Kill); err != nil {
			return err
		}
		if err := pause(ctx, &d); err != nil {
			return err
		}
	}
}

// RemoveContainer kills a container and forgets it.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	err := e.begin(ctx)
	if err == nil {
		_, err = e.container(id)
	}
	if err == nil {
		// From here on it cannot be started.
		err = writeOnce(e.path("containers", id, shimFile), ident{Boot: e.boot})
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = e.StopContainer(ctx, id, 0)
	}
	if err == nil {
		err = e.exclusive(ctx, func() error {
			changed(e.cfg.Root, id)
			return e.drop("containers", id)
		})
		os.Remove(e.path("changes", id))
	}
	if err != nil && !errors.Is(err, runtime.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}

// ReopenLog has the shim open the log file anew and returns when the file is there.
func (e *Engine) ReopenLog(ctx context.Context, id string) error {
	err := e.begin(ctx)
	var c *containerRecord
	if err == nil {
		c, err = e.container(id)
	}
	var l life
	if err == nil {
		l, err = e.life(ctx, id)
	}
	if err == nil && l.state != runtime.Running {
		err = fmt.Errorf("it is %v", l.state)
	}
	if err == nil {
		err = l.shim.signal(reopenSignal)
	}
	var d time.Duration
	for err == nil && c.LogPath != "" {
		if _, missing := os.Stat(c.LogPath); missing == nil {
			break
		}
		if l, err = e.life(ctx, id); err == nil && l.over() {
			break
		}
		err = pause(ctx, &d)
	}
	if err != nil {
		return fmt.Errorf("reopen the log of container %s: %w", id, err)
	}
	return nil
}
