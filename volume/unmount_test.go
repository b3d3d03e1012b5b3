package volume_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/volume"
)

func TestUnmountFollowsNoLinkAndTouchesNoHostPath(t *testing.T) {
	h := newHouse(t)
	host := t.TempDir()
	write(t, host+"/precious", "safe")
	pod := podWith("u1", emptyDir("cache"), hostPath("host", host, v1.HostPathDirectory))
	dir := h.in(t, pod, "cache")
	_ = os.Symlink(host, dir+"/link")
	_ = os.Symlink("..", dir+"/up")
	write(t, dir+"/sub/file", "")
	h.unmount(t, "u1")
	if got := read(t, host+"/precious"); got != "safe" {
		t.Error("gone")
	}
}

func TestWhatAKillLeftBehindIsPutRight(t *testing.T) {
	pod := podWith("u1", emptyDir("cache"), memory("mem", "1Mi"), downward("info", fieldItem("name", "metadata.name")))
	for _, c := range []struct {
		rule string
		left func(t *testing.T, h house, volumes, plugins string)
	}{
		{"a directory without its marker", func(t *testing.T, _ house, volumes, _ string) {
			t.Helper()
			_ = os.MkdirAll(volumes+"/kubernetes.io~empty-dir/cache", 0o700)
		}},
		{"a marker without its directory", func(t *testing.T, _ house, _, plugins string) {
			t.Helper()
			write(t, plugins+"/kubernetes.io~empty-dir/cache/ready", "")
			write(t, plugins+"/kubernetes.io~empty-dir/mem/ready", "")
			write(t, plugins+"/kubernetes.io~empty-dir/wrapped_info/ready", "")
		}},
		{"memory that is mounted, without its marker", func(t *testing.T, h house, _, plugins string) {
			t.Helper()
			h.in(t, pod, "mem")
			_ = os.RemoveAll(plugins)
		}},
		{"memory that was lost when the machine was started again", func(t *testing.T, h house, _, _ string) {
			t.Helper()
			h.in(t, pod, "mem")
			h.fake.MountPoints = nil
		}},
		{"files half written", func(t *testing.T, h house, volumes, _ string) {
			t.Helper()
			h.in(t, pod, "mem")
			info := volumes + "/kubernetes.io~downward-api/info"
			_ = os.Remove(info + "/name")
			_ = os.Mkdir(info+"/..2026_01_01_00_00_00.123", 0o755)
			_ = os.Symlink("..2026_01_01_00_00_00.123", info+"/..data_tmp")
			_ = os.Symlink("..data/gone", info+"/gone")
			write(t, info+"/..data/name", "old")
		}},
		{"a removal that ended halfway", func(t *testing.T, h house, volumes, _ string) {
			t.Helper()
			h.in(t, pod, "mem")
			dir := volumes + "/kubernetes.io~empty-dir/cache"
			write(t, dir+"/old", "")
			_ = os.Rename(dir, dir+".deleting~")
		}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			h := newHouse(t)
			base := filepath.Join(h.root, "pods/u1")
			c.left(t, h, base+"/volumes", base+"/plugins")
			h.in(t, pod, "cache")
			h.in(t, pod, "cache")
			if entries, err := os.ReadDir(base + "/volumes/kubernetes.io~empty-dir/cache"); err != nil || len(entries) > 0 {
				t.Error(entries, err)
			}
			if info, err := os.Stat(base + "/volumes/kubernetes.io~empty-dir/cache"); err != nil || info.Mode().Perm() != 0o777 {
				t.Error(info, err)
			}
			entries, _ := os.ReadDir(base + "/volumes/kubernetes.io~downward-api/info")
			if got := read(t, base+"/volumes/kubernetes.io~downward-api/info/name"); got != "web" || len(entries) != 3 {
				t.Errorf("%q, among %v", got, entries)
			}
			if len(h.fake.MountPoints) != 2 {
				t.Errorf("mounted: %v", h.fake.MountPoints)
			}
			h.unmount(t, "u1")
			if len(h.fake.MountPoints) != 0 {
				t.Errorf("still mounted: %v", h.fake.MountPoints)
			}
		})
	}
}

func TestUnmountThatFailsIsRepeated(t *testing.T) {
	h := newHouse(t)
	dir := h.in(t, podWith("u1", memory("mem", ""), emptyDir("cache")), "mem")
	write(t, dir+"/data", "safe")
	h.fake.UnmountFunc = func(string) error { return errors.New("target is busy") }
	if err := h.Unmount(t.Context(), "u1"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("error %v", err)
	}
	if read(t, dir+"/data") != "safe" {
		t.Error("removed while it is mounted")
	}
	h.fake.UnmountFunc = nil
	h.unmount(t, "u1")
}

