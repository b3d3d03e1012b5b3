package cgroup

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		class                v1.PodQOSClass
		plain, systemd, unit string
	}{
		{v1.PodQOSGuaranteed, "kubepods/poda-b", "kubepods.slice/kubepods-poda_b.slice", "kubepods-poda_b.slice"},
		{v1.PodQOSBurstable, "kubepods/burstable/poda-b", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice", "kubepods-burstable-poda_b.slice"},
		{v1.PodQOSBestEffort, "kubepods/besteffort/poda-b", "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice", "kubepods-besteffort-poda_b.slice"},
	} {
		n := tier(tt.class).pod("a-b")
		if n.path(false) != tt.plain || n.path(true) != tt.systemd || n.slice() != tt.unit {
			t.Errorf("%s: %s, %s, %s", tt.class, n.path(false), n.path(true), n.slice())
		}
		for systemd, p := range map[bool]string{false: tt.plain, true: tt.systemd} {
			if uid, ok := tier(tt.class).podOf(filepath.Base(p), systemd); !ok || uid != "a-b" {
				t.Errorf("%s is of %q", p, uid)
			}
		}
	}
	for _, folder := range []string{"burstable", "kubepods-burstable.slice", "pod", "x"} {
		for _, systemd := range []bool{false, true} {
			if uid, ok := tier(v1.PodQOSGuaranteed).podOf(folder, systemd); ok {
				t.Errorf("%s is taken for pod %s", folder, uid)
			}
		}
	}
}

func TestParent(t *testing.T) {
	pod := podOf("u-1")
	for want, cfg := range map[string]Config{
		"/kubepods/besteffort/podu-1":        {},
		"/my/own/kubepods/besteffort/podu-1": {Root: "my/own/"},
		"kubepods-besteffort-podu_1.slice":   {Systemd: true},
	} {
		tree, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := tree.Parent(pod); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, cfg := range []Config{{Period: 2 * time.Second}, {Period: time.Microsecond}, {Root: "a_b", Systemd: true}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

func TestPaths(t *testing.T) {
	for systemd, want := range map[bool][]string{
		false: {"/top/kubepods", "/top/kubepods/burstable/poda-1", "/top/kubepods/burstable/poda-1"},
		true:  {"/top/kubepods.slice", "/top/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_1.slice", "kubepods-burstable-poda_1.slice"},
	} {
		tree, err := New(Config{Root: "top", Systemd: systemd})
		if err != nil {
			t.Fatal(err)
		}
		pod := podOf("a-1", "cpu=1")
		if got := []string{tree.Path(nil), tree.Path(pod), tree.Parent(pod)}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
