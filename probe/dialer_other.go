//go:build !unix

package probe

import "net"

// Dialer makes connections as every check here does.
func Dialer() *net.Dialer { return &net.Dialer{KeepAlive: -1} }
