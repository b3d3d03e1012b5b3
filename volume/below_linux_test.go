package volume

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/mount-utils"
)

// content reads what a reference refers to, as a mount of it would show it.
func content(f *os.File, name string) (string, error) {
	fd, err := unix.Openat(unix.AT_FDCWD, filepath.Join("/proc/self/fd", fdName(f), name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	opened := os.NewFile(uintptr(fd), name)
	defer opened.Close()
	b, err := io.ReadAll(opened)
	return string(b), err
}

func fdName(f *os.File) string {
	var b []byte
	for n := f.Fd(); ; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
		if n < 10 {
			return string(b)
		}
	}
}

// TestNothingLeadsOutOfAVolume has a directory and a link out of the volume take each other's place all the time (c138).
func TestNothingLeadsOutOfAVolume(t *testing.T) {
	volume, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.MkdirAll(volume+"/a/b", 0o755), os.WriteFile(volume+"/a/b/name", []byte("inside"), 0o600),
		os.MkdirAll(outside+"/b", 0o755), os.WriteFile(outside+"/b/name", []byte("outside"), 0o600), os.Symlink(outside, volume+"/link"),
	); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, volume+"/a", unix.AT_FDCWD, volume+"/link", unix.RENAME_EXCHANGE)
			}
		}
	}()
	found, refused := 0, 0
	for i := range 10000 {
		f, err := openBelow(volume, []string{"a/b", "a/b/name", "a/new/er"}[i%3])
		if err != nil {
			refused++
			continue
		}
		found++
		if i%3 < 2 {
			if got, err := content(f, []string{"name", ""}[i%3]); err != nil || got != "inside" {
				t.Fatalf("try %d: %q %v", i, got, err)
			}
		}
		f.Close()
	}
	close(stop)
	<-stopped
	if found == 0 || refused == 0 {
		t.Errorf("%d found, %d refused: nothing was raced", found, refused)
	}
	if _, err := os.Stat(outside + "/new"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("made a directory outside")
	}
}

// A hostPath of / has links from the root that lead to something within, such as /var/run.
func TestALinkFromTheRootMayStayInTheVolume(t *testing.T) {
	root := t.TempDir()
	volume := root + "/volume"
	if err := errors.Join(
		os.MkdirAll(volume+"/run/lock", 0o755), os.WriteFile(volume+"/run/lock/file", []byte("inside"), 0o600), os.Mkdir(root+"/outside", 0o755),
		os.Mkdir(volume+"/var", 0o755), os.Symlink(volume+"/run", volume+"/var/run"), os.Symlink(root+"/outside", volume+"/out"),
		os.Symlink(volume+"/out", volume+"/roundabout"), os.Symlink(volume, root+"/alias"), os.Symlink(root+"/alias/run", volume+"/var/alias"),
		os.Symlink(volume+"/nothing", volume+"/var/nothing"),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"var/run": "/run", "var/run/lock": "/run/lock", "var/run/lock/file": "/run/lock/file", "var/alias/lock": "/run/lock",
		"out": "", "roundabout": "", "out/new": "", "var/run/new": "/run/new", "var/alias/deep/er": "/run/deep/er", "var/nothing/new": "",
	} {
		f, err := openBelow(volume, name)
		if want == "" {
			if !errors.Is(err, unix.EXDEV) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := os.Readlink("/proc/self/fd/" + fdName(f)); err != nil || got != volume+want {
			t.Errorf("%s leads to %s, %v", name, got, err)
		}
		f.Close()
	}
	if entries, err := os.ReadDir(root + "/outside"); err != nil || len(entries) > 0 {
		t.Errorf("made outside: %v, %v", entries, err)
	}
}

// FuzzSubpath lets a container make a link, and its pod ask for a path, both of any kind. What is found must lie in the
// volume, and nothing may be made elsewhere.
func FuzzSubpath(f *testing.F) {
	f.Add("../outside", "link/secret")
	f.Add("/", "link/etc/passwd")
	f.Add("dir", "link/../../outside/secret")
	f.Add("dir/..", "link/dir/new")
	f.Add("..", "link/outside/new")
	f.Add(".", "link/link/link")
	f.Add("/proc/self/cwd", "link")
	f.Add("dir/./../dir//", "./link//x")
	f.Fuzz(func(t *testing.T, target, name string) {
		root := t.TempDir()
		volume := root + "/volume"
		if err := errors.Join(os.MkdirAll(volume+"/dir", 0o755), os.Mkdir(root+"/outside", 0o755), os.WriteFile(root+"/outside/secret", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if os.Symlink(target, volume+"/link") != nil {
			return
		}
		name, err := cleanSubpath(name)
		if err != nil {
			return
		}
		if found, err := openBelow(volume, name); err == nil {
			defer found.Close()
			path, err := os.Readlink("/proc/self/fd/" + fdName(found))
			if err != nil || path != volume && !strings.HasPrefix(path, volume+"/") {
				t.Errorf("%q with a link to %q leads to %q (%v)", name, target, path, err)
			}
		}
		for dir, want := range map[string]int{root: 2, root + "/outside": 1} {
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
				t.Errorf("%q with a link to %q made something in %s: %v %v", name, target, dir, entries, err)
			}
		}
	})
}

// Field reports kubernetes/kubernetes#138856 and #139275: after a server of files was away, containers that mount a part of a
// volume were not started any more.
func TestMountsThatHaveGoneBadAreMadeAnew(t *testing.T) {
	for _, bad := range []error{unix.ESTALE, unix.ENOTCONN, unix.EIO, unix.EHOSTDOWN} {
		fake := mount.NewFakeMounter(nil)
		m, err := New(Config{Root: t.TempDir(), Mounter: fake})
		if err != nil {
			t.Fatal(err)
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1"}}
		for name, medium := range map[string]v1.StorageMedium{"disk": "", "memory": v1.StorageMediumMemory} {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}})
		}
		pod.Spec.Containers = []v1.Container{{Name: "app", VolumeMounts: []v1.VolumeMount{{Name: "disk"}, {Name: "memory"}}}}
		var did []string
		for range 3 { // made, found as it is, gone bad
			fake.ResetLog()
			in, err := m.Mount(t.Context(), pod)
			if err != nil {
				t.Fatal(bad, err)
			}
			part, done, err := m.Subpath(t.Context(), pod.UID, "disk", "app", 0, "part")
			if err != nil {
				t.Fatal(bad, err)
			}
			done()
			var acts []string
			for _, a := range fake.GetLog() {
				acts = append(acts, a.Action+" "+filepath.Base(filepath.Dir(a.Target)))
			}
			did = append(did, strings.Join(acts, ", "))
			if len(did) == 2 {
				fake.MountCheckErrors = map[string]error{in["memory"].Path: bad, part: bad}
			}
		}
		// The fake binds nothing, so that a part is always another one than is there.
		want := []string{"mount kubernetes.io~empty-dir, mount app", "unmount app, mount app", "unmount kubernetes.io~empty-dir, mount kubernetes.io~empty-dir, unmount app, mount app"}
		if diff := cmp.Diff(want, did); diff != "" {
			t.Error(bad, diff)
		}
	}
}
