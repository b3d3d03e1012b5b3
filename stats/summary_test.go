package stats

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var update = flag.Bool("update", false, "write testdata/*.json anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is a runtime.Stats.
type engine struct {
	usage []runtime.Usage
	fs    []runtime.FSUsage
	err   error
	asked atomic.Int32
	wait  time.Duration
	looks int // at containers
}

func (e *engine) ContainerStats(context.Context, runtime.Filter) ([]runtime.Usage, error) {
	e.looks++
	return e.usage, e.err
}

func (e *engine) ImageFS(ctx context.Context) ([]runtime.FSUsage, error) {
	e.asked.Add(1)
	select {
	case <-time.After(e.wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return e.fs, e.err
}

func disk(path string) (DiskUsage, error) {
	switch path {
	case "/var/lib/kubelet":
		return DiskUsage{Capacity: 1000, Free: 400, Available: 350, Inodes: 100, InodesFree: 60}, nil
	case "/var/lib/containerd":
		return DiskUsage{Capacity: 2000, Free: 1500, Available: 1400}, nil // btrfs counts no inodes
	}
	return DiskUsage{}, errors.New("no such mount")
}

func running(name, id string, at time.Time) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + id, Image: "registry/" + name + ":1",
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}},
	}
}

func pod(name string, status v1.PodStatus) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, Status: status}
}

// collector of a host with one pod that runs, one that has ended and one that nothing is known of.
func collector(t *testing.T, files string, e *engine) *Collector {
	t.Helper()
	start := time.Now()
	ended := running("job", "c4", start)
	ended.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	began := metav1.NewTime(start)
	pods := []*v1.Pod{
		pod("web", v1.PodStatus{
			StartTime:             &began,
			InitContainerStatuses: []v1.ContainerStatus{running("proxy", "c2", start)},
			ContainerStatuses:     []v1.ContainerStatus{running("app", "c1", start)},
		}),
		pod("job", v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{ended}}),
		pod("new", v1.PodStatus{}),
	}
	used := uint64(7)
	c, err := New(Config{
		Node: "n1", Root: os.DirFS("testdata/" + files), Disk: disk, Cgroup: func(*v1.Pod) string { return "kubepods/podu" }, Engine: e, Pods: func() []*v1.Pod { return pods },
		Volumes: func(uid string) []stats.VolumeStats {
			return []stats.VolumeStats{{Name: "data-of-" + uid, FsStats: stats.FsStats{UsedBytes: &used}}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func usage(now time.Time) []runtime.Usage {
	return []runtime.Usage{
		{Container: "c1", Sandbox: "s1", At: now, CPUNanos: 5e9, WorkingSet: 100, RootFS: 10, Swap: 3, SwapAvailable: 4, SwapKnown: true},
		{Container: "c2", Sandbox: "s1", At: now, CPUNanos: 1e9, WorkingSet: 20, RootFS: 1},
		{Container: "c4", Sandbox: "s2", At: now, CPUNanos: 9e9, WorkingSet: 900, RootFS: 9}, // its pod says it has ended
		{Container: "stranger", At: now},
	}
}

func TestSummary(t *testing.T) {
	for _, files := range []string{"v1", "v2"} {
		t.Run(files, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &engine{usage: usage(time.Now()), fs: []runtime.FSUsage{{Mountpoint: "/var/lib/containerd", Used: 300}}}
				s, err := collector(t, files, e).Summary(t.Context(), false)
				if err != nil {
					t.Fatal(err)
				}
				got, err := json.MarshalIndent(s, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				golden := "testdata/summary-" + files + ".json"
				if *update {
					if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestAGlanceDoesNotLookAtCgroupsOfPodsAndAFreshSummaryOnlyAtWhatDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collector(t, "v2", &engine{usage: usage(time.Now())})
		s, err := c.Glance(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if p := s.Pods[0]; *p.Memory.WorkingSetBytes != 120 || p.ProcessStats != nil || s.Node.Memory == nil {
			t.Errorf("a glance: %+v, %+v", p.Memory, p.ProcessStats)
		}
		if s, err = c.Summary(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if p := s.Pods[0]; *p.Memory.WorkingSetBytes != 150 || *p.ProcessStats.ProcessCount != 17 || p.Network != nil || p.Memory.PSI != nil {
			t.Errorf("fresh: %+v, %+v, %+v", p.Memory, p.ProcessStats, p.Network)
		}
	})
}

func TestAGlanceAsksTheEngineAboutContainersOnlyWhereItHasTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{usage: usage(time.Now())}
		c := collector(t, "v2", e)
		glance := func(want int) stats.PodStats {
			t.Helper()
			s, err := c.Glance(t.Context(), true)
			if err != nil || len(s.Pods) != 3 {
				t.Fatalf("pods of a glance: %+v, %v", s, err)
			}
			if e.looks != want {
				t.Errorf("the engine was asked %d times about containers, want %d", e.looks, want)
			}
			return s.Pods[0]
		}
		glance(1) // nothing is known of rates yet
		for range 5 {
			time.Sleep(10 * time.Second)
			if p := glance(1); p.Memory != nil || len(p.Containers) > 0 || *p.VolumeStats[0].UsedBytes != 7 {
				t.Errorf("a pod without limits: %+v", p)
			}
		}
		time.Sleep(10 * time.Second)
		glance(2)
		c.cfg.Pods()[0].Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")},
		}}}
		if p := glance(3); len(p.Containers) != 2 || *p.Containers[0].Rootfs.UsedBytes == 0 {
			t.Errorf("a pod with a limit: %+v", p)
		}
	})
}

// Who guards the node ends first what nobody knows anything of. That a pod waits for its image, or after a crash, is known.
func TestPodsOfWhichNothingRunsAreKnownToWhoChooses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{usage: usage(time.Now())}
		c := collector(t, "v2", e)
		names := func(look func(context.Context, bool) (*stats.Summary, error)) (out []string) {
			s, err := look(t.Context(), true)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range s.Pods {
				name := p.PodRef.Name
				if p.Memory != nil {
					name += "/" + strconv.FormatUint(*p.Memory.WorkingSetBytes, 10)
				}
				out = append(out, name)
			}
			return out
		}
		expect := func(rule string, got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", rule, got, want)
			}
		}
		expect("whoever asks sees those that run", names(c.Summary), "web/150")
		expect("a calm look has all", names(c.Glance), "web", "job", "new")
		expect("a close one, too, with the memory of their volumes", names(c.Closely), "web/150", "job/150", "new/150")
		e.usage = nil
		expect("one whose containers the engine does not show, and whose cgroup does not have them, is not known", names(c.Closely), "job/150", "new/150")
		c.cfg.Cgroup = nil
		expect("without cgroups they are known to use none", names(c.Closely), "job", "new")
	})
}