func TestSweepRemovesWhatPodsLongGoneLeft(t *testing.T) {
	h := newHouse(t)
	kept := podWith("kept", emptyDir("cache"))
	write(t, h.in(t, kept, "cache")+"/a", "safe")
	gone := filepath.Join(h.root, "pods/gone")
	write(t, gone+"/volumes/kubernetes.io~csi/pv1/vol_data.json", "{}") // c127
	_ = os.MkdirAll(gone+"/volumes/kubernetes.io~nfs/x", 0o750)
	_ = os.MkdirAll(gone+"/volume-subpaths/v/c/0", 0o750)
	_ = os.MkdirAll(gone+"/plugins", 0o750)
	_ = os.MkdirAll(gone+"/volumes/kubernetes.io~csi/pv1/mount/inner dir", 0o750)
	h.fake.MountPoints = []mount.MountPoint{
		{Device: "/dev/sdb", Path: gone + "/volumes/kubernetes.io~csi/pv1/mount"},
		{Device: "tmpfs", Path: gone + "/volumes/kubernetes.io~csi/pv1/mount/inner dir"},
		{Device: "tmpfs", Path: gone + "-by"},
	}
	var order []string
	h.fake.UnmountFunc = func(path string) error { order = append(order, filepath.Base(path)); return nil }
	keep := func(uid types.UID) bool { return uid == "kept" }
	if err := h.Sweep(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the pod's directory is still there")
	}
	if diff := cmp.Diff([]string{"inner dir", "mount"}, order); diff != "" {
		t.Errorf("unmounted (-want +got)\n%s", diff)
	}
	if read(t, h.in(t, kept, "cache")+"/a") != "safe" || len(h.fake.MountPoints) != 1 {
		t.Error("too much was taken away")
	}
	write(t, h.root+"/pods/stray", "") // no directory
	if err := h.Sweep(t.Context(), keep); err != nil {
		t.Error(err)
	}
}

// away is a mounter for which one server of files is gone.
type away struct {
	mount.Interface

	back  chan struct{}
	tries *atomic.Int32
}

func (g away) Unmount(path string) error {
	if strings.Contains(path, "nfs") {
		g.tries.Add(1)
		<-g.back
	}
	return g.Interface.Unmount(path)
}

// Field report kubernetes/kubernetes#31272: nothing was cleared any more while one unmount hung.
func TestAnUnmountThatHangsKeepsNoOtherPodFromBeingSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := away{back: make(chan struct{}), tries: new(atomic.Int32)}
		h := newHouse(t, func(c *volume.Config) { g.Interface = c.Mounter; c.Mounter = g })
		for uid, kind := range map[string]string{"a": "kubernetes.io~nfs", "b": "kubernetes.io~empty-dir"} {
			path := filepath.Join(h.root, "pods", uid, "volumes", kind, "data")
			if err := os.MkdirAll(path, 0o750); err != nil {
				t.Fatal(err)
			}
			h.fake.MountPoints = append(h.fake.MountPoints, mount.MountPoint{Path: path})
		}
		sweep := func(what string, fails bool, takes time.Duration, want ...string) {
			t.Helper()
			begun := time.Now()
			err := h.Sweep(t.Context(), func(types.UID) bool { return false })
			if (err != nil) != fails || time.Since(begun) != takes {
				t.Errorf("%s: %v after %v", what, err, time.Since(begun))
			}
			entries, _ := os.ReadDir(filepath.Join(h.root, "pods"))
			var left []string
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if !slices.Equal(left, want) {
				t.Errorf("%s: left are %v, want %v", what, left, want)
			}
		}
		sweep("one hangs", true, 10*time.Second, "a")
		sweep("it still hangs", true, 0, "a")
		close(g.back)
		synctest.Wait()
		sweep("the server is back", false, 0)
		if n := g.tries.Load(); n != 1 {
			t.Errorf("unmounted %d times", n)
		}
	})
}

func TestSweepLeavesAPodThatCameBack(t *testing.T) {
	h := newHouse(t)
	dir := h.in(t, podWith("u1", emptyDir("cache")), "cache")
	asked := 0
	if err := h.Sweep(t.Context(), func(types.UID) bool { asked++; return asked > 1 }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
