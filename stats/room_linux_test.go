package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// lodging is a pod with files of every kind.
func lodging(t *testing.T) (c *Collector, p *v1.Pod, put func(name string, kib int)) {
	t.Helper()
	root := t.TempDir()
	p = pod("web", v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{running("app", "c1", time.Now())}})
	empty := func(name string, medium v1.StorageMedium) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
	}
	p.Spec.Volumes = []v1.Volume{
		empty("scratch", ""), empty("late", ""), empty("ram", v1.StorageMediumMemory),
		{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}},
	}
	e := &engine{usage: []runtime.Usage{{Container: "c1", At: time.Now(), RootFS: 1 << 20, RootFSInodes: 7}}}
	pods := []*v1.Pod{p}
	c, err := New(Config{
		RootDir: root, LogRoot: filepath.Join(root, "logs"), Root: os.DirFS("testdata/v2"), Engine: e, Pods: func() []*v1.Pod { return pods },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, p, func(name string, kib int) {
		t.Helper()
		name = strings.NewReplacer("POD", "pods/uid-web", "VOL", "pods/uid-web/volumes/kubernetes.io", "LOG", "logs/ns_web_uid-web").Replace(name)
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, make([]byte, kib<<10), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// measured is the pod in a summary after a round of Run.
func measured(t *testing.T, c *Collector) stats.PodStats {
	t.Helper()
	c.measureAll(t.Context(), true)
	s, err := c.Summary(t.Context(), true)
	if err != nil || len(s.Pods) != 1 {
		t.Fatal(err, s)
	}
	return s.Pods[0]
}

// near says that a figure is so many KiB, and up to a few blocks of directories more.
func near(t *testing.T, what string, got *uint64, kib int) {
	t.Helper()
	if got == nil || int(*got>>10) < kib || int(*got>>10) > kib+64 {
		t.Errorf("%s: %v, want about %d KiB", what, got, kib)
	}
}

func TestWhatFilesOfAPodTakeUp(t *testing.T) {
	c, _, put := lodging(t)
	put("VOL~empty-dir/scratch/a/b/file", 300)
	put("VOL~empty-dir/scratch/other", 200)
	put("VOL~empty-dir/ram/page", 400)
	put("VOL~configmap/config/key", 4)
	put("VOL~secret/secret/key", 40)
	put("LOG/app/0.log", 100)
	put("LOG/app/0.log.20260101-000000.gz", 50)
	put("LOG/gone/3.log", 60)
	if s, err := c.Summary(t.Context(), true); err != nil || s.Pods[0].EphemeralStorage != nil || s.Pods[0].Containers[0].Logs != nil {
		t.Error("what was not measured is not known")
	}
	p := measured(t, c)
	near(t, "logs", p.Containers[0].Logs.UsedBytes, 150)
	near(t, "all", p.EphemeralStorage.UsedBytes, 300+200+4+150+60+1024)
	volumes := map[string]stats.VolumeStats{}
	for _, v := range p.VolumeStats {
		volumes[v.Name] = v
	}
	near(t, "scratch", volumes["scratch"].UsedBytes, 500)
	near(t, "ram", volumes["ram"].UsedBytes, 400)
	if v := volumes["scratch"]; *v.InodesUsed != 5 || *v.CapacityBytes == 0 {
		t.Errorf("%+v", v)
	}
	if _, ok := volumes["late"]; ok || len(volumes) != 4 {
		t.Errorf("volumes %v", volumes)
	}
}

func TestLogSizes(t *testing.T) {
	c, _, put := lodging(t)
	put("LOG/app/0.log", 100)
	measured(t, c)
	var got []string
	c.LogSizes(func(pod runtime.PodRef, container string, bytes int64) {
		got = append(got, fmt.Sprintf("%s %s %v", pod, container, bytes >= 100<<10))
	})
	if len(got) != 1 || got[0] != "ns/web(uid-web) app true" {
		t.Error(got)
	}
}

func TestAFileOfSeveralNamesCountsOnce(t *testing.T) {
	c, _, put := lodging(t)
	put("VOL~empty-dir/scratch/one", 500)
	file := filepath.Join(c.cfg.RootDir, "pods/uid-web/volumes/kubernetes.io~empty-dir/scratch/one")
	if err := errors.Join(os.Link(file, file+"-too"), os.Symlink("/", file+"-link")); err != nil {
		t.Fatal(err)
	}
	near(t, "scratch", measured(t, c).VolumeStats[0].UsedBytes, 500)
}

func TestCase_c183_hosts_file_and_last_words_count(t *testing.T) {
	c, _, put := lodging(t)
	put("POD/etc-hosts", 20<<10)
	put("POD/containers/app/0badcafe", 30<<10)
	near(t, "all", measured(t, c).EphemeralStorage.UsedBytes, (20+30+1)<<10)
}

func TestRunForgetsPodsThatAreNoMore(t *testing.T) {
	c, p, put := lodging(t)
	put("VOL~empty-dir/scratch/one", 1)
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		c.cfg.Pods = func() []*v1.Pod {
			if gone.Load() {
				return nil
			}
			return []*v1.Pod{p}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Second)
		if _, ok := c.room(p.UID); !ok {
			t.Error("it was not measured")
		}
		gone.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, ok := c.room(p.UID); ok {
			t.Error("it is still known")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestANewPodIsMeasuredWithinTenSecondsAndTheOthersEachMinute(t *testing.T) {
	c, p, put := lodging(t)
	put("VOL~empty-dir/scratch/one", 100)
	synctest.Test(t, func(t *testing.T) {
		other := p.DeepCopy()
		other.UID = "other"
		var came atomic.Bool
		c.cfg.Pods = func() []*v1.Pod {
			if came.Load() {
				return []*v1.Pod{other, p}
			}
			return []*v1.Pod{other}
		}
		at := func(uid types.UID) time.Time {
			synctest.Wait()
			r, _ := c.room(uid)
			return r.at
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Second)
		first := at("other")
		came.Store(true)
		time.Sleep(15 * time.Second)
		if at(p.UID).IsZero() || !at("other").Equal(first) {
			t.Error("after 16 s:", at(p.UID), at("other"), first)
		}
		time.Sleep(time.Minute)
		if !at("other").After(first) {
			t.Error("after 76 s the first one is as it was")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestTheHostsFilesAreReadWhole(t *testing.T) {
	small := make([]byte, 16)
	for _, name := range []string{"/proc/cpuinfo", "/proc/self/mountinfo", "/proc/sys/kernel/ostype", "/dev/null"} {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		buf, n, err := readHost(name, small)
		if err != nil || name != "/proc/cpuinfo" && string(buf[:n]) != string(want) || n < len(want)/2 {
			t.Errorf("%s: %d of %d bytes, %v", name, n, len(want), err)
		}
		small = buf
	}
	if _, _, err := readHost("/no/such", small); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// ids are those of containers that run.
func ids(pod *v1.Pod) (out []string) {
	for _, s := range containers(&pod.Status) {
		if _, id, _ := strings.Cut(s.ContainerID, "://"); s.State.Running != nil {
			out = append(out, id)
		}
	}
	return out
}

func TestCgroupsOfPods(t *testing.T) {
	for version, files := range map[string]map[string]string{
		"v1": {
			"memory/kubepods/memory.stat": "total_inactive_file 30\ntotal_rss 40\n", "memory/kubepods/memory.usage_in_bytes": "100\n",
			"memory/kubepods/memory.limit_in_bytes": "1000\n",
			"memory/kubepods/podu/memory.stat":      "total_inactive_file 5\n", "memory/kubepods/podu/memory.usage_in_bytes": "150\n",
			"memory/kubepods/podu/memory.limit_in_bytes": "9223372036854771712\n", "pids/kubepods/podu/pids.current": "17\n",
		},
		"v2": {
			"kubepods/memory.stat": "inactive_file 30\nanon 40\n", "kubepods/memory.current": "100\n", "kubepods/memory.max": "1000\n",
			"kubepods/podu/memory.stat": "inactive_file 5\n", "kubepods/podu/memory.current": "150\n", "kubepods/podu/memory.max": "max\n",
			"kubepods/podu/pids.current": "17\n",
		},
	} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS("testdata/"+version)); err != nil {
				t.Fatal(err)
			}
			for name, text := range files {
				name = filepath.Join(dir, "sys/fs/cgroup", name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			c := collector(t, version, &engine{usage: usage(time.Now())})
			c.cfg.Root, c.cfg.PodsCgroup = os.DirFS(dir), "/kubepods"
			c.cfg.Cgroup = func(*v1.Pod) string { return "/kubepods/podu/" }
			s, err := c.Summary(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			pods := s.Node.SystemContainers[0]
			if pods.Name != "pods" || *pods.Memory.AvailableBytes != 930 || *pods.Memory.WorkingSetBytes != 70 || *pods.Memory.RSSBytes != 40 {
				t.Errorf("all pods: %+v", pods.Memory)
			}
			p := s.Pods[0]
			if *p.Memory.WorkingSetBytes != 145 || p.Memory.AvailableBytes != nil || *p.ProcessStats.ProcessCount != 17 {
				t.Errorf("a pod: %+v, %+v", p.Memory, p.ProcessStats)
			}
			for _, name := range []string{"memory/kubepods/podu/memory.usage_in_bytes", "kubepods/podu/memory.current"} {
				if _, ok := files[name]; ok {
					if err := os.WriteFile(filepath.Join(dir, "sys/fs/cgroup", name), []byte("50\n"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			s, err = c.Summary(t.Context(), true)
			if err != nil {
				t.Fatal(err)
			}
			if p := s.Pods[0]; *p.Memory.WorkingSetBytes != 120 || p.ProcessStats != nil {
				t.Errorf("a pod whose containers lie elsewhere: %+v, %+v", p.Memory, p.ProcessStats)
			}
			for _, id := range ids(c.cfg.Pods()[0]) {
				name := filepath.Join(dir, "sys/fs/cgroup", map[string]string{"v1": "memory", "v2": ""}[version], "kubepods/podu", id, "cgroup.procs")
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			s, err = c.Summary(t.Context(), true)
			if err != nil {
				t.Fatal(err)
			}
			if p := s.Pods[0]; *p.Memory.WorkingSetBytes != 45 || p.ProcessStats == nil {
				t.Errorf("a pod that has given memory back since its containers were looked at: %+v, %+v", p.Memory, p.ProcessStats)
			}
		})
	}
}

func TestCase_c054_WhatLiesApartIsToldByDevice(t *testing.T) {
	dir := t.TempDir()
	beside, apart := filepath.Dir(dir), "/proc"
	for name, c := range map[string]struct {
		images, containers string // empty: the engine does not say
		want               string
	}{
		"one disk":                        {beside, "", "false false"},
		"images apart":                    {apart, "", "true true"},
		"both, at two places of one disk": {beside, dir, "false false"},
		"both apart":                      {apart, "/proc/sys", "true true"},
		"images alone apart":              {apart, beside, "true false"}, // kubernetes/enhancements#4191
		"containers alone apart":          {beside, apart, "false true"},
		"containers nobody knows where":   {apart, "/no/such", "true true"},
		"images nobody knows where":       {"/no/such", "", "an error"},
		"an engine that says nothing":     {"", "", "an error"},
		"only where containers write":     {"", beside, "an error"},
	} {
		var fs []runtime.FSUsage
		if c.containers != "" {
			fs = append(fs, runtime.FSUsage{Mountpoint: c.containers, Written: true})
		}
		if c.images != "" {
			fs = append(fs, runtime.FSUsage{Mountpoint: c.images})
		}
		collector, err := New(Config{RootDir: dir, Engine: &engine{fs: fs}})
		if err != nil {
			t.Fatal(err)
		}
		images, written, err := collector.Apart(t.Context())
		got := fmt.Sprint(images, written)
		if err != nil {
			got = "an error"
		}
		if got != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
}

func TestResourceMetrics(t *testing.T) {
	e := &engine{usage: usage(time.UnixMilli(5000))}
	c := collector(t, "v2", e)
	get := func() string {
		w := httptest.NewRecorder()
		c.ResourceMetrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/resource", nil))
		b, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	text := get()
	for _, want := range []string{
		"# TYPE container_cpu_usage_seconds_total counter\n",
		`container_cpu_usage_seconds_total{container="app",namespace="ns",pod="web"} 5 5000` + "\n",
		`container_memory_working_set_bytes{container="proxy",namespace="ns",pod="web"} 20 5000` + "\n",
		`pod_cpu_usage_seconds_total{namespace="ns",pod="web"} 6 `,
		"\nnode_memory_working_set_bytes ", "\nresource_scrape_error 0\n",
		`container_start_time_seconds{container="app",namespace="ns",pod="web"} `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	e.err = errors.New("away")
	if got := get(); !strings.HasSuffix(got, "\nresource_scrape_error 1\n") || strings.Contains(got, "node_") {
		t.Error(got)
	}
}

func TestContainerMetrics(t *testing.T) {
	e := &engine{usage: usage(time.UnixMilli(5000))}
	c := collector(t, "v2", e)
	get := func() string {
		w := httptest.NewRecorder()
		c.ContainerMetrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
		return w.Body.String()
	}
	text := get()
	const app = `container="app",id="/kubepods/podu/c1",image="registry/app:1",name="c1",namespace="ns",pod="web"`
	const web = `container="",id="/kubepods/podu",image="",name="",namespace="ns",pod="web"`
	const node = `container="",id="/",image="",name="",namespace="",pod=""`
	for _, want := range []string{
		"# TYPE container_cpu_usage_seconds_total counter\n", "# TYPE container_memory_working_set_bytes gauge\n",
		"container_cpu_usage_seconds_total{" + app + `,cpu="total"} 5 5000` + "\n",
		"container_memory_working_set_bytes{" + app + "} 100 5000\n",
		"container_fs_usage_bytes{" + app + `,device=""} 10 5000` + "\n",
		"container_memory_swap{" + app + "} 3 ", "container_start_time_seconds{" + app + "} ", "container_last_seen{" + app + "} ",
		"container_memory_working_set_bytes{" + web + "} 150 ", "container_threads{" + web + "} 17\n",
		"container_cpu_usage_seconds_total{" + node + `,cpu="total"} 123.456789 `,
		"container_memory_rss{" + node + "} 1e+09 ", "container_memory_failures_total{" + node + `,failure_type="pgmajfault",scope="hierarchy"} 12 `,
		"container_network_receive_bytes_total{" + node + `,interface="enp3s0"} 8.99658094e+08 `,
		"container_pressure_cpu_waiting_seconds_total{" + node + "} 58.761459 ",
		"\nmachine_cpu_cores 7\n", "\nmachine_memory_bytes 1.6384e+10\n", "\ncontainer_scrape_error 0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "} ")
		if !strings.HasPrefix(line, "#") && strings.Contains(line, "{") && seen[name] {
			t.Errorf("twice: %s", line)
		}
		seen[name] = true
	}
	e.err = errors.New("away")
	if got := get(); !strings.Contains(got, "\ncontainer_scrape_error 1\n") || strings.Contains(got, "container_cpu") {
		t.Error(got)
	}
}

// The alert CPUThrottlingHigh and dashboards look for these.
func TestContainerMetricsTellOfThrottling(t *testing.T) {
	limited, free := running("limited", "c1", time.Now()), running("free", "c2", time.Now())
	p := pod("web", v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{limited, free}})
	p.Spec.Containers = []v1.Container{
		{Name: "limited", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}, {Name: "free"},
	}
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for version, root := range map[string]fstest.MapFS{
		"v2": {
			"sys/fs/cgroup/cgroup.controllers":                                 file("cpu memory"),
			"sys/fs/cgroup/kubepods/podu/cri-containerd-c1.scope/cgroup.procs": file("1\n"),
			"sys/fs/cgroup/kubepods/podu/cri-containerd-c1.scope/cpu.stat":     file("usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 2500000\n"),
			"sys/fs/cgroup/kubepods/podu/cri-containerd-c2.scope/cgroup.procs": file("2\n"),
			"sys/fs/cgroup/kubepods/podu/cri-containerd-c2.scope/cpu.stat":     file("nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"),
		},
		"v1": {
			"sys/fs/cgroup/memory/kubepods/podu/c1/cgroup.procs":  file("1\n"),
			"sys/fs/cgroup/cpu,cpuacct/kubepods/podu/c1/cpu.stat": file("nr_periods 7\nnr_throttled 3\nthrottled_time 2500000000\n"),
		},
	} {
		root["proc/meminfo"] = file("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
		e := &engine{usage: []runtime.Usage{{Container: "c1", At: time.Now()}, {Container: "c2", At: time.Now()}}}
		c, err := New(Config{Root: root, Disk: disk, Engine: e, Pods: func() []*v1.Pod { return []*v1.Pod{p} }, Cgroup: func(*v1.Pod) string { return "/kubepods/podu" }})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		c.ContainerMetrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
		const row = `{container="limited",id="/kubepods/podu/c1",image="registry/limited:1",name="c1",namespace="ns",pod="web"}`
		for name, want := range map[string]string{"periods_total": "7", "throttled_periods_total": "3", "throttled_seconds_total": "2.5"} {
			if !strings.Contains(w.Body.String(), "\ncontainer_cpu_cfs_"+name+row+" "+want+"\n") {
				t.Errorf("%s: %s is missing in\n%s", version, name, w.Body)
			}
		}
		if n := strings.Count(w.Body.String(), "\ncontainer_cpu_cfs_"); n != 3 {
			t.Errorf("%s: %d figures, of a container without a limit too", version, n)
		}
	}
}

// A pod names its interfaces as it likes, and one that a scraper cannot read would hide all figures of its node.
func TestLabelsAreReadByScrapersWhateverAPodCallsItsInterfaces(t *testing.T) {
	for name, want := range map[string]string{
		"eth0": "eth0", `a"b\c`: `a\"b\\c`, "\x01\u200b": "\x01\u200b", "caf\xe9": "caf\uFFFD", "two\nlines": `two\nlines`, "päd": "päd",
	} {
		var f families
		n := uint64(7)
		f.network(row{pod: "p"}, &stats.NetworkStats{Interfaces: []stats.InterfaceStats{{Name: name, RxBytes: &n}}})
		if text := f.String(); !strings.Contains(text, `,interface="`+want+`"} 7`+"\n") {
			t.Errorf("%q: %s", name, text)
		}
	}
}

// A pod was deleted at once and still ends, and its successor of the same name runs already.
func TestResourceMetricsNameEachPodOnce(t *testing.T) {
	e := &engine{}
	var pods []*v1.Pod
	for i, uid := range []string{"old", "new", "older"} {
		began := metav1.NewTime(time.Unix([]int64{100, 200, 50}[i], 0))
		p := pod("web-0", v1.PodStatus{StartTime: &began, ContainerStatuses: []v1.ContainerStatus{running("app", uid, began.Time)}})
		p.UID = types.UID(uid)
		pods = append(pods, p)
		e.usage = append(e.usage, runtime.Usage{Container: uid, At: time.Now(), CPUNanos: began.UnixNano()})
	}
	c, err := New(Config{Root: os.DirFS("testdata/v2"), Disk: disk, Engine: e, Pods: func() []*v1.Pod { return pods }})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	c.ResourceMetrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/resource", nil))
	for _, name := range []string{`container_cpu_usage_seconds_total{container="app",namespace="ns",pod="web-0"} `, `pod_cpu_usage_seconds_total{namespace="ns",pod="web-0"} `} {
		if n := strings.Count(w.Body.String(), name); n != 1 || !strings.Contains(w.Body.String(), name+"200 ") {
			t.Errorf("%d times %s in\n%s", n, name, w.Body)
		}
	}
}

func BenchmarkSummaryOf500Pods(b *testing.B) {
	summaries(b, crowd(b, 500, nil))
}

// BenchmarkSummaryOf500PodsInCgroups reads the files of as many cgroups, too.
func BenchmarkSummaryOf500PodsInCgroups(b *testing.B) {
	top := manyCgroups(b, 500)
	summaries(b, crowd(b, 500, func(p *v1.Pod) string { return top + "/" + p.Name }))
}

// crowd is a collector for many pods.
func crowd(b *testing.B, n int, cgroup func(*v1.Pod) string) *Collector {
	b.Helper()
	e := &engine{}
	var pods []*v1.Pod
	for i := range n {
		id := fmt.Sprint(i)
		e.usage = append(e.usage, runtime.Usage{Container: id, At: time.Now(), CPUNanos: 1, WorkingSet: 0})
		pods = append(pods, pod(id, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{running("app", id, time.Now())}}))
	}
	c, err := New(Config{Engine: e, RootDir: b.TempDir(), LogRoot: b.TempDir(), Pods: func() []*v1.Pod { return pods }, Cgroup: cgroup})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// summaries asks as those who guard the node do, and as people do.
func summaries(b *testing.B, c *Collector) {
	b.Helper()
	for name, look := range map[string]func(context.Context, bool) (*stats.Summary, error){"glance": c.Glance, "summary": c.Summary} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := look(b.Context(), false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// manyCgroups makes cgroups named 0, 1, ... below one that is this test's own.
func manyCgroups(b *testing.B, n int) (top string) {
	b.Helper()
	top = fmt.Sprintf("/kubeletkit-stats-%d", os.Getpid())
	roots := []string{"/sys/fs/cgroup"}
	if !newGroups(os.DirFS("/"), true).v2 {
		roots = []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpuacct"}
	}
	for _, root := range roots {
		own := root + top
		if err := os.Mkdir(own, 0o755); err != nil {
			b.Skipf("no cgroups can be made here: %v", err)
		}
		b.Cleanup(func() { _ = os.Remove(own) })                                              // a cgroup is removed by its directory
		_ = os.WriteFile(root+"/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0o600) // version 2
		_ = os.WriteFile(own+"/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0o600)  // version 2
		for i := range n {
			dir := fmt.Sprintf("%s/%d", own, i)
			if err := os.Mkdir(dir, 0o755); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = os.Remove(dir) })
		}
	}
	return top
}
