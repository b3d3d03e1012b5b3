package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/volume"
)

var (
	_ syncloop.Volumes = (*volume.Manager)(nil)
	_ syncloop.Sweeper = (*volume.Manager)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a manager with its directory.
type house struct {
	*volume.Manager
	root string
	fake *mount.FakeMounter
}

func newHouse(t *testing.T, change ...func(*volume.Config)) house {
	t.Helper()
	h := house{root: t.TempDir(), fake: mount.NewFakeMounter(nil)}
	cfg := volume.Config{Root: h.root, Mounter: h.fake}
	for _, c := range change {
		c(&cfg)
	}
	h.root = cfg.Root
	m, err := volume.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Manager = m
	return h
}

// podWith has one container that mounts all these volumes at /<name>.
func podWith(uid string, volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: types.UID(uid),
		Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"note": "two\nlines"},
	}}
	c := v1.Container{Name: "main"}
	for _, v := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	p.Spec.Containers = []v1.Container{c}
	p.Spec.Volumes = volumes
	return p
}

// in mounts and answers where the one volume lies.
func (h house) in(t *testing.T, pod *v1.Pod, name string) string {
	t.Helper()
	places, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return places[name].Path
}

func (h house) unmount(t *testing.T, uid string) {
	t.Helper()
	if err := h.Unmount(t.Context(), types.UID(uid)); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(h.root, "pods", uid)); len(entries) > 0 {
		t.Errorf("left in the pod's directory: %v", entries)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestVolumesNobodyMountsAreLeftAlone(t *testing.T) {
	h := newHouse(t)
	pod := podWith("u1", emptyDir("a"), emptyDir("b"), emptyDir("c"), v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}})
	mounts := pod.Spec.Containers[0].VolumeMounts
	pod.Spec.Containers[0].VolumeMounts = mounts[:1]
	pod.Spec.InitContainers = []v1.Container{{Name: "init", VolumeMounts: mounts[1:2]}}
	places, err := h.Mount(t.Context(), pod)
	if err != nil || len(places) != 2 || places["a"].Path == "" || places["b"].Path == "" {
		t.Errorf("%v %v, want a and b", places, err)
	}
}

func TestFSGroupOwnsWhatIsMade(t *testing.T) {
	group := int64(os.Getgid())
	if os.Getuid() == 0 {
		group = 4242
	}
	h := newHouse(t)
	item := fieldItem("deep/name", "metadata.name")
	item.Mode = new(int32(0o400))
	pod := podWith("u1", emptyDir("cache"), downward("info", item))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	places, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		places["cache"].Path:               fs.ModeDir | fs.ModeSetgid | 0o777,
		places["info"].Path:                fs.ModeDir | fs.ModeSetgid | 0o777,
		places["info"].Path + "/deep":      fs.ModeDir | fs.ModeSetgid | 0o755,
		places["info"].Path + "/deep/name": 0o440,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want || int64(info.Sys().(*syscall.Stat_t).Gid) != group {
			t.Errorf("%s: %v %v, want %v of group %d", path, info.Mode(), err, want, group)
		}
	}
}

func TestOtherKindsAreNamedInTheError(t *testing.T) {
	h := newHouse(t)
	_, err := h.Mount(t.Context(), podWith("u1",
		v1.Volume{Name: "key", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
		emptyDir("fine"),
		v1.Volume{Name: "slow", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Tape"}}},
		v1.Volume{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}}},
	))
	want := `MountVolume.SetUp failed for volume "key" : secret needs an API server, which this agent has none of
MountVolume.SetUp failed for volume "slow" : this agent has no emptyDir with medium "Tape", only the disk, "Memory" and "HugePages"
MountVolume.SetUp failed for volume "token" : serviceAccountToken needs an API server, which this agent has none of`
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
}

func TestImageVolumesAreTheRuntimesBusiness(t *testing.T) {
	h := newHouse(t)
	places, err := h.Mount(t.Context(), podWith("u1", v1.Volume{Name: "model", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "example.com/model:1"}}}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]runtime.Volume{"model": {Image: "example.com/model:1", ReadOnly: true}}, places); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, _, err := h.Subpath(t.Context(), "u1", "model", "main", 0, "x"); err == nil {
		t.Error("a part of it has a place on this host")
	}
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	h := newHouse(t)
	for _, uid := range []string{"", ".", "..", "a/b", "../x", "a\x00"} {
		if _, err := h.Mount(t.Context(), podWith(uid, emptyDir("cache"))); err == nil {
			t.Errorf("uid %q was taken", uid)
		}
		if err := h.Unmount(t.Context(), types.UID(uid)); err == nil {
			t.Errorf("uid %q was taken away", uid)
		}
	}
	for _, name := range []string{"..", "a/b", "../../../x", strings.Repeat("x", 256)} {
		if _, err := h.Mount(t.Context(), podWith("u1", emptyDir(name))); err == nil {
			t.Errorf("volume name %q was taken", name)
		}
	}
	if _, err := volume.New(volume.Config{Root: "var"}); err == nil {
		t.Error("a relative root was taken")
	}
}

func TestPodsDoNotWaitForEachOther(t *testing.T) {
	h := newHouse(t)
	var wg sync.WaitGroup
	for i := range 8 {
		uid := fmt.Sprint("u", i%4) // two calls for one pod at a time
		pod := podWith(uid, emptyDir("cache"), downward("info", fieldItem("name", "metadata.name")))
		wg.Go(func() {
			for range 20 {
				if _, err := h.Mount(context.Background(), pod); err != nil {
					t.Error(err)
				}
				if _, done, err := h.Subpath(context.Background(), pod.UID, "cache", "main", 0, "a/b"); err == nil {
					done()
				}
				if err := h.Unmount(context.Background(), pod.UID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if entries, _ := os.ReadDir(h.root + "/pods"); len(entries) > 0 {
		t.Error(entries)
	}
}

func TestAWaitingCallEndsWithItsContext(t *testing.T) {
	h := newHouse(t)
	h.in(t, podWith("u1", memory("mem", "")), "mem")
	blocked, release := make(chan struct{}), make(chan struct{})
	h.fake.UnmountFunc = func(string) error { close(blocked); <-release; return nil }
	done := make(chan error)
	go func() { done <- h.Unmount(context.Background(), "u1") }()
	<-blocked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Unmount(ctx, "u1"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
