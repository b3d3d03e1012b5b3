//go:build !linux

package process

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Elsewhere than on Linux New gives no engine, so nothing of this is reached.
const (
	supported    = false
	ownProgram   = ""
	shimDir      = "KUBELETKIT_SHIM"
	markEnv      = "KUBELETKIT_CONTAINER"
	askSignal    = syscall.SIGTERM
	killSignal   = syscall.SIGKILL
	reopenSignal = syscall.SIGHUP
)

// Shim returns false: there are no shims here.
func Shim() bool { return false }

// Exec answers errors.ErrUnsupported.
func (e *Engine) Exec(context.Context, string, []string) (runtime.ExecResult, error) {
	return runtime.ExecResult{}, errors.ErrUnsupported
}

// Events answers errors.ErrUnsupported.
func (e *Engine) Events(context.Context, func(runtime.Event)) error { return errors.ErrUnsupported }

// ContainerStats answers errors.ErrUnsupported.
func (e *Engine) ContainerStats(context.Context, runtime.Filter) ([]runtime.Usage, error) {
	return nil, errors.ErrUnsupported
}

func (e *Engine) launch(context.Context, *containerRecord) error { return errors.ErrUnsupported }

func bootID() string                             { return "" }
func sweep(string)                               {}
func (i ident) alive() bool                      { return false }
func (i ident) signal(os.Signal) error           { return errors.ErrUnsupported }
func signalNamed(string) (syscall.Signal, error) { return 0, errors.ErrUnsupported }
func tryLock(*os.File) (bool, error)             { return false, errors.ErrUnsupported }
