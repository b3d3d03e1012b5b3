package runtimetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Call is one call of an engine, as a Fault sees it.
type Call struct {
	Method    string               // name of the method, "RunSandbox"
	ID        string               // sandbox, container or image it is about; the sandbox for CreateContainer
	Pod       runtime.PodRef       // where it is known
	Container string               // name in the pod spec, where it is known
	Pull      *runtime.PullRequest // PullImage only
}

// Fault happens to a call before the engine acts. It may wait as long as ctx lasts; an error ends the
// call, which then has done nothing, unless it is one of Lost.
type Fault func(ctx context.Context, c Call) error

// Delay makes calls slow.
func Delay(d time.Duration) Fault {
	return func(ctx context.Context, _ Call) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			return nil
		}
	}
}

// Fail makes calls fail.
func Fail(err error) Fault { return func(context.Context, Call) error { return err } }

// Hang is a Fault: the call hangs until its ctx ends.
func Hang(ctx context.Context, _ Call) error {
	<-ctx.Done()
	return ctx.Err()
}

// Lost makes calls fail after the engine did what was asked: the answer was lost on the way.
func Lost(err error) Fault {
	return func(context.Context, Call) error { return &lostError{err} }
}

type lostError struct{ error }

// Times lets f happen to the first n calls only.
func Times(n int, f Fault) Fault {
	var seen atomic.Int64
	return func(ctx context.Context, c Call) error {
		if seen.Add(1) > int64(n) {
			return nil
		}
		return f(ctx, c)
	}
}

// Only lets f happen to the calls that match.
func Only(match func(Call) bool, f Fault) Fault {
	return func(ctx context.Context, c Call) error {
		if !match(c) {
			return nil
		}
		return f(ctx, c)
	}
}

// Inject lets f happen to each later call of a method, "" being every method. It takes the place of what
// was injected there before; nil takes it away.
func (e *Engine) Inject(method string, f Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f == nil {
		delete(e.faults, method)
		return
	}
	e.faults[method] = f
}

// Calls is how often a method was called, failed calls included.
func (e *Engine) Calls(method string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[method]
}

// do is the way of every call: faults first, then act.
func do[T any](ctx context.Context, e *Engine, c Call, act func() (T, error)) (T, error) {
	var none T
	err := e.suffer(ctx, c)
	lost, isLost := errors.AsType[*lostError](err)
	if err != nil && !isLost {
		return none, err
	}
	v, err := act()
	if isLost {
		return none, lost.error
	}
	return v, err
}

// doErr is do for methods that answer an error alone.
func doErr(ctx context.Context, e *Engine, c Call, act func() error) error {
	_, err := do(ctx, e, c, func() (struct{}, error) { return struct{}{}, act() })
	return err
}

func (e *Engine) suffer(ctx context.Context, c Call) error {
	e.mu.Lock()
	e.calls[c.Method]++
	faults := []Fault{e.faults[""], e.faults[c.Method]}
	if s := e.sandboxes[c.ID]; s != nil {
		c.Pod = s.PodRef
	}
	if k := e.containers[c.ID]; k != nil {
		c.Pod, c.Container = k.Pod, k.Name
	}
	e.mu.Unlock()
	for _, f := range faults {
		if f == nil {
			continue
		}
		if err := f(ctx, c); err != nil {
			return err
		}
	}
	return ctx.Err()
}
