package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestVolumesOfOthers(t *testing.T) {
	for _, c := range []struct {
		name, point string
		want        bool
	}{
		{"a volume in memory", "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/d", false},
		{"a token", "/var/lib/kubelet/pods/u/volumes/kubernetes.io~projected/t", false},
		{"a part of a volume", "/var/lib/kubelet/pods/u/volume-subpaths/d/c/0", false},
		{"a volume of a driver", "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount", true},
		{"a disk of a driver", "/var/lib/kubelet/pods/u/volumeDevices/kubernetes.io~csi/pvc-1", true},
		{"where a driver has it for all pods", "/var/lib/kubelet/plugins/kubernetes.io/csi/d/1/globalmount", true},
		{"one of another kubelet", "/var/lib/kubelet2/plugins/kubernetes.io/csi/d/1/globalmount", false},
		{"the folder itself", "/var/lib/kubelet", false},
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "proc/self"), 0o755); err != nil {
			t.Fatal(err)
		}
		line := "36 35 98:0 / / rw - ext4 /dev/root rw\n37 36 0:45 / " + c.point + " rw,relatime shared:3 - tmpfs tmpfs rw\n"
		if err := os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := volumesOfOthers("/var/lib/kubelet/", host(root))(); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
	if _, err := volumesOfOthers("/var/lib/kubelet", host(t.TempDir()))(); err == nil {
		t.Error("nobody could look, and it was not told")
	}
}
