package nodestatus

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// interfaceAddrs are the addresses of all interfaces of this host.
func interfaceAddrs() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	return plain(addrs), nil
}

func plain(addrs []net.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap().WithZone(""))
		}
	}
	return out
}

// routeAddrs are the addresses of the interface by which traffic leaves this host: that of the default route, of the
// preferred family if it has one.
func routeAddrs(ctx context.Context, v6 bool) ([]netip.Addr, error) {
	v4Name, err4 := defaultRoute("/proc/net/route", defaultRouteV4)
	v6Name, err6 := defaultRoute("/proc/net/ipv6_route", defaultRouteV6)
	if errors.Is(err4, fs.ErrNotExist) && errors.Is(err6, fs.ErrNotExist) { // not Linux
		return outgoing(ctx, v6)
	}
	names := []string{v4Name, v6Name}
	if v6 {
		names = []string{v6Name, v4Name}
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		nic, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %s of the default route: %w", name, err)
		}
		addrs, err := nic.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of interface %s: %w", name, err)
		}
		return plain(addrs), nil
	}
	return nil, errors.Join(errors.New("this host has no default route"), err4, err6)
}

// outgoing asks the system which address it would send from. Nothing is sent.
func outgoing(ctx context.Context, v6 bool) ([]netip.Addr, error) {
	network, target := "udp4", "192.0.2.1:9"
	if v6 {
		network, target = "udp6", "[2001:db8::1]:9"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, target)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	from, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return nil, err
	}
	return []netip.Addr{from.Addr().Unmap()}, nil
}

func defaultRoute(file string, parse func(table string) string) (string, error) {
	table, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return parse(string(table)), nil
}

const routeUp, routeReject = 1, 0x200 // flags of a route

// defaultRouteV4 finds the interface of the default route with the lowest metric in what /proc/net/route says.
func defaultRouteV4(table string) string {
	name, best := "", uint64(0)
	for line := range strings.Lines(table) {
		f := strings.Fields(line) // Iface Destination Gateway Flags RefCnt Use Metric Mask ...
		if len(f) < 8 || !isZero(f[1]) || !isZero(f[7]) {
			continue
		}
		flags, err1 := strconv.ParseUint(f[3], 16, 32)
		metric, err2 := strconv.ParseUint(f[6], 10, 32)
		if err1 != nil || err2 != nil || flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		if name == "" || metric < best {
			name, best = f[0], metric
		}
	}
	return name
}

// defaultRouteV6 does the same in what /proc/net/ipv6_route says.
func defaultRouteV6(table string) string {
	name, best := "", uint64(0)
	for line := range strings.Lines(table) {
		f := strings.Fields(line) // destination len source len nexthop metric refcnt use flags iface
		if len(f) < 10 || !isZero(f[0]) || f[1] != "00" || f[9] == "lo" {
			continue
		}
		metric, err1 := strconv.ParseUint(f[5], 16, 32)
		flags, err2 := strconv.ParseUint(f[8], 16, 32)
		if err1 != nil || err2 != nil || flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		if name == "" || metric < best {
			name, best = f[9], metric
		}
	}
	return name
}

// isZero says that a text is a hexadecimal number of only zeros.
func isZero(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) > 0 && strings.Trim(text, "0") == ""
}
