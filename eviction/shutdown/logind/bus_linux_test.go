package logind

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

// lock is one that was given out: the end that tells when it is let go, and this program's copy of the other one, to be closed
// once it was sent.
type lock struct{ ours, theirs *os.File }

// login1 is a logind on a bus of its own.
type login1 struct {
	held chan lock
	slow chan struct{} // answers come once this is closed; nil: at once
}

// Inhibit gives out a lock and keeps its other end.
func (l *login1) Inhibit(what, who, _, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || who != "kubelet" || mode != "delay" {
		return 0, dbus.MakeFailedError(errors.New("not what was to be asked for"))
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	fd := dbus.UnixFD(theirs.Fd())
	l.held <- lock{ours, theirs}
	if l.slow != nil {
		<-l.slow
	}
	return fd, nil
}

// privateBus starts a bus and makes it the system's for this test.
func privateBus(t *testing.T) *dbus.Conn {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("there is no dbus-daemon")
	}
	config := filepath.Join(t.TempDir(), "bus.conf")
	const open = `<busconfig><type>system</type><listen>unix:tmpdir=/tmp</listen><policy context="default">
<allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/><allow user="*"/></policy></busconfig>`
	if err := os.WriteFile(config, []byte(open), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), daemon, "--nofork", "--print-address", "--config-file="+config)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address = strings.TrimSpace(address)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// serve puts a logind on a private bus.
func (l *login1) serve(t *testing.T) *dbus.Conn {
	t.Helper()
	conn := privateBus(t)
	_, err := prop.Export(conn, path, prop.Map{manager: {"InhibitDelayMaxUSec": {Value: uint64(30_000_000)}, "PreparingForShutdown": {Value: false}}})
	if err := errors.Join(err, conn.Export(l, path, manager)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName(login, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A lock whose taker has given up meanwhile would hold shutdowns up as long as the program runs.
func TestALockThatComesTooLateIsLetGo(t *testing.T) {
	l := &login1{held: make(chan lock, 1), slow: make(chan struct{})}
	l.serve(t)
	b, err := system(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := b.(systemd)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	done := make(chan error, 1)
	go func() {
		_, err := s.inhibit(ctx)
		done <- err
	}()
	lock := <-l.held
	defer lock.ours.Close()
	giveUp()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(l.slow)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.came.mu.Lock()
		n := len(s.came.left)
		s.came.mu.Unlock()
		if n > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the answer has not come within a minute")
		}
	}
	if err := errors.Join(s.Close(), lock.theirs.Close()); err != nil {
		t.Error(err)
	}
	if err := lock.ours.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it is still held: %v", err)
	}
}

func TestDescriptorsThatComeAfterTheEndAreClosed(t *testing.T) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	fd, err := syscall.Dup(int(theirs.Fd()))
	if err := errors.Join(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	var d descriptors
	d.close()
	d.in(&dbus.Message{Body: []any{"something else", dbus.UnixFD(fd)}})
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestOverARealBus(t *testing.T) {
	l := &login1{held: make(chan lock, 2)}
	conn := l.serve(t)
	ctx, stop := context.WithCancel(t.Context())
	done, told, ready := make(chan error, 1), make(chan bool), make(chan struct{})
	go func() {
		done <- Notice{}.Watch(ctx, 30*time.Second, func(down bool) <-chan struct{} {
			told <- down
			return ready
		})
	}()
	first := <-l.held
	if <-told {
		t.Error("none has begun")
	}
	_ = first.theirs.Close() // the other side has its own by now
	if err := conn.Emit(path, manager+"."+member, true); err != nil {
		t.Fatal(err)
	}
	if !<-told {
		t.Error("it was told the opposite")
	}
	close(ready)
	if _, err := first.ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // both copies of the other end are closed
		t.Error(err)
	}
	if err := conn.Emit(path, manager+"."+member, false); err != nil {
		t.Fatal(err)
	}
	if <-told {
		t.Error("it was told the opposite")
	}
	second := <-l.held
	if err := conn.Emit(path, manager+"."+member, true); err != nil { // is heard once the second lock has come
		t.Fatal(err)
	}
	if !<-told {
		t.Error("it was told the opposite")
	}
	_ = second.theirs.Close()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	_, _ = second.ours.Read(make([]byte, 1))
	_ = errors.Join(first.ours.Close(), second.ours.Close())
}
