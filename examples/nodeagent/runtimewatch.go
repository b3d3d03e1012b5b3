package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// runtimeWatch asks the runtime every few seconds how it is, and every second while it is down: pods wait for the answer
// then. It remembers the last one.
type runtimeWatch struct {
	info  func(ctx context.Context) (runtime.Info, error)
	fits  func(runtime.Info) error // an error ends the watch; nil: whatever answers is right
	back  func()                   // called when it is there again
	log   *slog.Logger
	every time.Duration // 0 means 5 s

	mu   sync.Mutex // guards the rest
	name string
	err  error
	seen bool
}

// Run asks until ctx ends, or a runtime answers that does not fit.
func (w *runtimeWatch) Run(ctx context.Context) error {
	every := w.every
	if every == 0 {
		every = 5 * time.Second
	}
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		if err := w.ask(ctx); err != nil {
			return err
		}
		if w.Healthy() == nil {
			next.Reset(every)
		} else {
			next.Reset(min(every, time.Second))
		}
	}
}

// ask asks once. The error is that the runtime does not fit.
func (w *runtimeWatch) ask(ctx context.Context) error {
	own, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := w.info(own)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil && w.fits != nil {
		if err := w.fits(info); err != nil {
			return err
		}
	}
	if err == nil && !info.Ready.OK {
		err = fmt.Errorf("the runtime is not ready: %s", info.Ready.Message)
	}
	w.mu.Lock()
	was, first := w.err, !w.seen
	w.err, w.seen = err, true
	if info.Name != "" {
		w.name = info.Name
	}
	w.mu.Unlock()
	switch {
	case err != nil && (was == nil || first):
		w.log.Error("the container runtime is down; pods keep running, and nothing can be started or stopped until it is back", "err", err)
	case err == nil && (was != nil || first):
		w.log.Info("the container runtime answers", "name", info.Name, "version", info.Version, "network", info.Network.OK)
		if was != nil {
			w.back()
		}
	}
	return nil
}

// Healthy is nil while the runtime answers and is ready.
func (w *runtimeWatch) Healthy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.seen {
		return errors.New("the container runtime has not been asked yet")
	}
	return w.err
}

// Name is the runtime's, empty until it has answered once.
func (w *runtimeWatch) Name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.name
}
