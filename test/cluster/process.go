package cluster

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

	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// A service is a process of the cluster. At least one of its arguments names the cluster's directory: by that
// it is told from a stranger with the same process number.
type service struct {
	name  string // of its log and pid files
	file  string // the program
	args  []string
	ready func(ctx context.Context) error // nil once it answers; it is asked again and again for a minute
}

func (c *Cluster) pidFile(name string) string { return c.path("pids", name) }
func (c *Cluster) logFile(name string) string { return c.path("log", name+".log") }

// pid is the number of the service's process; zero: it does not run.
func (c *Cluster) pid(name string) int { return process.FromFile(c.pidFile(name), c.isOurs) }

func (c *Cluster) isOurs(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, c.dir+"/") })
}

// startAll starts services one after another.
func (c *Cluster) startAll(ctx context.Context, services ...service) error {
	for _, s := range services {
		if err := c.start(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// start starts a service unless it runs, in a session of its own, and waits until it is ready.
func (c *Cluster) start(ctx context.Context, s service) error {
	if c.pid(s.name) == 0 {
		if s.ready != nil && s.ready(ctx) == nil {
			return fmt.Errorf("start %s: another process answers in its place; is another cluster up on this machine?", s.name)
		}
		c.say("starting %s", s.name)
		if err := c.launch(ctx, s); err != nil {
			return fmt.Errorf("start %s: %w", s.name, err)
		}
	}
	if s.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := retry(ctx, 200*time.Millisecond, func() error {
		if c.pid(s.name) == 0 {
			return stop{errors.New("it has ended")}
		}
		return s.ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("start %s: %w; see %s", s.name, err, c.logFile(s.name))
	}
	return nil
}

// launch starts the process, and returns when it can be recognised, or has ended already.
func (c *Cluster) launch(ctx context.Context, s service) error {
	for _, file := range []string{c.pidFile(s.name), c.logFile(s.name)} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(c.logFile(s.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.file, s.args...) //nolint:noctx // it outlives us
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "PATH="+bed.BinDir()+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // its end must show while we are its parent
	if err := os.WriteFile(c.pidFile(s.name), fmt.Appendln(nil, cmd.Process.Pid), 0o644); err != nil {
		return err
	}
	return retry(ctx, time.Millisecond, func() error {
		select {
		case <-ended:
			return nil
		default:
		}
		if c.pid(s.name) == 0 { // the kernel shows the arguments a moment after the start
			return errors.New("it has no arguments")
		}
		return nil
	})
}

// end ends a service if it runs, politely, and after ten seconds not.
func (c *Cluster) end(ctx context.Context, name string) error {
	pid := c.pid(name)
	if pid == 0 {
		return nil
	}
	if err := process.End(ctx, pid, c.isOurs, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return os.Remove(c.pidFile(name))
}

// stop wraps an error that another try cannot mend.
type stop struct{ error }

func (s stop) Unwrap() error { return s.error }

// retry tries until it works, it can no longer work, or ctx ends; then it returns the last error.
func retry(ctx context.Context, pause time.Duration, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if final, ok := errors.AsType[stop](err); ok {
			return final.error
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
