package probe_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/kubeletkit/kubeletkit/probe"
)

func TestConnectionsLingerAndAreNotKeptAlive(t *testing.T) {
	s := serve(t, nil)
	conn, err := probe.Dialer().DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[int]int{syscall.SO_LINGER: 1, syscall.SO_KEEPALIVE: 0} {
		if err := raw.Control(func(fd uintptr) {
			if got, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, option); got != want || err != nil {
				t.Errorf("option %d is %d, %v; want %d", option, got, err, want)
			}
		}); err != nil {
			t.Error(err)
		}
	}
}
