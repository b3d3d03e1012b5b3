//go:build unix

package probe

import (
	"net"
	"syscall"
)

// Dialer makes connections as every check here does: their ports are free again a second after the check instead of a
// minute. A node with many probes would run out of ports and connection tracking entries.
func Dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// A socket that does not know this option still connects.
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}
