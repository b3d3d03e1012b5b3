package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/stats"
)

// smallDisk mounts a file system of its own.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	for _, err := range []error{os.WriteFile(image, nil, 0o600), os.Truncate(image, int64(mib)<<20), os.Mkdir(mount, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	run("mkfs.ext4", "-q", "-m", "0", image)
	run("mount", "-o", "loop", image, mount)
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return mount
}

// squatter is a host whose pods have files on a small disk, and where images lie on it, too.
type squatter struct {
	t    *testing.T
	root string

	mu    sync.Mutex // guards the rest
	pods  []*v1.Pod
	ended []string
	how   []runtime.Termination
}

func (s *squatter) dir(uid types.UID) string { return filepath.Join(s.root, "pods", string(uid)) }

// fill adds a file of so many MiB. A disk that is full takes what fits.
func (s *squatter) fill(name string, mib int) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, mib<<20), 0o600); err != nil && !strings.Contains(err.Error(), "no space left") {
		s.t.Fatal(err)
	}
	if f, err := os.Open(name); err == nil {
		_ = f.Sync() // so that the disk shows it
		_ = f.Close()
	}
}

func (s *squatter) start(name string, mib int, priority int32) {
	s.t.Helper()
	now := metav1.Now()
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)},
		Spec: v1.PodSpec{
			Priority: &priority, Containers: []v1.Container{{Name: "c"}},
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", ContainerID: "test://" + name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		}}},
	}
	s.pods = append(s.pods, p)
	s.fill(filepath.Join(s.dir(p.UID), "volumes/kubernetes.io~empty-dir/data/file"), mib)
}

func (s *squatter) Active() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*v1.Pod(nil), s.pods...)
}

func (s *squatter) Kill(_ context.Context, uid types.UID, how runtime.Termination) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.how = append(s.ended, string(uid)), append(s.how, how)
	for i, p := range s.pods {
		if p.UID == uid {
			s.pods = append(s.pods[:i:i], s.pods[i+1:]...)
			return nil
		}
	}
	return runtime.ErrNotFound
}

func (s *squatter) Settled(_ context.Context, uid types.UID) error { return os.RemoveAll(s.dir(uid)) }

func (s *squatter) ContainerStats(context.Context, runtime.Filter) (out []runtime.Usage, err error) {
	for _, p := range s.Active() {
		out = append(out, runtime.Usage{Container: p.Name, At: time.Now()})
	}
	return out, nil
}

func (s *squatter) ImageFS(context.Context) ([]runtime.FSUsage, error) {
	return []runtime.FSUsage{{Mountpoint: filepath.Join(s.root, "images")}}, nil
}

func (s *squatter) ListImages(context.Context) (out []runtime.Image, err error) {
	entries, err := os.ReadDir(filepath.Join(s.root, "images"))
	for _, e := range entries {
		out = append(out, runtime.Image{ID: e.Name(), Size: 1})
	}
	return out, err
}

func (s *squatter) RemoveImage(_ context.Context, id string) error {
	return os.Remove(filepath.Join(s.root, "images", id))
}

func (s *squatter) ListContainers(context.Context, runtime.Filter) ([]runtime.Container, error) {
	return []runtime.Container{{ID: "c", ImageID: "used"}}, nil
}

func (s *squatter) Container(context.Context, string) (runtime.Container, error) {
	return runtime.Container{}, nil
}

// A real disk fills: images go first, then pods by rank, and pods and pressure go away again. It works with no byte free.
func TestARealDiskThatRunsFull(t *testing.T) {
	s := &squatter{t: t, root: smallDisk(t, 64)}
	s.fill(filepath.Join(s.root, "images/used"), 4)
	s.fill(filepath.Join(s.root, "images/unused"), 16)
	s.start("important", 8, 1000)
	s.start("large", 12, 0)
	s.start("small", 4, 0)
	figures, err := stats.New(stats.Config{RootDir: s.root, LogRoot: filepath.Join(s.root, "logs"), Engine: s, Pods: s.Active})
	if err != nil {
		t.Fatal(err)
	}
	images, err := imagegc.New(imagegc.Config{Images: s, Users: s, Disk: figures})
	if err != nil {
		t.Fatal(err)
	}
	m, err := eviction.New(eviction.Config{
		Source: eviction.FromSummary(figures.Summary), Pods: s, Images: images, Transition: time.Nanosecond,
		Thresholds: parse(t, list{"nodefs.available": "20%"}, nil, nil, nil),
		Layout: func(ctx context.Context) (eviction.Layout, error) {
			apart, _, err := figures.Apart(ctx)
			if apart {
				err = errors.Join(err, errors.New("they lie on one disk"))
			}
			return eviction.OneDisk, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		measure(t, figures)
		got, err := m.Check(t.Context())
		if err != nil || strings.Trim(fmt.Sprint(got), "[]") != want {
			t.Fatalf("ended %v, %v; want %q", got, err, want)
		}
	}
	check("") // images were enough
	if left, _ := s.ListImages(t.Context()); len(left) != 1 || left[0].ID != "used" {
		t.Fatal(left)
	}
	pressure(t, m, v1.NodeDiskPressure)
	check("")
	pressure(t, m)

	s.fill(filepath.Join(s.root, "somebody/else"), 64) // not a byte is free
	check("large")
	if len(s.how) != 1 || !strings.HasPrefix(s.how[0].Message, "The node was low on resource: ephemeral-storage. Threshold quantity: ") {
		t.Error(s.how)
	}
	if err := os.RemoveAll(filepath.Join(s.root, "somebody")); err != nil {
		t.Fatal(err)
	}
	check("")
	pressure(t, m)

	limit := resource.MustParse("6Mi")
	s.pods[0].Spec.Volumes[0].EmptyDir.SizeLimit = &limit // the important one has 8 MiB in it
	check("important")
}

// measure has the collector go through the files once.
func measure(t *testing.T, c *stats.Collector) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	for {
		s, err := c.Summary(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		missing := false
		for _, p := range s.Pods {
			missing = missing || p.EphemeralStorage == nil
		}
		if !missing {
			break
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
