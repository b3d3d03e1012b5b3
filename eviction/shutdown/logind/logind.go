package logind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Notice watches logind. The zero value works.
type Notice struct {
	ConfigDir string // of logind; empty: /etc/systemd/logind.conf.d

	// Short is told that shutdowns are held up, but for less than is needed: logind's configuration cannot be written, or another file
	// of it counts more. What has ended by then has ended in order. nil: nobody needs to know.
	Short func(err error)

	connect func(ctx context.Context) (bus, error) // nil: the system bus
}

// bus is what is asked of systemd.
type bus interface {
	io.Closer
	delay(ctx context.Context) (time.Duration, error)   // how long a lock delays a shutdown at most
	reload(ctx context.Context) error                   // of logind's configuration
	inhibit(ctx context.Context) (io.Closer, error)     // closing it lets go
	shutdowns(ctx context.Context) (<-chan bool, error) // closed with the connection
	preparing(ctx context.Context) (bool, error)        // a shutdown has begun
}

// Watch tells whether a shutdown has begun, and of those that do, until ctx ends or the connection is lost.
func (n Notice) Watch(ctx context.Context, need time.Duration, tell func(down bool) (ready <-chan struct{})) error {
	connect := n.connect
	if connect == nil {
		connect = system
	}
	b, err := connect(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("connect to the system bus: %w", err)
	}
	defer func() { _ = b.Close() }() // nothing is written any more
	if err := n.watch(ctx, b, need, tell); ctx.Err() == nil {
		return err
	}
	return nil
}

func (n Notice) watch(ctx context.Context, b bus, need time.Duration, tell func(down bool) (ready <-chan struct{})) error {
	news, err := b.shutdowns(ctx)
	if err != nil {
		return fmt.Errorf("subscribe to shutdowns: %w", err)
	}
	begun, err := b.preparing(ctx) // before anybody was there to hear of it
	if err != nil {
		return fmt.Errorf("ask whether a shutdown has begun: %w", err)
	}
	lock := holder{bus: b}
	defer lock.free()
	if !begun { // else nothing holds it up any more
		if err := n.grant(ctx, b, need); err != nil {
			return err
		}
		if err := lock.take(ctx); err != nil {
			return err
		}
	}
	ready := tell(begun)
	if !begun {
		ready = nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case down, ok := <-news:
			if !ok {
				return errors.New("the connection to the system bus is lost")
			}
			if ready = tell(down); !down {
				ready = nil
				if err := lock.take(ctx); err != nil {
					return err
				}
			}
		case <-ready:
			lock.free()
			ready = nil
		}
	}
}

// holder has a lock, or none.
type holder struct {
	bus  bus
	lock io.Closer
}

// take takes the lock anew: that of a shutdown which was called off is void.
func (h *holder) take(ctx context.Context) error {
	h.free()
	lock, err := h.bus.inhibit(ctx)
	if err != nil {
		return fmt.Errorf("hold up shutdowns: %w", err)
	}
	h.lock = lock
	return nil
}

func (h *holder) free() {
	if h.lock != nil {
		_ = h.lock.Close() // it is gone either way
		h.lock = nil
	}
}

const (
	polls = 5 // of the new configuration; the wait doubles each time
	wait  = 100 * time.Millisecond
)

// grant has logind delay shutdowns for long enough, if it can be had to.
func (n Notice) grant(ctx context.Context, b bus, need time.Duration) error {
	has, err := b.delay(ctx)
	if err != nil {
		return fmt.Errorf("ask how long a shutdown is held up: %w", err)
	}
	if has >= need {
		return nil
	}
	switch err := n.lengthen(ctx, b, has, need); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && n.Short != nil:
		n.Short(err)
	}
	return nil
}

// lengthen writes into logind's configuration what is needed. An error says what holds instead.
func (n Notice) lengthen(ctx context.Context, b bus, has, need time.Duration) (err error) {
	holds := func(err error) error {
		return fmt.Errorf("logind holds a shutdown up for %v, %v are needed: %w", has, need, err)
	}
	file := filepath.Join(cmp.Or(n.ConfigDir, "/etc/systemd/logind.conf.d"), "99-kubelet.conf")
	if err := replace(file, fmt.Sprintf("# Written by the node agent: its pods need this long to end.\n[Login]\nInhibitDelayMaxSec=%d\n", int64((need+time.Second-1)/time.Second))); err != nil {
		return holds(err)
	}
	if err := b.reload(ctx); err != nil {
		return holds(fmt.Errorf("have it read %s: %w", file, err))
	}
	pause := wait
	for range polls {
		if has, err = b.delay(ctx); err == nil && has >= need {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		pause *= 2
	}
	return holds(cmp.Or(err, fmt.Errorf("another file of its configuration overrides %s", file)))
}

// replace writes a file as a whole or not at all.
func replace(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".99-kubelet-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
	}
	return err
}
