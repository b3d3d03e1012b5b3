package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/network"
)

// machineMemory is the memory of this machine in bytes, 0 when it cannot be told.
func machineMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64) // 0 is unknown
			return kib << 10
		}
	}
	return 0
}

// hostsOf are the addresses of this machine as pods see them, the primary one first: those of its Node object, so that both say
// the same whoever found them out, and its own as long as that has none.
func hostsOf(o *options, m *member) func() []string {
	return func() []string {
		if ips := nodeAddresses(m.nodeObject()); len(ips) > 0 {
			return ips
		}
		return o.hostIPs
	}
}

// nodeAddresses are the first of a node and the first of the other family, internal ones before external ones.
func nodeAddresses(n *v1.Node) (out []string) {
	if n == nil {
		return nil
	}
	var first netip.Addr
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			switch {
			case a.Type != kind || err != nil:
			case !first.IsValid():
				first, out = ip, []string{ip.String()}
			case len(out) == 1 && ip.Is6() != first.Is6():
				out = append(out, ip.String())
			}
		}
	}
	return out
}

// hostAddresses are those of --node-ip, else the one of the interface with the default route, else the first one that
// is not only for this machine; one of IPv4, unless there is none or IPv6 is asked for.
func hostAddresses(given []netip.Addr) (out []string) {
	for _, ip := range given {
		if !ip.IsUnspecified() {
			out = append(out, ip.String())
		}
	}
	if len(out) > 0 {
		return out
	}
	v6 := len(given) > 0 && given[0].Is6()
	if name := defaultInterface(); name != "" && !v6 {
		if i, err := net.InterfaceByName(name); err == nil {
			if addrs, err := i.Addrs(); err == nil {
				if a := usable(addrs, v6); a != "" {
					return []string{a}
				}
			}
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	if a := usable(addrs, v6); a != "" {
		return []string{a}
	}
	return nil
}

// usable is the first address that others can reach, if possible one of the family.
func usable(addrs []net.Addr, v6 bool) (found string) {
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case (n.IP.To4() == nil) == v6:
			return n.IP.String()
		case found == "":
			found = n.IP.String()
		}
	}
	return found
}

// defaultInterface is the one the default route goes through, empty when there is none.
func defaultInterface() string {
	b, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}

// dns is how pods resolve names. The host's file is read each time: it may change under us.
func dns(o *options) network.DNS {
	d := network.DNS{Servers: o.servers(), Domain: o.kubelet.ClusterDomain}
	file := value(o.kubelet.ResolverConfig)
	if file == "" { // a resolver of this machine
		d.Instead = &network.Resolv{Searches: []string{"."}}
		for _, ip := range o.hostIPs {
			loopback := "127.0.0.1"
			if strings.Contains(ip, ":") {
				loopback = "::1"
			}
			d.Instead.Servers = append(d.Instead.Servers, loopback)
		}
		if len(o.hostIPs) == 0 {
			d.Instead.Servers = []string{"127.0.0.1"}
		}
		return d
	}
	b, err := os.ReadFile(file)
	if err != nil {
		d.Unread = fmt.Errorf("resolvConf: %w; name the file that is there, or give an empty name on a host without one", err)
	}
	d.Host = network.Parse(b)
	return d
}
