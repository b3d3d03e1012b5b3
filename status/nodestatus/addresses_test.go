package nodestatus

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func ips(texts string) (out []netip.Addr) {
	for s := range strings.FieldsSeq(texts) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// nic is a host as Addresses sees it; times of looks are counted.
type nic struct {
	local, dns, route string
	dnsErr            error
	lookups           int
}

func (n *nic) addressing(nodeIPs string) Addressing {
	return Addressing{
		Hostname: "n1", NodeIPs: ips(nodeIPs),
		Local: func() ([]netip.Addr, error) { return ips(n.local), nil },
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			n.lookups++
			if n.dns == "" && n.dnsErr == nil {
				return nil, &net.DNSError{Err: "no such host", Name: "n1", IsNotFound: true}
			}
			return ips(n.dns), n.dnsErr
		},
		DefaultRoute: func(context.Context, bool) ([]netip.Addr, error) {
			if n.route == "" {
				return nil, errors.New("no default route")
			}
			return ips(n.route), nil
		},
	}
}

func TestCase_c146_node_ip(t *testing.T) {
	const all = "127.0.0.1 ::1 10.0.0.1 10.0.0.2 fd00::1 fe80::1"
	for _, c := range []struct {
		rule, nodeIPs string
		cloud         bool
		host          nic
		old           string // what the node has
		want, note    string // note is the annotation
		fails         string
	}{
		{rule: "one IPv4 address", nodeIPs: "10.0.0.2", want: "InternalIP=10.0.0.2,Hostname=n1"},
		{rule: "one IPv6 address", nodeIPs: "fd00::1", want: "InternalIP=fd00::1,Hostname=n1"},
		{rule: "both, IPv4 first", nodeIPs: "10.0.0.1 fd00::1", want: "InternalIP=10.0.0.1,InternalIP=fd00::1,Hostname=n1"},
		{rule: "both, IPv6 first", nodeIPs: "fd00::1 10.0.0.1", want: "InternalIP=fd00::1,InternalIP=10.0.0.1,Hostname=n1"},
		{rule: "not on this host", nodeIPs: "10.9.9.9", fails: "10.9.9.9 is on no interface", old: "10.0.0.1", want: "InternalIP=10.0.0.1"},
		{rule: "one of two not on this host", nodeIPs: "10.0.0.1 fd00::9", fails: "fd00::9 is on no interface"},
		{rule: "none: the name in DNS", host: nic{dns: "10.0.0.2"}, want: "InternalIP=10.0.0.2,Hostname=n1"},
		{rule: "none: DNS prefers IPv4", host: nic{dns: "fd00::1 10.0.0.2"}, want: "InternalIP=10.0.0.2,Hostname=n1"},
		{rule: "none: an IPv6 address rather than nothing", host: nic{dns: "fd00::1"}, want: "InternalIP=fd00::1,Hostname=n1"},
		{rule: "none: DNS says what is not here", host: nic{dns: "10.9.9.9 127.0.0.1 fe80::1", route: "10.0.0.1"}, want: "InternalIP=10.0.0.1,Hostname=n1"},
		{rule: "none: DNS does not answer", host: nic{dnsErr: errors.New("timeout"), route: "10.0.0.1"}, want: "InternalIP=10.0.0.1,Hostname=n1"},
		{rule: "none: the default route", host: nic{route: "fe80::1 fd00::1 10.0.0.1"}, want: "InternalIP=10.0.0.1,Hostname=n1"},
		{rule: "none: nothing helps", fails: "give --node-ip"},
		{rule: "0.0.0.0 asks for IPv4", nodeIPs: "0.0.0.0", host: nic{route: "fd00::1 10.0.0.1"}, want: "InternalIP=10.0.0.1,Hostname=n1"},
		{rule: ":: asks for IPv6", nodeIPs: "::", host: nic{route: "10.0.0.1 fd00::1"}, want: "InternalIP=fd00::1,Hostname=n1"},
		{rule: "a note of a former life goes", nodeIPs: "10.0.0.1", want: "InternalIP=10.0.0.1,Hostname=n1"},

		{rule: "with a cloud, none: only the name", cloud: true, host: nic{route: "10.0.0.1"}, want: "Hostname=n1"},
		{rule: "with a cloud, one: noted and used until the cloud speaks", cloud: true, nodeIPs: "10.0.0.1", want: "InternalIP=10.0.0.1,Hostname=n1", note: "10.0.0.1"},
		{rule: "with a cloud, both", cloud: true, nodeIPs: "fd00::1 10.0.0.1", want: "InternalIP=fd00::1,InternalIP=10.0.0.1,Hostname=n1", note: "fd00::1,10.0.0.1"},
		{rule: "with a cloud, 0.0.0.0: found but not noted", cloud: true, nodeIPs: "0.0.0.0", host: nic{route: "10.0.0.1"}, want: "InternalIP=10.0.0.1,Hostname=n1"},
		{rule: "with a cloud that has spoken: noted, not touched", cloud: true, nodeIPs: "10.0.0.1", old: "10.0.0.2", want: "InternalIP=10.0.0.2", note: "10.0.0.1"},
		{rule: "with a cloud that has spoken, none: the note goes", cloud: true, old: "10.0.0.2", want: "InternalIP=10.0.0.2"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			c.host.local = all
			a := c.host.addressing(c.nodeIPs)
			a.ExternalCloud = c.cloud
			n := &v1.Node{}
			n.Annotations = map[string]string{annotationNodeIP: "10.1.1.1"}
			if c.old != "" {
				n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: c.old}}
			}
			err := Addresses(a)(t.Context(), n)
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("error %v, want %q", err, c.fails)
			}
			if got := addresses(n); got != c.want {
				t.Errorf("addresses %q, want %q", got, c.want)
			}
			if got := n.Annotations[annotationNodeIP]; c.fails == "" && got != c.note {
				t.Errorf("note %q, want %q", got, c.note)
			}
		})
	}
}