// kubernetes-sigs/metrics-server#745, kubernetes-retired/heapster#1126: when one of several containers began anew, the sum of
// their CPU times fell, and who made rates of it saw all that the others had ever used.
func TestCPUTimeOfAPodDoesNotFallWhenAContainerBeginsAnew(t *testing.T) {
	for version, file := range map[string]string{"v1": "cpuacct/kubepods/podu/cpuacct.usage", "v2": "kubepods/podu/cpu.stat"} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			name := filepath.Join(dir, "sys/fs/cgroup", file)
			if err := errors.Join(os.CopyFS(dir, os.DirFS("testdata/"+version)), os.MkdirAll(filepath.Dir(name), 0o755)); err != nil {
				t.Fatal(err)
			}
			e := &engine{}
			c := collector(t, version, e)
			c.cfg.Root = os.DirFS(dir)
			look := func(app, proxy, group int64) *stats.CPUStats {
				t.Helper()
				e.usage = []runtime.Usage{{Container: "c1", At: time.Now(), CPUNanos: app * 1e9}, {Container: "c2", At: time.Now(), CPUNanos: proxy * 1e9}}
				text := fmt.Sprintf("%d\n", group*1e9)
				if version == "v2" {
					text = fmt.Sprintf("usage_usec %d\n", group*1e6)
				}
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				s, err := c.Summary(t.Context(), true)
				if err != nil || len(s.Pods) != 1 {
					t.Fatal(s, err)
				}
				return s.Pods[0].CPU
			}
			if cpu := look(1000, 500, 1600); *cpu.UsageCoreNanoSeconds != 1600e9 {
				t.Errorf("%s: with what ended before it is %d", version, *cpu.UsageCoreNanoSeconds)
			}
			time.Sleep(10 * time.Second)
			if cpu := look(1004, 1, 1605); *cpu.UsageCoreNanoSeconds != 1605e9 || *cpu.UsageNanoCores != 5e8 {
				t.Errorf("%s: after one began anew it is %d, a rate of %d", version, *cpu.UsageCoreNanoSeconds, *cpu.UsageNanoCores)
			}
			if cpu := look(1004, 2, 0); *cpu.UsageCoreNanoSeconds != 1006e9 {
				t.Errorf("%s: of containers that lie elsewhere it is %d", version, *cpu.UsageCoreNanoSeconds)
			}
		})
	}
}

