package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// Errors of mounts name what was to be mounted, and where.
func TestRealMountsThatFailAreNamed(t *testing.T) {
	h := realHouse(t)
	huge := memory("mem", "1Mi")
	huge.EmptyDir.Medium = "HugePages-3Mi"
	pod := podWith("u1", huge)
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-3Mi": resource.MustParse("3Mi")}
	_, err := h.Mount(t.Context(), pod)
	want := "mount hugetlbfs at " + h.root + "/pods/u1/volumes/kubernetes.io~empty-dir/mem: "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	h.unmount(t, "u1")
}

// realHouse mounts for real.
func realHouse(t *testing.T) house {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	h := newHouse(t, func(c *volume.Config) { c.Mounter = nil })
	t.Cleanup(func() {
		for _, path := range mountsBelow(t, h.root) {
			t.Errorf("still mounted: %s", path)
			_ = syscall.Unmount(path, syscall.MNT_DETACH)
		}
	})
	return h
}

// mountsBelow are the mount points below dir, the last one first.
func mountsBelow(t *testing.T, dir string) (paths []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(table) {
		if path := strings.Fields(string(line))[1]; strings.HasPrefix(path, dir+"/") {
			paths = append([]string{strings.ReplaceAll(path, `\040`, " ")}, paths...)
		}
	}
	return paths
}

