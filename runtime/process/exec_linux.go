package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxOutput is how much of a command's output is kept.
const maxOutput = 16 << 20

// Exec runs a command beside a container: in its directory, with its environment, as its user. It ends with the container.
func (e *Engine) Exec(ctx context.Context, id string, command []string) (runtime.ExecResult, error) {
	r, err := e.exec(ctx, id, command)
	if err != nil {
		return runtime.ExecResult{}, fmt.Errorf("exec in container %s: %w", id, err)
	}
	return r, nil
}

func (e *Engine) exec(ctx context.Context, id string, command []string) (none runtime.ExecResult, err error) {
	if err := e.begin(ctx); err != nil {
		return none, err
	}
	c, err := e.container(id)
	if err != nil {
		return none, err
	}
	l, err := e.life(ctx, id)
	switch {
	case err != nil:
		return none, err
	case l.state != runtime.Running:
		return none, fmt.Errorf("it is %v", l.state)
	case len(command) == 0:
		return none, errors.New("no command")
	}
	program, err := lookPath(command[0], c.Dir, c.Env)
	if err != nil {
		return none, fmt.Errorf("%w: %w", runtime.ErrNoCommand, err)
	}
	var out limited
	cmd := exec.CommandContext(ctx, program)
	cmd.Args, cmd.Dir, cmd.Env = command, c.Dir, c.Env
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: credential(&c.Config)}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for the output of what it left behind
	err = cmd.Run()
	if cmd.Process == nil {
		return none, err
	}
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed && !errors.Is(err, exec.ErrWaitDelay) {
		return none, err
	}
	return runtime.ExecResult{Code: int(exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus)).Code), Output: out.b}, nil
}

// limited keeps the beginning of what is written.
type limited struct{ b []byte }

func (l *limited) Write(b []byte) (int, error) {
	l.b = append(l.b, b[:min(len(b), maxOutput-len(l.b))]...)
	return len(b), nil
}

// lookPath finds a program as the shell of that environment would, in that directory.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, executable(name)
	}
	path := ""
	for _, v := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
			break
		}
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		if candidate := filepath.Join(d, name); executable(candidate) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%q: executable file not found in PATH %s", name, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%q is no executable file", path)
	}
	return nil
}

// credential is who a container's processes are; nil: who the agent is.
func credential(c *runtime.ContainerConfig) *syscall.Credential {
	uid, gid := ids(c)
	if os.Geteuid() != 0 || uid == 0 && gid == 0 && len(c.Security.Groups) == 0 {
		return nil
	}
	groups := make([]uint32, len(c.Security.Groups))
	for i, g := range c.Security.Groups {
		groups[i] = uint32(g)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: groups}
}

// stdin is what a container reads: nothing, or with open something that never comes.
func stdin(open bool) (*os.File, error) {
	if !open {
		return os.Open(os.DevNull)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// The end to write to stays open as long as the shim lives, where nobody closes it.
	if _, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return nil, errors.Join(err, r.Close(), w.Close())
	}
	return r, w.Close()
}
