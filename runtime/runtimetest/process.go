package runtimetest

import (
	"context"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Behavior is what a container's process does. The zero value runs until it is asked to stop, and then
// ends at once with exit code 0.
type Behavior struct {
	Exits bool          // ends by itself, After its start, with Code
	After time.Duration // counted from its start
	Code  int32

	StopAfter time.Duration // from the stop signal to its end; Deaf never ends on a signal
	StopCode  int32         // exit code when the stop signal ended it

	Lines []Line // what it prints
	Fail  error  // starting it fails with this, and it exits with code 128

	// Exec runs commands in it; nil runs them by the rules of Shell.
	Exec func(ctx context.Context, cmd []string) (runtime.ExecResult, error)
}

// Deaf as Behavior.StopAfter is a process that does not heed the stop signal.
const Deaf = time.Duration(1<<63 - 1)

// Line is one line of output.
type Line struct {
	After  time.Duration // from the start of the process
	Stderr bool
	Text   string // without the newline
}

// start begins the process of a created container. The caller holds mu.
func (e *Engine) start(c *container, does Behavior) error {
	c.does = does
	c.Started, c.State = time.Now(), runtime.Running
	if does.Fail != nil {
		e.exit(c, 128)
		c.Reason, c.Message = "StartError", does.Fail.Error()
		return fmt.Errorf("start container %s: %w", c.ID, does.Fail)
	}
	if err := e.openLog(c); err != nil {
		return fmt.Errorf("start container %s: %w", c.ID, err)
	}
	for _, l := range does.Lines {
		e.after(c, l.After, func() { _ = e.write(c, l) }) // a full disk does not stop a process
	}
	e.tell(c.Pod, c.ID)
	if does.Exits {
		e.after(c, does.After, func() { e.exit(c, does.Code) })
	}
	return nil
}

// after lets f happen d later, unless the process has ended by then. The caller holds mu, and f is called
// with mu held.
func (e *Engine) after(c *container, d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	c.timers = append(c.timers, time.AfterFunc(d, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if c.State == runtime.Running {
			f()
		}
	}))
}

// signal asks a process to stop and returns a channel that is closed when it has; nil when nothing runs.
func (e *Engine) signal(id string) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.containers[id]
	if c == nil || c.State == runtime.Created || c.State == runtime.Exited {
		return nil
	}
	if !c.signalled && c.does.StopAfter != Deaf {
		c.signalled = true
		e.after(c, c.does.StopAfter, func() { e.exit(c, c.does.StopCode) })
	}
	return c.ended
}

// Exit ends a container's process by itself. One that has ended is left as it is.
func (e *Engine) Exit(id string, code int32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	e.exit(c, code)
	return nil
}

// exit ends a process where one runs. The caller holds mu.
func (e *Engine) exit(c *container, code int32) {
	if c.State != runtime.Running && c.State != runtime.Unknown {
		return
	}
	for _, t := range c.timers {
		t.Stop()
	}
	c.State, c.Finished, c.ExitCode, c.Reason = runtime.Exited, time.Now(), code, "Completed"
	if code != 0 {
		c.Reason = "Error"
	}
	closeLog(c)
	close(c.ended)
	e.tell(c.Pod, c.ID)
}

// forget kills and removes a container. The caller holds mu.
func (e *Engine) forget(c *container) {
	e.exit(c, killed)
	delete(e.containers, c.ID)
	e.tell(c.Pod, c.ID)
}
