package bed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// newState chooses the network of a new bed, beside all networks this machine has.
func newState(ctx context.Context, dir string) (state, error) {
	links, err := net.Interfaces()
	if err != nil {
		return state{}, fmt.Errorf("list network interfaces: %w", err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	// The routes of every table include the networks of the interfaces.
	routes, err := output(ctx, nil, "ip", "-4", "-o", "route", "show", "table", "all")
	if err != nil {
		return state{}, err
	}
	bridge, subnet, err := chooseNetwork(key(dir), names, prefixes(routes))
	return state{Bridge: bridge, Subnet: subnet.String()}, err
}

// EnsureBridge makes the bridge of the bed's pods before there is a pod, so that servers can listen on its
// address, and returns that address with the size of the pods' network. The bed must be up.
func (b *Bed) EnsureBridge(ctx context.Context) (netip.Prefix, error) {
	s, err := b.load(ctx)
	if err != nil {
		return netip.Prefix{}, err
	}
	subnet, err := netip.ParsePrefix(s.Subnet)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("read the subnet of the bed: %w", err)
	}
	gateway := netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits())
	if _, err := net.InterfaceByName(s.Bridge); err == nil {
		return gateway, nil
	}
	if _, err := output(ctx, nil, "ip", "link", "add", s.Bridge, "type", "bridge"); err != nil {
		return gateway, err
	}
	link, err := net.InterfaceByName(s.Bridge)
	if err != nil {
		return gateway, fmt.Errorf("make bridge: %w", err)
	}
	for _, args := range [][]string{
		// An address that was set stays; one that the bridge chose changes with the pods that come and go.
		{"link", "set", s.Bridge, "address", link.HardwareAddr.String(), "up"},
		{"address", "add", gateway.String(), "brd", "+", "dev", s.Bridge},
	} {
		if _, err := output(ctx, nil, "ip", args...); err != nil {
			return gateway, err
		}
	}
	return gateway, nil
}

// prefixes finds the IPv4 networks and addresses in a listing of routes.
func prefixes(listing string) []netip.Prefix {
	var found []netip.Prefix
	for word := range strings.FieldsSeq(listing) {
		if p, err := netip.ParsePrefix(word); err == nil {
			found = append(found, p)
		} else if a, err := netip.ParseAddr(word); err == nil && a.Is4() {
			found = append(found, netip.PrefixFrom(a, 32))
		}
	}
	return found
}

// chooseNetwork picks a bridge name and a network of 1024 addresses out of 10.192.0.0/10. Where the search
// begins depends on key, so that two beds made at once are not after the same.
func chooseNetwork(key string, links []string, taken []netip.Prefix) (string, netip.Prefix, error) {
	// The default route overlaps everything and says nothing.
	taken = slices.DeleteFunc(slices.Clone(taken), func(p netip.Prefix) bool { return p.Bits() == 0 })
	bridge := uniqueName("kk-"+key, links)
	const blocks = 1 << 12 // networks of size /22 in a /10
	var first uint32
	for _, c := range []byte(key) {
		first = first*31 + uint32(c)
	}
	for i := range uint32(blocks) {
		subnet := block((first + i) % blocks)
		if !slices.ContainsFunc(taken, subnet.Overlaps) {
			return bridge, subnet, nil
		}
	}
	return "", netip.Prefix{}, errors.New("choose a network: all of 10.192.0.0/10 is in use on this machine")
}

// block is the n-th network of size /22 in 10.192.0.0/10.
func block(n uint32) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24|192<<16|n<<10)
	return netip.PrefixFrom(netip.AddrFrom4(a), 22)
}

// uniqueName varies a name of an interface until nobody has it.
func uniqueName(name string, taken []string) string {
	candidate := name
	for i := 1; slices.Contains(taken, candidate); i++ {
		candidate = fmt.Sprintf("%s-%d", name, i)
	}
	return candidate
}

// enableForwarding lets this machine route for its pods.
func enableForwarding() error {
	const knob = "/proc/sys/net/ipv4/ip_forward"
	if now, err := os.ReadFile(knob); err == nil && strings.TrimSpace(string(now)) == "1" {
		return nil
	}
	if err := os.WriteFile(knob, []byte("1"), 0o644); err != nil {
		return fmt.Errorf("enable forwarding for pods: %w", err)
	}
	return nil
}