// k3s-io/k3s#2370: a node without memory, whose runtime hung for lack of it, looked at nothing any more.
func TestAGlanceDoesWithoutAnEngineThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata/v2")); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"c1", "c2"} {
			at := filepath.Join(dir, "sys/fs/cgroup/kubepods/podu/cri-containerd-"+id+".scope")
			if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(at+"/cgroup.procs", []byte("1\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		c := collector(t, "v2", &engine{wait: time.Hour})
		c.cfg.Root = os.DirFS(dir)
		begin := time.Now()
		s, err := c.Glance(t.Context(), true)
		if err != nil || time.Since(begin) > 5*time.Second {
			t.Fatalf("%v after %v", err, time.Since(begin))
		}
		if len(s.Pods) != 3 || s.Node.Memory == nil || s.Node.Fs == nil {
			t.Fatalf("%+v", s)
		}
		if p := s.Pods[0]; *p.Memory.WorkingSetBytes != 150 || *p.ProcessStats.ProcessCount != 17 || len(p.Containers) > 0 {
			t.Errorf("%+v, %+v", p.Memory, p)
		}
		if s, err := c.Summary(t.Context(), true); err == nil {
			t.Errorf("a summary: %+v", s)
		}
	})
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{}
		c := collector(t, "v1", e)
		rate := func(fresh bool, after time.Duration, nanos int64) *uint64 {
			t.Helper()
			time.Sleep(after)
			e.usage = []runtime.Usage{{Container: "c1", At: time.Now(), CPUNanos: nanos}}
			s, err := c.Summary(t.Context(), fresh)
			if err != nil || len(s.Pods) != 1 {
				t.Fatal(s, err)
			}
			if p, r := s.Pods[0].CPU.UsageNanoCores, s.Pods[0].Containers[0].CPU.UsageNanoCores; (p == nil) != (r == nil) || p != nil && *p != *r {
				t.Errorf("pod %v, its container %v", p, r)
			}
			return s.Pods[0].CPU.UsageNanoCores
		}
		is := func(rule string, got *uint64, want int64) {
			t.Helper()
			if got == nil && want >= 0 || got != nil && int64(*got) != want {
				t.Errorf("%s: %v, want %d", rule, got, want)
			}
		}
		is("one reading is none", rate(true, 0, 1e9), -1)
		is("two make one", rate(true, time.Second, 2e9), 1e9)
		is("who only asks moves nothing", rate(false, time.Second, 9e9), 1e9)
		is("nor does the time", rate(false, 8*time.Second, 9e9), 1e9)
		is("an old reading is replaced", rate(false, time.Second, 7e9), 5e8)
		is("no time has passed", rate(true, 0, 8e9), 5e8)
		is("a new container of the same ID starts anew", rate(true, time.Second, 1e9), -1)
		is("and has a rate again", rate(true, 2*time.Second, 2e9), 5e8)
		e.usage = nil
		time.Sleep(11 * time.Minute)
		if _, err := c.Summary(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if n := len(c.rates.last); n != 1 {
			t.Errorf("%d readings are kept, want the node's", n)
		}
	})
}

func TestManyWhoAskShareALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{wait: time.Second}
		c := collector(t, "v2", e)
		impatient, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer stop()
		if _, err := c.Summary(impatient, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for range 20 {
			go func() {
				if _, err := c.Summary(t.Context(), false); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		if n := e.asked.Load(); n != 1 {
			t.Errorf("%d looks", n)
		}
	})
}

