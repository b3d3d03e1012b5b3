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
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

// login1 is a logind on a bus of its own.
type login1 struct{ held chan *os.File }

// Inhibit gives out a lock and keeps its other end.
func (l *login1) Inhibit(what, who, _, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || who != "kubelet" || mode != "delay" {
		return 0, dbus.MakeFailedError(errors.New("not what was to be asked for"))
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.held <- ours
	fd := dbus.UnixFD(theirs.Fd())
	time.AfterFunc(time.Second, func() { _ = theirs.Close() }) // once it is sent
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

func TestOverARealBus(t *testing.T) {
	conn := privateBus(t)
	l := &login1{held: make(chan *os.File, 2)}
	_, err := prop.Export(conn, path, prop.Map{manager: {"InhibitDelayMaxUSec": {Value: uint64(30_000_000)}}})
	if err := errors.Join(err, conn.Export(l, path, manager)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName(login, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done, told, ready := make(chan error, 1), make(chan bool), make(chan struct{})
	go func() {
		done <- Notice{}.Watch(ctx, 30*time.Second, func(down bool) <-chan struct{} {
			told <- down
			return ready
		})
	}()
	lock := <-l.held
	if err := conn.Emit(path, manager+"."+member, true); err != nil {
		t.Fatal(err)
	}
	if !<-told {
		t.Error("it was told the opposite")
	}
	close(ready)
	if _, err := lock.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // both copies of the other end are closed
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
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	_, _ = second.Read(make([]byte, 1))
	_ = errors.Join(lock.Close(), second.Close())
}
