package keyring

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		rule, pattern, repository string
		want                      bool
	}{
		{"the same host", "quay.io", "quay.io/a/b", true},
		{"another host", "quay.io", "gcr.io/a", false},
		{"a glob stands for one label", "*.azurecr.io", "x.azurecr.io/a", true},
		{"and not for two", "*.azurecr.io", "x.y.azurecr.io/a", false},
		{"nor for none", "*.azurecr.io", "azurecr.io/a", false},
		{"a glob for a part of a label", "app*.k8s.io", "app1.k8s.io/a", true},
		{"globs in the middle and at the end", "k8s.*.*", "k8s.gcr.io/a", true},
		{"two globs", "*.*.registry.io", "a.b.registry.io/c", true},
		{"a path is a beginning", "registry.io/team", "registry.io/team/app", true},
		{"even of a part of a name, as the kubelet has it", "registry.io/team", "registry.io/teams/app", true},
		{"another path", "registry.io/team", "registry.io/other/app", false},
		{"no globs in paths", "registry.io/*", "registry.io/team", false},
		{"the same port", "registry.io:8080", "registry.io:8080/a", true},
		{"another port", "registry.io:8080", "registry.io:8081/a", false},
		{"a port that is asked for", "registry.io:8080", "registry.io/a", false},
		{"a port that is not", "registry.io", "registry.io:8080/a", false},
		{"no globs in ports", "registry.io:*", "registry.io:8080/a", false},
		{"an address", "10.0.0.1:5000", "10.0.0.1:5000/a", true},
		{"an address of IPv6", "[fd00::1]:5000", "[fd00::1]:5000/a", true},
		{"the same without a port", "[fd00::1]", "[fd00::1]/a", true},
		{"a broken glob", "[.io", "a.io/x", false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := matches(tt.pattern, tt.repository); got != tt.want {
				t.Errorf("matches(%q, %q) = %t", tt.pattern, tt.repository, got)
			}
		})
	}
}

func TestFind(t *testing.T) {
	for _, tt := range []struct {
		rule       string
		entries    []string // their user names are the entries themselves
		repository string
		want       []string
	}{
		{"more of a path comes first", []string{"gcr.io", "gcr.io/a/b", "gcr.io/a"}, "gcr.io/a/b/c", []string{"gcr.io/a/b", "gcr.io/a", "gcr.io"}},
		{"a name comes before a glob", []string{"*.io", "quay.io"}, "quay.io/a", []string{"quay.io", "*.io"}},
		{"schemes are left out", []string{"http://a.io", "https://a.io/x"}, "a.io/x/y", []string{"https://a.io/x", "http://a.io"}},
		{"what docker writes behind the host is left out", []string{"https://a.io/v1/", "a.io/v2/team"}, "a.io/team/x", []string{"a.io/v2/team", "https://a.io/v1/"}},
		{"but only with a slash after it", []string{"a.io/v1"}, "a.io/x", nil},
		{"the hub by docker's name of it", []string{"https://index.docker.io/v1/"}, "docker.io/library/busybox", []string{"https://index.docker.io/v1/"}},
		{"the hub by its own name", []string{"docker.io"}, "docker.io/library/busybox", []string{"docker.io"}},
		{"the own name goes before docker's, which is then not tried", []string{"index.docker.io", "docker.io"}, "docker.io/library/busybox", []string{"docker.io"}},
		{"a host is not on the hub", []string{"index.docker.io"}, "localhost:5000/a", nil},
		{"nor is one with a dot", []string{"index.docker.io"}, "quay.io/a", nil},
		{"a name without any host is", []string{"index.docker.io"}, "library/a", []string{"index.docker.io"}},
		{"names that are none are left out", []string{"a b", "%zz", "a.io:port", "a.io"}, "a.io/x", []string{"a.io"}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			r, entries := ring{}, map[string]login{}
			for _, e := range tt.entries {
				entries[e] = login{Username: e}
			}
			r.add(entries, runtime.Credential{})
			var got []string
			for _, c := range r.find(tt.repository) {
				got = append(got, c.Username)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