func TestSummaryOfLittle(t *testing.T) {
	t.Run("no engine", func(t *testing.T) {
		c, err := New(Config{Root: os.DirFS("testdata/v1"), Disk: disk})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Summary(t.Context(), false)
		if err != nil || s.Pods == nil || s.Node.Runtime != nil {
			t.Errorf("%+v, %v", s, err)
		}
		if _, _, err := c.ImageDisk(t.Context()); err == nil {
			t.Error("images of no engine have a disk")
		}
	})
	t.Run("an engine that fails", func(t *testing.T) {
		bad := errors.New("away")
		if _, err := collector(t, "v1", &engine{err: bad}).Summary(t.Context(), false); !errors.Is(err, bad) {
			t.Error(err)
		}
	})
	t.Run("an engine whose images lie where nobody sees", func(t *testing.T) {
		s, err := collector(t, "v1", &engine{fs: []runtime.FSUsage{{Mountpoint: "/elsewhere", Used: 5}}}).Summary(t.Context(), false)
		if err != nil || *s.Node.Runtime.ImageFs.UsedBytes != 5 || s.Node.Runtime.ImageFs.CapacityBytes != nil {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("an engine whose containers write elsewhere", func(t *testing.T) {
		e := &engine{usage: usage(time.Now()), fs: []runtime.FSUsage{{Mountpoint: "/var/lib/kubelet", Used: 6, Inodes: 3, Written: true}, {Mountpoint: "/var/lib/containerd", Used: 5}}}
		s, err := collector(t, "v1", e).Summary(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		images, written := s.Node.Runtime.ImageFs, s.Node.Runtime.ContainerFs
		if *images.UsedBytes != 5 || *images.CapacityBytes != 2000 || *written.UsedBytes != 6 || *written.CapacityBytes != 1000 || *written.InodesUsed != 3 {
			t.Errorf("images %+v, what containers write %+v", images, written)
		}
		if capacity := *s.Pods[0].Containers[0].Rootfs.CapacityBytes; capacity != 1000 {
			t.Errorf("a container may write %d", capacity)
		}
	})
	t.Run("a kernel without the memory controller", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata/v1")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir + "/sys/fs/cgroup/memory"); err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{Root: os.DirFS(dir), Disk: disk})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Summary(t.Context(), false)
		if err != nil || *s.Node.Memory.WorkingSetBytes != 2000000<<10 || *s.Node.Memory.AvailableBytes != 6000000<<10 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestImageDisk(t *testing.T) {
	c := collector(t, "v1", &engine{fs: []runtime.FSUsage{{Mountpoint: "/var/lib/containerd"}}})
	if capacity, available, err := c.ImageDisk(t.Context()); capacity != 2000 || available != 1400 || err != nil {
		t.Error(capacity, available, err)
	}
	c = collector(t, "v1", &engine{fs: []runtime.FSUsage{{Mountpoint: "/var/lib/kubelet", Written: true}, {Mountpoint: "/var/lib/containerd"}}})
	if capacity, _, err := c.ImageDisk(t.Context()); capacity != 2000 || err != nil {
		t.Error(capacity, err)
	}
	if _, _, err := collector(t, "v1", &engine{}).ImageDisk(t.Context()); err == nil {
		t.Error("an engine that does not say where images lie: no error")
	}
}

func BenchmarkMachine(b *testing.B) {
	c, err := New(Config{Root: os.DirFS("testdata/v2")})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := c.Machine(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWhatIsLeftOfAContainersMemory(t *testing.T) {
	limit := func(text string) *v1.ResourceRequirements {
		return &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}}
	}
	for _, c := range []struct {
		resources *v1.ResourceRequirements
		want      *uint64
	}{
		{nil, nil},
		{&v1.ResourceRequirements{}, nil},
		{limit("1000"), new(uint64(900))},
		{limit("50"), new(uint64(0))},
	} {
		s := running("app", "c1", time.Now())
		s.Resources = c.resources
		got := container(s, runtime.Usage{WorkingSet: 100}, nil, DiskUsage{}).Memory.AvailableBytes
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.resources, diff)
		}
	}
}
