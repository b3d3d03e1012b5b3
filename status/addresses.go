package status

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// setAddresses sets host and pod addresses: at most one of each family, the node's primary family first.
func setAddresses(s *v1.PodStatus, in Input, old *v1.PodStatus) {
	hosts := onePerFamily(in.HostIPs)
	if len(hosts) == 0 { // not known just now
		s.HostIP, s.HostIPs = old.HostIP, old.HostIPs
	}
	for _, a := range hosts {
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: a.String()})
	}
	if len(s.HostIPs) > 0 {
		s.HostIP = s.HostIPs[0].IP
	}

	for _, a := range podAddresses(in, old, hosts, terminal(s.Phase)) {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: a.String()})
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

func podAddresses(in Input, old *v1.PodStatus, hosts []netip.Addr, over bool) []netip.Addr {
	seen := onePerFamily(in.Seen.IPs)
	before := oldAddresses(old)
	if in.Pod.Spec.HostNetwork {
		// Once told they stay; only a family the node got since is added.
		first := seen
		if len(before) > 0 {
			first = before
		}
		return firstOfFamily(append(first, hosts...))
	}
	if len(seen) == 0 && (over || in.Ended || in.Termination != nil) {
		return before // they outlive the sandbox
	}
	v6 := len(hosts) > 0 && hosts[0].Is6()
	if len(seen) == 2 && seen[0].Is6() != v6 {
		seen[0], seen[1] = seen[1], seen[0]
	}
	return seen
}

func oldAddresses(old *v1.PodStatus) []netip.Addr {
	ips := make([]string, 0, len(old.PodIPs)+1)
	if old.PodIP != "" {
		ips = append(ips, old.PodIP)
	}
	for _, ip := range old.PodIPs {
		ips = append(ips, ip.IP)
	}
	return onePerFamily(ips)
}

// onePerFamily parses addresses and keeps the first of each family. What is no address is left out.
func onePerFamily(ips []string) []netip.Addr {
	var all []netip.Addr
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			all = append(all, a.Unmap().WithZone(""))
		}
	}
	return firstOfFamily(all)
}

func firstOfFamily(all []netip.Addr) (out []netip.Addr) {
	for _, a := range all {
		if len(out) == 0 || len(out) == 1 && out[0].Is6() != a.Is6() {
			out = append(out, a)
		}
	}
	return out
}
