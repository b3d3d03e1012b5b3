package network

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(change ...func(*v1.PodSpec)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}}
	for _, f := range change {
		f(&p.Spec)
	}
	return p
}

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-b"
	for _, tt := range []struct {
		name         string
		pod          *v1.Pod
		host, domain string
	}{
		{"the pod's name", pod(), "web", ""},
		{"its own hostname", pod(func(s *v1.PodSpec) { s.Hostname = "h" }), "h", ""},
		{"with a subdomain", pod(func(s *v1.PodSpec) { s.Hostname, s.Subdomain = "h", "sub" }), "h", "sub.shop.svc.cluster.local"},
		{"the override wins and has no domain", pod(func(s *v1.PodSpec) { s.HostnameOverride, s.Subdomain = new("o.example"), "sub" }), "o.example", ""},
		{"cut, and no dash at the end", pod(func(s *v1.PodSpec) { s.HostnameOverride = &long }), strings.Repeat("a", 62), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host, domain, err := Hostname(tt.pod, "cluster.local")
			if err != nil || host != tt.host || domain != tt.domain {
				t.Errorf("got %q %q %v", host, domain, err)
			}
		})
	}
}

func TestHostnameThatIsNone(t *testing.T) {
	for want, change := range map[string]func(s *v1.PodSpec){
		`pod HostnameOverride "A!" is not a valid DNS subdomain: `: func(s *v1.PodSpec) { s.HostnameOverride = new("A!") },
		`pod Hostname "a.b" is not a valid DNS label: `:            func(s *v1.PodSpec) { s.Hostname = "a.b" },
		`pod Subdomain "a_b" is not a valid DNS label: `:           func(s *v1.PodSpec) { s.Subdomain = "a_b" },
		"must be no more than 63 characters":                       func(s *v1.PodSpec) { s.Hostname = strings.Repeat("a", 64) },
	} {
		if name, _, err := Hostname(pod(change), "cluster.local"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", want, name, err)
		}
	}
}

func TestKernelHostname(t *testing.T) {
	full := pod(func(s *v1.PodSpec) { s.SetHostnameAsFQDN = new(true) })
	if got, err := KernelHostname(full, "h", "d.e"); got != "h.d.e" || err != nil {
		t.Error(got, err)
	}
	if got, _ := KernelHostname(pod(), "h", "d.e"); got != "h" {
		t.Error(got)
	}
	if _, err := KernelHostname(full, "h", strings.Repeat("d", 64)); err == nil {
		t.Error("a name over 64 characters passed")
	}
}

func TestDNS(t *testing.T) {
	host := Resolv{Servers: []string{"1.1.1.1"}, Searches: []string{"lan"}, Options: []string{"timeout:2"}}
	scoped := Resolv{append([]string{"fe80::1%3"}, host.Servers...), host.Searches, host.Options}
	cluster := DNS{Servers: []string{"10.96.0.10"}, Domain: "cluster.local", Host: host}
	clusterSearches := []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"}
	hostNet := func(s *v1.PodSpec) { s.HostNetwork = true }
	policy := func(p v1.DNSPolicy) func(*v1.PodSpec) { return func(s *v1.PodSpec) { s.DNSPolicy = p } }
	for _, tt := range []struct {
		name     string
		dns      DNS
		pod      *v1.Pod
		want     Resolv
		warnings int
	}{
		{"cluster first", cluster, pod(), Resolv{cluster.Servers, clusterSearches, []string{"ndots:5"}}, 0},
		{"on the host's network: the host's", cluster, pod(hostNet), host, 0},
		{"unless it asks for the cluster's", cluster, pod(hostNet, policy(v1.DNSClusterFirstWithHostNet)), Resolv{cluster.Servers, clusterSearches, []string{"ndots:5"}}, 0},
		{"default is the host's", cluster, pod(policy(v1.DNSDefault)), host, 0},
		{"but for servers on its links, which a pod does not have", DNS{Host: scoped}, pod(), host, 0}, // kubernetes/kubernetes#140880
		{"on the host's network these too", DNS{Host: scoped}, pod(hostNet), scoped, 0},
		{"none is empty", cluster, pod(policy(v1.DNSNone)), Resolv{}, 0},
		{"no cluster at all: the host's", DNS{Host: host}, pod(), host, 0},
		{"a cluster without DNS server: the host's", DNS{Domain: "cluster.local", Host: host}, pod(), host, 0},
		{
			"a host without a resolver: what is told instead",
			DNS{Host: host, Instead: &Resolv{Servers: []string{"127.0.0.1"}, Searches: []string{"."}}},
			pod(policy(v1.DNSDefault)),
			Resolv{Servers: []string{"127.0.0.1"}, Searches: []string{"."}},
			0,
		},
		{"but the cluster's comes without it", DNS{Servers: cluster.Servers, Domain: "cluster.local", Instead: &Resolv{Searches: []string{"."}}}, pod(), Resolv{cluster.Servers, clusterSearches[:3], []string{"ndots:5"}}, 0},
		{"32 searches at most, the last are left out", cluster, pod(policy(v1.DNSNone), searches(repeat("a", 33)...)), Resolv{Searches: repeat("a", 32)}, 1},
		{"one over 253 characters is left out alone", cluster, pod(policy(v1.DNSNone), searches("a", strings.Repeat("b", 254), "c")), Resolv{Searches: []string{"a", "c"}}, 1},
		{
			"2048 characters with spaces between, and all after that are left out", cluster,
			pod(policy(v1.DNSNone), searches(append(repeat(strings.Repeat("a", 224), 9), strings.Repeat("b", 5), "c")...)),
			Resolv{Searches: append(repeat(strings.Repeat("a", 224), 9), strings.Repeat("b", 5))},
			1,
		},
		{"own settings come behind and win", cluster, pod(func(s *v1.PodSpec) {
			s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"9.9.9.9", "10.96.0.10"}, Searches: []string{"own"}, Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}, {Name: "edns0"}}}
		}), Resolv{[]string{"10.96.0.10", "9.9.9.9"}, append(clusterSearches[:4:4], "own"), []string{"ndots:2", "edns0"}}, 0},
		{"an option with an empty value is one without", cluster, pod(policy(v1.DNSDefault), func(s *v1.PodSpec) {
			s.DNSConfig = &v1.PodDNSConfig{Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("")}}}
		}), Resolv{cluster.Host.Servers, cluster.Host.Searches, []string{"timeout:2", "ndots"}}, 0},
		{"three servers at most", cluster, pod(policy(v1.DNSNone), func(s *v1.PodSpec) {
			s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"}}
		}), Resolv{Servers: []string{"1.0.0.1", "1.0.0.2", "1.0.0.3"}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, warnings := tt.dns.For(tt.pod)
			if diff := cmp.Diff(fmt.Sprint(tt.want), fmt.Sprint(got)); diff != "" || len(warnings) != tt.warnings {
				t.Errorf("(-want +got)\n%s warnings %q", diff, warnings)
			}
		})
	}
}