func bind(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(to, 0o755), syscall.Mount(from, to, "", syscall.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
}

func TestRealMemoryHasItsSize(t *testing.T) {
	h := realHouse(t)
	pod := podWith("u1", memory("mem", "1Mi"))
	dir := h.in(t, pod, "mem")
	if err := os.WriteFile(dir+"/a", make([]byte, 512<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/b", make([]byte, 1<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want no space left", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	again := newHouse(t, func(c *volume.Config) { c.Root, c.Mounter = h.root, nil }) // the agent was started again
	again.in(t, pod, "mem")
	if info, err := os.Stat(dir + "/a"); err != nil || info.Size() != 512<<10 {
		t.Error("the data did not stay (c137)")
	}
	if n := len(mountsBelow(t, h.root)); n != 1 {
		t.Errorf("%d mounts", n)
	}
	again.unmount(t, "u1")
}

func TestRealHugePages(t *testing.T) {
	h := realHouse(t)
	if systems, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(systems), "hugetlbfs") {
		t.Skip("this kernel has no huge pages")
	}
	p := podWith("u1", v1.Volume{Name: "huge", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}})
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}
	dir := h.in(t, p, "huge")
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil || stat.Type != 0x958458f6 || stat.Bsize != 2<<20 {
		t.Errorf("type %x, blocks of %d, %v", stat.Type, stat.Bsize, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v, %v: who runs in the pod is not let in", info.Mode(), err)
	}
	h.unmount(t, "u1")
}

func TestRealMountsWithinAVolumeAreUnmountedNotEmptied(t *testing.T) {
	h := realHouse(t)
	host := t.TempDir()
	write(t, host+"/precious", "safe")
	dir := h.in(t, podWith("u1", emptyDir("cache")), "cache")
	bind(t, host, dir+"/a b/c") // as a privileged container may leave it behind; of the same file system
	bind(t, host, dir+"/a b/c")
	h.unmount(t, "u1")
	if read(t, host+"/precious") != "safe" {
		t.Error("gone")
	}
}

// kubernetes/kubernetes#113426: a pod was Terminating for days, as something on the host had a file of its Secret open.
func TestRealMemoryThatSomebodyHasOpenKeepsNoPod(t *testing.T) {
	h := realHouse(t)
	dir := h.in(t, podWith("u1", memory("mem", "1Mi")), "mem")
	write(t, dir+"/log", "said")
	f, err := os.Open(dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h.unmount(t, "u1")
	if said, err := io.ReadAll(f); err != nil || string(said) != "said" {
		t.Errorf("who has it open reads %q, %v", said, err)
	}
}

// blind is a mounter whose mount table is empty, as one that was read too early.
type blind struct{ mount.Interface }

func (blind) List() ([]mount.MountPoint, error) { return nil, nil }

func TestRealMountsNobodyKnowsOfAreNotEntered(t *testing.T) {
	h := realHouse(t)
	m, _ := volume.New(volume.Config{Root: h.root, Mounter: blind{mount.New("")}})
	host := t.TempDir()
	write(t, host+"/precious", "safe")
	for _, place := range []string{"at", "deep/er/at"} {
		dir := h.in(t, podWith("u1", emptyDir("cache")), "cache")
		bind(t, host, filepath.Join(dir, place))
		if err := m.Unmount(t.Context(), "u1"); err == nil {
			t.Error("no error")
		}
		if read(t, host+"/precious") != "safe" {
			t.Fatal("gone")
		}
		h.unmount(t, "u1")
	}
}

// asked is a mounter that counts looks at its mount table.
type asked struct {
	mount.Interface

	looks int
}

func (a *asked) List() ([]mount.MountPoint, error) { a.looks++; return a.Interface.List() }

// To read the mount table costs more with each pod of the node.
func TestRealMountTableIsReadOnlyIfSomethingMayBeMountedElsewhere(t *testing.T) {
	h := realHouse(t)
	a := &asked{Interface: mount.New("")}
	m, _ := volume.New(volume.Config{Root: h.root, Mounter: a, Other: func(_ context.Context, _ *v1.Pod, _ *v1.Volume, dir string) (runtime.Volume, error) {
		return runtime.Volume{Path: dir}, nil
	}})
	nfs := v1.Volume{Name: "far", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}
	for _, c := range []struct {
		what   string
		volume v1.Volume
		also   func(t *testing.T, at string)
		looks  int
	}{
		{"on disk", emptyDir("v"), nil, 0},
		{"in memory", memory("v", "1Mi"), nil, 0},
		{"of the API server", downward("v", fieldItem("name", "metadata.name")), nil, 0},
		{"in memory, twice", memory("v", "1Mi"), func(t *testing.T, at string) { t.Helper(); bind(t, t.TempDir(), at) }, 1},
		{"with a mount within", emptyDir("v"), func(t *testing.T, at string) { t.Helper(); bind(t, t.TempDir(), at+"/deep/er") }, 1},
		{"of a kind that others mount", nfs, nil, 1},
	} {
		places, err := m.Mount(t.Context(), podWith("u1", c.volume))
		if err != nil {
			t.Fatal(err)
		}
		if c.also != nil {
			c.also(t, places["v"].Path)
		}
		a.looks = 0
		if err := m.Unmount(t.Context(), "u1"); err != nil || a.looks != c.looks || len(mountsBelow(t, h.root)) > 0 {
			t.Errorf("%s: %v, %d looks at the table, want %d", c.what, err, a.looks, c.looks)
		}
	}
}

// subpath asks for a part of the volume and answers where it is bound.
func (h house) subpath(t *testing.T, uid types.UID, name, path string) (string, error) {
	t.Helper()
	place, done, err := h.Subpath(t.Context(), uid, name, "main", 0, path)
	done()
	return place, err
}

func TestRealSubpath(t *testing.T) {
	h := realHouse(t)
	outside := t.TempDir()
	write(t, outside+"/precious", "not yours")
	host := t.TempDir()
	write(t, host+"/here/file", "from the host")
	pod := podWith("u1", emptyDir("cache"), hostPath("host", host, v1.HostPathDirectory))
	dir := h.in(t, pod, "cache")
	write(t, dir+"/a/b/file", "found")
	for link, target := range map[string]string{
		"rel": "a/b", "a/up": "../a/b", "abs": "/a", "out": outside, "root": "/", "deepout": "../../../../../../../../../../etc",
		"dangling": "missing", "loop": "loop", "a/proc": "/proc/self/root",
	} {
		_ = os.Symlink(target, dir+"/"+link)
	}
	_ = syscall.Mkfifo(dir+"/pipe", 0o600)
	_ = os.Chmod(dir, 0o2770|fs.ModeSetgid)
	for _, c := range []struct {
		rule, volume, path string
		file, want         string // in it; in the error
	}{
		{"a directory", "cache", "a/b", "file", "found"},
		{"a file", "cache", "a/b/file", "", "found"},
		{"a link that stays within", "cache", "rel/file", "", "found"},
		{"a link that goes up and stays within", "cache", "a/up", "file", "found"},
		{"an unclean path", "cache", "./a//b/", "file", "found"},
		{"a path of the host", "host", "here", "file", "from the host"},
		{"a link out of it", "cache", "out", "", "leads out of the volume"},
		{"through a link out of it", "cache", "out/precious", "", "leads out of the volume"},
		{"an absolute link, though it looks as if it stayed", "cache", "abs", "", "leads out of the volume"},
		{"a link to the root", "cache", "root/etc/passwd", "", "leads out of the volume"},
		{"a link far up", "cache", "deepout/passwd", "", "leads out of the volume"},
		{"a link of the kernel", "cache", "a/proc/etc", "", "leads out of the volume"},
		{"a link that leads nowhere", "cache", "dangling", "", "goes through something that is no directory, nor a link to one"},
		{"through a link that leads nowhere", "cache", "dangling/x", "", "goes through something that is no directory, nor a link to one"},
		{"a link to itself", "cache", "loop", "", "goes through links in a circle"},
		{"through a file", "cache", "a/b/file/x", "", "goes through something that is no directory"},
		{"a way up (c138)", "cache", "a/../..", "", "must not go up by .. anywhere"},
		{"an absolute path", "cache", "/etc", "", "must be relative"},
		{"no path", "cache", "", "", "is no path"},
		{"a volume that is not there", "other", "a", "", "is not in place"},
		{"a volume with a bad name", "../cache", "a", "", "cannot name a directory"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			place, err := h.subpath(t, "u1", c.volume, c.path)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), h.root) {
					t.Errorf("error %q, want one with %q and without a path of the host", err, c.want)
				}
				return
			}
			if got := read(t, filepath.Join(place, c.file)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	t.Run("what is neither file nor directory", func(t *testing.T) {
		place, err := h.subpath(t, "u1", "cache", "pipe") // must not wait for a writer
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(place); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
			t.Error(info, err)
		}
	})
	t.Run("what is missing becomes a directory like the volume", func(t *testing.T) {
		place, err := h.subpath(t, "u1", "cache", "rel/new/er")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{place, dir + "/a/b/new", dir + "/a/b/new/er"} {
			if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o770 {
				t.Error(path, info, err)
			}
		}
	})
	if n := len(mountsBelow(t, h.root)); n != 2 {
		t.Errorf("%d mounts, want the latest of each volume", n)
	}
	h.unmount(t, "u1")
	if read(t, host+"/here/file") != "from the host" {
		t.Error("the host lost a file")
	}
}

func TestRealSubpathIsBoundOnceAndAnewWhenItChanged(t *testing.T) {
	h := realHouse(t)
	pod := podWith("u1", downward("info", fieldItem("name", "metadata.name"), fieldItem("labels", "metadata.labels")))
	h.in(t, pod, "info")
	first, err := h.subpath(t, "u1", "info", "labels")
	if err != nil {
		t.Fatal(err)
	}
	again, err := h.subpath(t, "u1", "info", "labels")
	if err != nil || again != first || len(mountsBelow(t, h.root)) != 2 {
		t.Errorf("%q %v, %d mounts", again, err, len(mountsBelow(t, h.root)))
	}
	pod = pod.DeepCopy()
	pod.Labels = map[string]string{"new": "label"}
	dir := h.in(t, pod, "info")
	if got := read(t, first); got != "app=\"web\"\ntier=\"front\"" {
		t.Errorf("what is bound has changed: %q", got)
	}
	open, err := os.Open(first)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	again, err = h.subpath(t, "u1", "info", "labels") // the container is started again (c125)
	if err != nil || again != first || read(t, again) != `new="label"` {
		t.Errorf("%q %v: %q", again, err, read(t, again))
	}
	if got := read(t, dir+"/labels"); got != `new="label"` {
		t.Errorf("the directory shows %q (c136)", got)
	}
	h.unmount(t, "u1")
}

func TestRealFilesStayWhileAContainerIsMadeWithThem(t *testing.T) {
	h := realHouse(t)
	pod := podWith("u1", downward("info", fieldItem("labels", "metadata.labels")))
	dir := h.in(t, pod, "info")
	old, _ := os.Readlink(dir + "/..data")
	_, done, err := h.Subpath(t.Context(), "u1", "info", "main", 0, "labels")
	if err != nil {
		t.Fatal(err)
	}
	pod = pod.DeepCopy()
	pod.Labels = nil
	h.in(t, pod, "info")
	if _, err := os.Stat(filepath.Join(dir, old, "labels")); err != nil {
		t.Errorf("removed while a container is made with it (c126): %v", err)
	}
	done()
	done()
	h.in(t, pod, "info")
	if _, err := os.Stat(filepath.Join(dir, old)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("still there when nobody needs it")
	}
	h.unmount(t, "u1")
}

func TestCase_c125_ARestartedContainerSeesTheNewFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(configMap("app", "app.ini", "1"), secret("key", "k", "1"))
		c.run(t, "", func(r *rig) {
			from := v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "app"}}}
			pod := podWith("u1", ofConfigMap("conf", "app"), ofSecret("key", "key"), projected("all", from))
			r.in(t, pod, "conf")
			files := map[string]string{"conf": "app.ini", "key": "k", "all": "app.ini"}
			places := map[string]string{}
			for _, want := range []string{"1", "2"} {
				for volume, file := range files {
					place, done, err := r.Subpath(t.Context(), "u1", volume, "main", 0, file)
					if err != nil {
						t.Fatal(err)
					}
					done()
					if got := read(t, place); got != want || places[volume] != "" && places[volume] != place {
						t.Errorf("%s: %q at %s, want %q at the same place", volume, got, place, want)
					}
					places[volume] = place
				}
				if want == "2" {
					break
				}
				r.put(configMap("app", "app.ini", "2"))
				r.put(secret("key", "k", "2"))
				synctest.Wait()
				for volume, place := range places {
					if got := read(t, place); got != "1" {
						t.Errorf("%s: a container that runs sees %q", volume, got)
					}
				}
			}
			again := newHouse(t, func(c *volume.Config) { c.Root, c.Mounter = r.root, nil })
			if err := again.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
				t.Error(err)
			}
			if left := mountsBelow(t, r.root); len(left) > 0 || exists(r.root+"/pods/u1") {
				t.Errorf("after a sweep by another agent: %v", left)
			}
			r.unmount(t, "u1")
		}, func(c *volume.Config) { c.Mounter = nil })
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestRealKills kills a process that puts volumes in place and takes them away again, at any instant, and looks whether the
// next one copes with what it finds.
func TestRealKills(t *testing.T) {
	h := realHouse(t)
	pod := killedPod()
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 3))
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledChild$")
		cmd.Env = append(os.Environ(), "VOLUME_ROOT="+h.root)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+r.IntN(250)) * time.Millisecond) // the instant of the kill, not a wait for anything
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()

		cluster := killedCluster()
		h := newHouse(t, func(c *volume.Config) { c.Root, c.Mounter, c.Objects, c.Tokens = h.root, nil, cluster, cluster })
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- h.Run(ctx) }()
		if seed%2 == 0 { // it is wanted on
			places, err := h.Mount(t.Context(), pod)
			for errors.Is(err, runtime.ErrInProgress) { // a busy machine has not read the objects yet
				places, err = h.Mount(t.Context(), pod)
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got := read(t, places["info"].Path+"/name"); got != "web" {
				t.Errorf("seed %d: %q", seed, got)
			}
			if got := read(t, places["all"].Path+"/token"); got != "token 1" {
				t.Errorf("seed %d: %q", seed, got)
			}
			if read(t, places["conf"].Path+"/a") != "A" || read(t, places["key"].Path+"/k") != "K" {
				t.Errorf("seed %d: wrong content", seed)
			}
			if place, err := h.subpath(t, "u1", "mem", "a/b"); err != nil {
				t.Errorf("seed %d: %v at %s", seed, err, place)
			}
			if n := len(mountsBelow(t, h.root)); n != 5 {
				t.Errorf("seed %d: %d mounts", seed, n)
			}
		}
		err := h.Unmount(t.Context(), "u1")
		for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); {
			err = h.Unmount(t.Context(), "u1") // a mount(8) that was killed, too, may still hold on to it
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		h.unmount(t, "u1")
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

func killedPod() *v1.Pod {
	return podWith("u1", emptyDir("cache"), memory("mem", "1Mi"), downward("info", fieldItem("name", "metadata.name")),
		ofConfigMap("conf", "app"), ofSecret("key", "key"), projected("all", token("token", 600)))
}

func killedCluster() *cluster { return newCluster(configMap("app", "a", "A"), secret("key", "k", "K")) }

// TestKilledChild is the process that TestRealKills kills.
func TestKilledChild(t *testing.T) {
	root := os.Getenv("VOLUME_ROOT")
	if root == "" {
		return // nobody asked for it
	}
	cluster := killedCluster()
	m, err := volume.New(volume.Config{Root: root, Objects: cluster, Tokens: cluster})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = m.Run(context.Background()) }()
	for i := 0; ; i++ {
		places, err := m.Mount(context.Background(), killedPod())
		for errors.Is(err, runtime.ErrInProgress) {
			places, err = m.Mount(context.Background(), killedPod())
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, fmt.Sprintf("%s/%d/deep/er", places["cache"].Path, i), "")
		_, done, _ := m.Subpath(context.Background(), "u1", "mem", "main", 0, "a/b")
		done()
		_ = m.Unmount(context.Background(), "u1")
	}
}

// What a volume in memory costs, such as every token, with system calls and with mount(8) and umount(8).
func BenchmarkMemoryComesAndGoes(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: it mounts")
	}
	for name, mounter := range map[string]mount.Interface{"calls": nil, "programs": mount.New("")} {
		b.Run(name, func(b *testing.B) {
			m, err := volume.New(volume.Config{Root: b.TempDir(), Mounter: mounter})
			if err != nil {
				b.Fatal(err)
			}
			pod, before := podWith("u1", memory("v", "1Mi")), spent(b)
			for b.Loop() {
				_, err := m.Mount(b.Context(), pod)
				if err := errors.Join(err, m.Unmount(b.Context(), "u1")); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((spent(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// spent is the CPU time of this process and its children.
func spent(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
