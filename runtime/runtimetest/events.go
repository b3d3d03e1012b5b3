package runtimetest

import (
	"context"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// listener is one call of Events. The engine's mu guards queue and broken.
type listener struct {
	queue  []runtime.Event
	broken error
	wake   chan struct{} // has room for one: there is something to look at
}

// Events tells every change of a sandbox or container made after the call began.
func (e *Engine) Events(ctx context.Context, tell func(runtime.Event)) error {
	err := doErr(ctx, e, Call{Method: "Events"}, func() error {
		l := &listener{wake: make(chan struct{}, 1)}
		e.mu.Lock()
		e.listeners[l] = struct{}{}
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.listeners, l)
		}()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-l.wake:
			}
			e.mu.Lock()
			queue, broken := l.queue, l.broken
			l.queue = nil
			e.mu.Unlock()
			for _, event := range queue {
				tell(event)
			}
			if broken != nil {
				return broken
			}
		}
	})
	if ctx.Err() != nil {
		err = nil // whatever else there was, it ended as it was asked to
	}
	return err
}

// BreakEvents ends all event streams with an error.
func (e *Engine) BreakEvents(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.listeners {
		l.broken = err
		l.nudge()
	}
}

// tell notes a change for all listeners. The caller holds mu.
func (e *Engine) tell(pod runtime.PodRef, id string) {
	gone := e.containers[id] == nil && e.sandboxes[id] == nil
	for l := range e.listeners {
		l.queue = append(l.queue, runtime.Event{Pod: pod, Container: id, At: time.Now(), Gone: gone})
		l.nudge()
	}
}

func (l *listener) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