// searches are told by the pod; repeat has count of them that begin the same.
func searches(names ...string) func(*v1.PodSpec) {
	return func(s *v1.PodSpec) { s.DNSConfig = &v1.PodDNSConfig{Searches: names} }
}

func repeat(name string, count int) (out []string) {
	for i := range count {
		out = append(out, fmt.Sprintf("%s%02d", name, i))
	}
	return out
}

func TestMissing(t *testing.T) {
	for _, tt := range []struct {
		rule string
		dns  DNS
		pod  *v1.Pod
		want bool
	}{
		{"a cluster without DNS", DNS{Domain: "cluster.local"}, pod(), true},
		{"a cluster with DNS", DNS{Domain: "cluster.local", Servers: []string{"10.96.0.10"}}, pod(), false},
		{"no cluster", DNS{}, pod(), false},
		{"a pod that does not ask for it", DNS{Domain: "cluster.local"}, pod(func(s *v1.PodSpec) { s.DNSPolicy = v1.DNSDefault }), false},
		{"nor one on the host's network", DNS{Domain: "cluster.local"}, pod(func(s *v1.PodSpec) { s.HostNetwork = true }), false},
	} {
		if got := tt.dns.Missing(tt.pod); got != tt.want {
			t.Errorf("%s: %v", tt.rule, got)
		}
	}
}

// Field reports kubernetes/kubernetes#103110 and #120748: a resolv.conf that is missing or in another place.
func TestUnknown(t *testing.T) {
	gone := errors.New("gone")
	policy := func(p v1.DNSPolicy) *v1.Pod { return pod(func(s *v1.PodSpec) { s.DNSPolicy = p }) }
	for _, tt := range []struct {
		rule string
		pod  *v1.Pod
		want error
	}{
		{"the host's settings", policy(v1.DNSDefault), gone},
		{"the cluster's, with searches of the host", policy(v1.DNSClusterFirst), gone},
		{"a pod with its own", policy(v1.DNSNone), nil},
	} {
		if got := (DNS{Servers: []string{"10.96.0.10"}, Unread: gone}).Unknown(tt.pod); !errors.Is(got, tt.want) {
			t.Errorf("%s: %v", tt.rule, got)
		}
		if got := (DNS{}).Unknown(tt.pod); got != nil {
			t.Errorf("%s, which are known: %v", tt.rule, got)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want Resolv
	}{
		{
			"# c\nnameserver 1.1.1.1\nnameserver 2.2.2.2\nsearch a.b. .\nsearch c. d\noptions ndots:1 edns0\noptions ndots:3\nbroken\n",
			Resolv{[]string{"1.1.1.1", "2.2.2.2"}, []string{"c", "d"}, []string{"ndots:3", "edns0"}},
		},
		{"search a\nsearch\nnameserver\n", Resolv{}},
		{"search .\n", Resolv{}},
	} {
		if diff := cmp.Diff(fmt.Sprint(c.want), fmt.Sprint(Parse([]byte(c.text)))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestWarningsAreTheKubelets(t *testing.T) {
	p := pod(func(s *v1.PodSpec) {
		s.DNSPolicy = v1.DNSNone
		s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"1", "2", "3", "4"}, Searches: []string{"a", strings.Repeat("b", 254), "c"}}
	})
	_, got := DNS{}.For(p)
	want := []string{
		"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1 2 3",
		"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a c",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func ExampleHosts() {
	p := &v1.Pod{Spec: v1.PodSpec{HostAliases: []v1.HostAlias{{IP: "10.1.1.1", Hostnames: []string{"db", "db.local"}}}}}
	lines := strings.Split(strings.TrimSpace(string(Hosts(p, []string{"10.88.0.5"}, "web", "", nil))), "\n")
	for _, l := range lines[len(lines)-4:] {
		fmt.Println(strings.ReplaceAll(l, "\t", " "))
	}
	// Output:
	// 10.88.0.5 web
	//
	// # Entries added by HostAliases.
	// 10.1.1.1 db db.local
}
