package runtimetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Exec runs a command in a running container: by its Behavior, or by the rules of Shell.
func (e *Engine) Exec(ctx context.Context, id string, cmd []string) (runtime.ExecResult, error) {
	return do(ctx, e, Call{Method: "Exec", ID: id}, func() (runtime.ExecResult, error) {
		e.mu.Lock()
		c := e.containers[id]
		if c == nil {
			e.mu.Unlock()
			return runtime.ExecResult{}, notFound("container", id)
		}
		state, run, env, ended := c.State, c.does.Exec, c.config.Env, c.ended
		e.mu.Unlock()
		if state != runtime.Running {
			return runtime.ExecResult{}, fmt.Errorf("exec in container %s: it is %v", id, state)
		}
		if run != nil {
			return run(ctx, cmd)
		}
		r, err := runScript(ctx, interpret(cmd, env), isShell(cmd), ended)
		if err != nil {
			return r, fmt.Errorf("exec in container %s: %w", id, err)
		}
		return r, nil
	})
}

// runScript takes the time a script takes. A command unknown to a shell is exit code 127, without a shell
// it cannot be started. The end of the container kills it.
func runScript(ctx context.Context, s *script, shell bool, ended <-chan struct{}) (runtime.ExecResult, error) {
	if s.foreign && !shell {
		return runtime.ExecResult{}, fmt.Errorf("%w: %q: executable file not found in $PATH", runtime.ErrNoCommand, s.program)
	}
	var over <-chan time.Time
	if s.ends {
		t := time.NewTimer(s.at)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-ctx.Done():
		return runtime.ExecResult{}, ctx.Err()
	case <-ended:
		return runtime.ExecResult{Code: killed}, nil
	case <-over:
	}
	var out strings.Builder
	for _, l := range s.lines {
		out.WriteString(l.Text + "\n")
	}
	if s.foreign {
		out.WriteString("sh: " + s.program + ": not found\n")
	}
	return runtime.ExecResult{Code: int(s.code), Output: []byte(out.String())}, nil
}
