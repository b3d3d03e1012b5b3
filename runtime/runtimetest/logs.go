package runtimetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Print lets a running container print a line. Without Engine.Logs nobody sees it.
func (e *Engine) Print(id, text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	return e.write(c, Line{Text: text})
}

// ReopenLog opens the log file anew.
func (e *Engine) ReopenLog(ctx context.Context, id string) error {
	return doErr(ctx, e, Call{Method: "ReopenLog", ID: id}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		c := e.containers[id]
		switch {
		case c == nil:
			return notFound("container", id)
		case c.State != runtime.Running:
			return fmt.Errorf("reopen the log of container %s: it is %v", id, c.State)
		}
		return e.openLog(c)
	})
}

// openLog opens the log file of a container where logs are asked for. The caller holds mu.
func (e *Engine) openLog(c *container) error {
	if !e.Logs || c.LogPath == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.LogPath), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(c.LogPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	closeLog(c)
	c.log = f
	return nil
}

// write adds one line in the CRI format. The caller holds mu.
func (e *Engine) write(c *container, l Line) error {
	if c.log == nil {
		return nil
	}
	stream := "stdout"
	if l.Stderr {
		stream = "stderr"
	}
	_, err := fmt.Fprintf(c.log, "%s %s F %s\n", time.Now().Format(time.RFC3339Nano), stream, l.Text)
	return err
}

func closeLog(c *container) {
	if c.log != nil {
		_ = c.log.Close() // nothing is buffered
		c.log = nil
	}
}
