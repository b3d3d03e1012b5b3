package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

const annotationNodeIP = "alpha.kubernetes.io/provided-node-ip"

// Addressing says by which addresses a node is reached. Hostname is required; every other field works at zero.
type Addressing struct {
	Hostname      string
	NodeIPs       []netip.Addr // see [ParseNodeIP]; none: found out
	ExternalCloud bool         // a cloud controller has the last word

	// How things are found out; nil: from this host.
	Local        func() ([]netip.Addr, error)                                 // addresses of all interfaces
	Lookup       func(ctx context.Context, name string) ([]netip.Addr, error) // of the node's name
	DefaultRoute func(ctx context.Context, v6 bool) ([]netip.Addr, error)     // addresses of the interface traffic leaves by
}

// Addresses sets the node's addresses: internal ones and the hostname. A node IP that was given must be on an interface of
// this host. Without one the node's name is asked for in DNS, then the interface of the default route; that is done once a
// minute, and at once when the address is no longer on this host. An address the node has already stays as long as it is
// among these answers, or while DNS gives none: one that comes and goes beside it changes nothing.
func Addresses(a Addressing) Setter {
	if a.Local == nil {
		a.Local = interfaceAddrs
	}
	if a.Lookup == nil {
		a.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if a.DefaultRoute == nil {
		a.DefaultRoute = routeAddrs
	}
	return (&addresser{Addressing: a}).set
}

// addresser remembers when it looked for the address last.
type addresser struct {
	Addressing
	looked time.Time
}

const lookEvery = time.Minute // for the address of a node that was not told it

func (a *addresser) set(ctx context.Context, node *v1.Node) error {
	local, err := a.Local()
	if err != nil {
		return fmt.Errorf("list this host's addresses: %w", err)
	}
	given := slices.DeleteFunc(slices.Clone(a.NodeIPs), netip.Addr.IsUnspecified)
	for _, ip := range given {
		if err := usable(ip, local); err != nil {
			return err
		}
	}
	if a.ExternalCloud && len(given) > 0 {
		setKey(&node.Annotations, annotationNodeIP, join(given))
	} else {
		delete(node.Annotations, annotationNodeIP)
	}
	ips := given
	switch {
	case a.ExternalCloud && len(node.Status.Addresses) > 0:
		return nil
	case a.ExternalCloud && len(a.NodeIPs) == 0: // only the controller knows
	case len(given) == 0:
		ip, err := a.find(ctx, node, local)
		if err != nil {
			return fmt.Errorf("find the address of node %s: %w", node.Name, err)
		}
		ips = []netip.Addr{ip}
	}
	node.Status.Addresses = nil
	for _, ip := range ips {
		node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: a.Hostname})
	return nil
}

// find finds the one address of a node that was not told it.
func (a *addresser) find(ctx context.Context, node *v1.Node, local []netip.Addr) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(a.Hostname); err == nil {
		return ip, nil
	}
	v6 := len(a.NodeIPs) > 0 && a.NodeIPs[0].Is6()
	has := internal(node)
	kept := has.IsValid() && usable(has, local) == nil
	if kept && time.Since(a.looked) < lookEvery {
		return has, nil
	}
	unusable := func(ip netip.Addr) bool { return usable(ip, local) != nil }
	found, err := a.Lookup(ctx, node.Name)
	if kept && !answered(err) {
		return has, nil
	}
	found = slices.DeleteFunc(unmapped(found), unusable)
	if len(found) == 0 {
		var routeErr error
		found, routeErr = a.DefaultRoute(ctx, v6)
		found = slices.DeleteFunc(unmapped(found), unusable)
		err = errors.Join(err, routeErr)
	}
	if len(found) == 0 {
		return netip.Addr{}, errors.Join(errors.New("neither its name nor a default route leads to an address of this host: give --node-ip"), err)
	}
	a.looked = time.Now()
	return pick(found, v6, has), nil
}

// answered says that DNS gave an answer, be it that there is no such name.
func answered(err error) bool {
	e, ok := errors.AsType[*net.DNSError](err)
	return err == nil || ok && e.IsNotFound
}

// internal is the first internal address a node has.
func internal(node *v1.Node) netip.Addr {
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == v1.NodeInternalIP {
			return ip
		}
	}
	return netip.Addr{}
}

// pick prefers the family, and in it the address the node has already.
func pick(found []netip.Addr, v6 bool, has netip.Addr) netip.Addr {
	if preferred := slices.DeleteFunc(slices.Clone(found), func(ip netip.Addr) bool { return ip.Is6() != v6 }); len(preferred) > 0 {
		found = preferred
	}
	if slices.Contains(found, has) {
		return has
	}
	return found[0]
}

// usable says why an address cannot be that of a node.
func usable(ip netip.Addr, local []netip.Addr) error {
	if err := plausible(ip); err != nil {
		return err
	}
	if !slices.Contains(local, ip) {
		return fmt.Errorf("node IP %s is on no interface of this host (it has %s): give another --node-ip, or none", ip, join(local))
	}
	return nil
}

func plausible(ip netip.Addr) error {
	switch {
	case ip.IsLoopback():
		return fmt.Errorf("node IP %s is a loopback address: other nodes cannot reach it", ip)
	case ip.IsMulticast():
		return fmt.Errorf("node IP %s is a multicast address", ip)
	case ip.IsLinkLocalUnicast():
		return fmt.Errorf("node IP %s is a link-local address: it means another host on each link", ip)
	}
	return nil
}

// ParseNodeIP reads the option --node-ip: one address, or one of each family; 0.0.0.0 or :: alone ask for a family.
// ignored are the parts that are no addresses.
func ParseNodeIP(text string) (ips []netip.Addr, ignored []string, err error) {
	if text == "" {
		return nil, nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		ip := net.ParseIP(part)
		if ip == nil {
			ignored = append(ignored, part)
			continue
		}
		addr, _ := netip.AddrFromSlice(ip)
		ips = append(ips, addr.Unmap())
	}
	switch {
	case len(ips) > 2 || len(ips) == 2 && ips[0].Is6() == ips[1].Is6():
		return nil, ignored, fmt.Errorf("--node-ip %q: give one address, or one IPv4 and one IPv6 address", text)
	case len(ips) == 2 && (ips[0].IsUnspecified() || ips[1].IsUnspecified()):
		return nil, ignored, fmt.Errorf("--node-ip %q: 0.0.0.0 and :: stand alone", text)
	}
	for _, ip := range ips {
		if err := plausible(ip); err != nil {
			return nil, ignored, fmt.Errorf("--node-ip %q: %w", text, err)
		}
	}
	return ips, ignored, nil
}

func join(ips []netip.Addr) string {
	texts := make([]string, len(ips))
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	return strings.Join(texts, ",")
}

func unmapped(ips []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, len(ips))
	for i, ip := range ips {
		out[i] = ip.Unmap().WithZone("")
	}
	return out
}

// addresses of a node as one text.
func addresses(node *v1.Node) string {
	var out []string
	for _, a := range node.Status.Addresses {
		out = append(out, string(a.Type)+"="+a.Address)
	}
	return strings.Join(out, ",")
}
