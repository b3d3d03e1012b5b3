//go:build !unix

package probe

import "net"

func dialer() *net.Dialer { return new(net.Dialer) }