func TestHostnameThatIsAnAddress(t *testing.T) {
	a := (&nic{local: "10.0.0.1"}).addressing("")
	a.Hostname = "10.0.0.9"
	n := &v1.Node{}
	if err := Addresses(a)(t.Context(), n); err != nil || addresses(n) != "InternalIP=10.0.0.9,Hostname=10.0.0.9" {
		t.Error(addresses(n), err)
	}
}

// A virtual address comes to the interface of the default route, and goes again.
func TestCase_c147_a_virtual_address_changes_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &nic{local: "10.0.0.1 192.168.0.1", route: "10.0.0.1"}
		set, n := Addresses(host.addressing("")), &v1.Node{}
		is := func(want string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if err := set(t.Context(), n); err != nil {
				t.Error(err)
			}
			if got := internal(n).String(); got != want {
				t.Errorf("address %s, want %s", got, want)
			}
		}
		is("10.0.0.1")
		host.local, host.route = "10.0.0.100 10.0.0.1 192.168.0.1", "10.0.0.100 10.0.0.1"
		for range 20 {
			is("10.0.0.1")
		}
		set = Addresses(host.addressing("")) // the agent starts anew
		is("10.0.0.1")
		host.local, host.route = "10.0.0.1 192.168.0.1", "10.0.0.1"
		is("10.0.0.1")
		host.dnsErr, host.route = errors.New("server misbehaving"), "192.168.0.1"
		time.Sleep(lookEvery)
		is("10.0.0.1") // nothing is known, so nothing is changed
		host.local, host.route = "10.0.0.2 192.168.0.1", "10.0.0.2"
		is("10.0.0.2") // the old one is gone for good
	})
}

func TestNameIsNotLookedUpInEachRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &nic{local: "10.0.0.1", dns: "10.0.0.1"}
		set, n := Addresses(host.addressing("")), &v1.Node{}
		for range 60 {
			apply(t, n, set)
			time.Sleep(10 * time.Second)
		}
		if host.lookups < 9 || host.lookups > 11 {
			t.Errorf("%d look-ups in ten minutes", host.lookups)
		}
	})
}

func TestAddressesOfThisHost(t *testing.T) {
	local, err := interfaceAddrs()
	if err != nil || len(local) == 0 {
		t.Fatal(local, err)
	}
	for _, ip := range local {
		if ip.Is4In6() || ip.Zone() != "" {
			t.Errorf("%v cannot be compared", ip)
		}
	}
	if out, err := routeAddrs(t.Context(), false); err == nil && len(out) == 0 {
		t.Error("a default route without an address")
	}
}

func TestParseNodeIP(t *testing.T) {
	for _, c := range []struct{ text, want, ignored, fails string }{
		{text: ""},
		{text: "10.0.0.1", want: "10.0.0.1"},
		{text: " 10.0.0.1 , fd00::1", want: "10.0.0.1,fd00::1"},
		{text: "::ffff:10.0.0.1", want: "10.0.0.1"},
		{text: "0.0.0.0", want: "0.0.0.0"},
		{text: "::", want: "::"},
		{text: "10.0.0.1,eth0", want: "10.0.0.1", ignored: "eth0"},
		{text: "nonsense", ignored: "nonsense"},
		{text: "10.0.0.1,10.0.0.2", fails: "one IPv4 and one IPv6"},
		{text: "10.0.0.1,fd00::1,10.0.0.3", fails: "one IPv4 and one IPv6"},
		{text: "0.0.0.0,fd00::1", fails: "stand alone"},
		{text: "127.0.0.1", fails: "loopback"},
		{text: "fe80::1", fails: "link-local"},
		{text: "224.0.0.1", fails: "multicast"},
	} {
		got, ignored, err := ParseNodeIP(c.text)
		if join(got) != c.want || strings.Join(ignored, ",") != c.ignored || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q: %v, %q, %v", c.text, got, ignored, err)
		}
	}
}

const routes = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wlan0	00000000	0101A8C0	0003	0	0	600	00000000	0	0	0
eth0	00000000	0100000A	0003	0	0	100	00000000	0	0	0
dead0	00000000	0100000A	0002	0	0	1	00000000	0	0	0
eth0	0000000A	00000000	0001	0	0	100	00FFFFFF	0	0	0
`

const routes6 = `fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth1
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000064 00000001 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
`

func TestDefaultRoute(t *testing.T) {
	if got := defaultRouteV4(routes); got != "eth0" {
		t.Errorf("IPv4: %q", got)
	}
	if got := defaultRouteV6(routes6); got != "eth0" {
		t.Errorf("IPv6: %q", got)
	}
}

func FuzzNodeIP(f *testing.F) {
	f.Add("10.0.0.1,fd00::1")
	f.Add("::ffff:1.2.3.4, 0.0.0.0")
	f.Fuzz(func(t *testing.T, s string) {
		got, _, err := ParseNodeIP(s)
		if err == nil && len(got) > 2 {
			t.Errorf("%q: %v", s, got)
		}
	})
}

func FuzzRoutes(f *testing.F) {
	f.Add(routes)
	f.Add(routes6)
	f.Fuzz(func(t *testing.T, table string) {
		for _, name := range []string{defaultRouteV4(table), defaultRouteV6(table)} {
			if strings.ContainsAny(name, " \t\n") {
				t.Errorf("interface %q", name)
			}
		}
	})
}
