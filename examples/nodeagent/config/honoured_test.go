package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestUnsupported(t *testing.T) {
	for _, c := range []struct{ rule, fields, want string }{
		{"nothing is set", "", ""},
		{"what is honoured is not named", "maxPods: 3\nclusterDNS: [10.0.0.1]", ""},
		{"what is not is named", "cpuManagerPolicy: static", "cpuManagerPolicy"},
		{"the default, written down, is not named", "cpuManagerPolicy: none\ncgroupsPerQOS: true\noomScoreAdj: -999", ""},
		{"an empty list is the same as none", "topologyManagerPolicyOptions: {}\nenableSystemLogQuery: false", ""},
		{"inside", "logging: {format: json}\nmemorySwap: {swapBehavior: LimitedSwap}", "logging.format"},
		{"behind a pointer", "tracing: {endpoint: localhost:4317}\nuserNamespaces: {idsPerPod: 131072}", "tracing.endpoint"},
		{"a gate as Kubernetes has it", "featureGates: {NodeSwap: true, EventedPLEG: false}", ""},
		{"a gate the other way, and an unknown one", "featureGates: {NodeSwap: false, EventedPLEG: true, NoSuchGate: true}", "featureGates.EventedPLEG featureGates.NoSuchGate featureGates.NodeSwap"},
		{"sorted by path", "maxOpenFiles: 7\nhairpinMode: none", "hairpinMode maxOpenFiles"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := write(t, map[string]string{"k.yaml": head + c.fields})
			cfg, _, err := Load(Options{File: filepath.Join(dir, "k.yaml")})
			if err != nil {
				t.Fatal(err)
			}
			defaults, _, err := Load(Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range Unsupported(cfg, defaults) {
				got = append(got, f.Path)
				if f.Note == "" {
					t.Errorf("no reason for %s", f.Path)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
