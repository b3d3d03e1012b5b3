package logind

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	login   = "org.freedesktop.login1"
	manager = "org.freedesktop.login1.Manager"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	member  = "PrepareForShutdown"
)

// systemd is the system bus.
type systemd struct {
	conn *dbus.Conn
	came *descriptors
}

func system(ctx context.Context) (bus, error) {
	came := new(descriptors)
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx), dbus.WithIncomingInterceptor(came.in))
	if err != nil {
		return nil, err
	}
	return systemd{conn, came}, nil
}

func (s systemd) Close() error {
	err := s.conn.Close()
	s.came.close()
	return err
}

// descriptors are those of files that have come over a connection and that nobody has taken: the answer to a call that was given
// up brings one, too, and a lock would be held by it as long as this program runs.
type descriptors struct {
	mu     sync.Mutex // guards the rest
	left   []dbus.UnixFD
	closed bool
}

// in is shown each message that comes.
func (d *descriptors) in(m *dbus.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range m.Body {
		fd, ok := v.(dbus.UnixFD)
		switch {
		case ok && d.closed:
			shut(fd)
		case ok:
			d.left = append(d.left, fd)
		}
	}
}

func shut(fd dbus.UnixFD) { _ = os.NewFile(uintptr(fd), "not wanted").Close() } // it is gone either way

// take leaves a descriptor to the caller.
func (d *descriptors) take(fd dbus.UnixFD) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = slices.DeleteFunc(d.left, func(l dbus.UnixFD) bool { return l == fd })
}

// close closes those that are left, and those that still come.
func (d *descriptors) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, fd := range d.left {
		shut(fd)
	}
	d.left, d.closed = nil, true
}

func (s systemd) delay(ctx context.Context) (time.Duration, error) {
	n, err := property[uint64](ctx, s.conn, "InhibitDelayMaxUSec")
	return time.Duration(min(n, 1<<53)) * time.Microsecond, err
}

func (s systemd) preparing(ctx context.Context) (bool, error) {
	return property[bool](ctx, s.conn, "PreparingForShutdown")
}

func property[T any](ctx context.Context, conn *dbus.Conn, name string) (value T, err error) {
	var v dbus.Variant
	if err := conn.Object(login, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, name).Store(&v); err != nil {
		return value, err
	}
	value, ok := v.Value().(T)
	if !ok {
		return value, fmt.Errorf("%s is a %T", name, v.Value())
	}
	return value, nil
}

func (s systemd) reload(ctx context.Context) error {
	return s.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		CallWithContext(ctx, "org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", int32(syscall.SIGHUP)).Err
}

func (s systemd) inhibit(ctx context.Context) (io.Closer, error) {
	var fd dbus.UnixFD
	call := s.conn.Object(login, path).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "kubelet", "pods are to be ended first", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, err
	}
	s.came.take(fd)
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// shutdowns ends with ctx or the connection.
func (s systemd) shutdowns(ctx context.Context) (<-chan bool, error) {
	err := s.conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface(manager), dbus.WithMatchMember(member), dbus.WithMatchObjectPath(path))
	if err != nil {
		return nil, err
	}
	signals := make(chan *dbus.Signal, 16) // one that finds no room is dropped
	s.conn.Signal(signals)
	out := make(chan bool)
	go func() { // ends when the connection is closed, which Watch does
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.conn.Context().Done():
				return
			case signal, ok := <-signals:
				if !ok {
					return
				}
				down, ok := about(signal)
				if !ok {
					continue
				}
				select {
				case out <- down:
				case <-ctx.Done():
					return
				case <-s.conn.Context().Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// about is what a signal says; false for another one.
func about(s *dbus.Signal) (down, ok bool) {
	if s.Name != manager+"."+member || len(s.Body) == 0 {
		return false, false
	}
	down, ok = s.Body[0].(bool)
	return down, ok
}
