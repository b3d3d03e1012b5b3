//go:build unix

package probe

import (
	"net"
	"syscall"
)

// Dialer makes connections as every check here does. Like the kubelet's they linger for a second at most when closed
// with something unsent, and are not reset. Keep-alive is off: no check lives long enough for it.
func Dialer() *net.Dialer {
	return &net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// A socket that does not know this option still connects.
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}
