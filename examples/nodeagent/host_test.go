package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// Field report kubernetes/kubernetes#120720: pods on the host's network had another address than their node.
func TestPodsSeeTheAddressesOfTheirNode(t *testing.T) {
	for _, c := range []struct {
		rule, node string // kind=address of the Node object
		want       string
	}{
		{"there is no Node object", "", "10.0.0.1"},
		{"it has no address yet", "Hostname=n1", "10.0.0.1"},
		{"its own", "InternalIP=192.168.99.202 Hostname=n1", "192.168.99.202"},
		{"both families", "Hostname=n1 InternalIP=10.0.0.7 InternalIP=10.0.0.8 InternalIP=fd00::7", "10.0.0.7 fd00::7"},
		{"the first is the primary one", "InternalIP=fd00:0::7 InternalIP=10.0.0.7", "fd00::7 10.0.0.7"},
		{"internal ones first", "ExternalIP=203.0.113.7 ExternalDNS=n1.example InternalIP=10.0.0.7", "10.0.0.7"},
		{"an external one of the other family", "ExternalIP=2001:db8::7 InternalIP=10.0.0.7", "10.0.0.7 2001:db8::7"},
		{"only an external one", "ExternalIP=203.0.113.7", "203.0.113.7"},
	} {
		var n *v1.Node
		if c.node != "" {
			n = &v1.Node{}
		}
		for a := range strings.FieldsSeq(c.node) {
			kind, address, _ := strings.Cut(a, "=")
			n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeAddressType(kind), Address: address})
		}
		got := nodeAddresses(n)
		if len(got) == 0 {
			got = hostsOf(&options{hostIPs: []string{"10.0.0.1"}}, nil)()
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.rule, got, c.want)
		}
	}
}

func TestTheHostsResolver(t *testing.T) {
	dir := t.TempDir()
	there, missing := filepath.Join(dir, "there"), filepath.Join(dir, "missing")
	if err := os.WriteFile(there, []byte("nameserver 192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule, file string
		ips        []string
		want       string // servers of a pod that is to have the host's
		unread     bool
	}{
		{rule: "it is read", file: there, want: "192.0.2.1"},
		{rule: "it is missing, and no pod is left without names", file: missing, unread: true},
		{rule: "there is none: a resolver of each family of addresses", ips: []string{"10.0.0.7", "fd00::7"}, want: "127.0.0.1 ::1"},
		{rule: "nor an address", want: "127.0.0.1"},
	} {
		d := dns(&options{hostIPs: c.ips, kubelet: &v1beta1.KubeletConfiguration{ResolverConfig: &c.file}})
		p := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}}
		resolv, _ := d.For(p)
		if err := d.Unknown(p); strings.Join(resolv.Servers, " ") != c.want || errors.Is(err, fs.ErrNotExist) != c.unread || err != nil != c.unread {
			t.Errorf("%s: %q, %v", c.rule, resolv.Servers, err)
		}
	}
}

func TestUsable(t *testing.T) {
	for _, c := range []struct {
		rule, have string
		v6         bool
		want       string
	}{
		{"IPv4 is preferred", "127.0.0.1/8 fe80::1/64 fd00::7/64 10.0.0.7/24 10.0.0.8/24", false, "10.0.0.7"},
		{"unless IPv6 is asked for", "127.0.0.1/8 10.0.0.7/24 fe80::1/64 fd00::7/64", true, "fd00::7"},
		{"a host of IPv6 alone", "127.0.0.1/8 ::1/128 fe80::1/64 2001:db8::7/64", false, "2001:db8::7"},
		{"a host of IPv4 alone", "10.0.0.7/24", true, "10.0.0.7"},
		{"nothing that others can reach", "127.0.0.1/8 fe80::1/64 169.254.1.1/16", false, ""},
	} {
		var addrs []net.Addr
		for text := range strings.FieldsSeq(c.have) {
			ip, n, err := net.ParseCIDR(text)
			if err != nil {
				t.Fatal(err)
			}
			addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		if got := usable(addrs, c.v6); got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}
