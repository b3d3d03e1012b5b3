package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sizes are such as "cpu=1 memory<1Mi": requests and limits.
func sizes(words string) v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for w := range strings.FieldsSeq(words) {
		list, at := r.Requests, strings.IndexAny(w, "=<")
		if w[at] == '<' {
			list = r.Limits
		}
		list[v1.ResourceName(w[:at])] = resource.MustParse(w[at+1:])
	}
	return r
}

func podOf(uid string, containers ...string) *v1.Pod {
	p := &v1.Pod{}
	p.UID = types.UID(uid)
	for i, words := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: sizes(words)})
	}
	return p
}

const guaranteed = "cpu=1 cpu<1 memory=1Mi memory<1Mi"

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

func TestPodValues(t *testing.T) {
	none := map[string]int64{}
	for _, tt := range []struct {
		rule string
		pod  *v1.Pod
		cfg  Config
		want values
	}{
		{"guaranteed", podOf("u", guaranteed, guaranteed), Config{}, values{2048, 200_000, 100_000, 2 << 20, unlimited, none}},
		{"burstable with all limits", podOf("u", "cpu=100m cpu<200m memory<1Mi", "cpu=100m cpu<200m memory<2Mi"), Config{}, values{204, 40_000, 100_000, 3 << 20, unlimited, none}},
		{"one container without a CPU limit", podOf("u", "cpu=100m cpu<200m memory<1Mi", "cpu=100m memory<2Mi"), Config{}, values{204, unlimited, 100_000, 3 << 20, unlimited, none}},
		{"one container without a memory limit", podOf("u", "cpu=100m cpu<200m memory<1Mi", "cpu<100m"), Config{}, values{102, 30_000, 100_000, unlimited, unlimited, none}},
		{"limits of the pod as a whole", func() *v1.Pod {
			p := podOf("u", "cpu=1")
			p.Spec.Resources = new(sizes("cpu=2 cpu<3 memory<1Mi"))
			return p
		}(), Config{}, values{2048, 300_000, 100_000, 1 << 20, unlimited, none}},
		{"best effort", podOf("u", ""), Config{}, values{2, unlimited, 100_000, unlimited, unlimited, none}},
		{"the class that was told counts", func() *v1.Pod {
			p := podOf("u", guaranteed)
			p.Status.QOSClass = v1.PodQOSBestEffort
			return p
		}(), Config{}, values{2, unlimited, 100_000, unlimited, unlimited, none}},
		{"processes", podOf("u", ""), Config{PodPids: 100}, values{2, unlimited, 100_000, unlimited, 100, none}},
		{"no quota", podOf("u", guaranteed), Config{NoQuota: true}, values{1024, unlimited, 100_000, 1 << 20, unlimited, none}},
		{"another period", podOf("u", guaranteed), Config{Period: 10 * time.Millisecond}, values{1024, 10_000, 10_000, 1 << 20, unlimited, none}},
		{"the least there is", podOf("u", "cpu=1m cpu<1m memory<1Mi"), Config{}, values{2, 1000, 100_000, 1 << 20, unlimited, none}},
		{"huge pages", podOf("u", "hugepages-2Mi=4Mi hugepages-1Gi=1Gi hugepages-64Ki=64Ki"), Config{}, values{2, unlimited, 100_000, unlimited, unlimited, map[string]int64{"2MB": 4 << 20, "1GB": 1 << 30, "64KB": 64 << 10}}},
	} {
		tree, err := New(tt.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, tree.cfg.podValues(tt.pod), cmp.AllowUnexported(values{})); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.rule, diff)
		}
	}
}

func TestWeightsFollowShares(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 1024: 39, maxShares: 10_000} {
		if got := weight(shares); got != want {
			t.Errorf("%d shares: %d, want %d", shares, got, want)
		}
	}
	for w := int64(1); w <= 10_000; w++ {
		if got := weight(unweight(w)); got != w {
			t.Fatalf("weight %d comes back as %d", w, got)
		}
	}
}

func TestRaised(t *testing.T) {
	has := values{shares: 10, quota: 20, period: 100, memory: 30, pids: unlimited}
	wants := values{shares: 5, quota: 40, period: 100, memory: unlimited, pids: 7}
	if diff := cmp.Diff(values{shares: 10, quota: 40, period: 100, memory: unlimited, pids: unlimited}, raised(has, wants), cmp.AllowUnexported(values{})); diff != "" {
		t.Error(diff)
	}
}

func TestTiersAndRoot(t *testing.T) {
	pods := []*v1.Pod{podOf("a", "cpu=1"), podOf("b", "cpu=500m"), podOf("c", guaranteed), podOf("d", "")}
	if got := tierValues(burstable, pods).shares; got != 1536 {
		t.Errorf("burstable %d", got)
	}
	if got := tierValues(bestEffort, pods).shares; got != 2 {
		t.Errorf("best effort %d", got)
	}
	got := rootValues(sizes("cpu=2 memory=1Gi pid=500 hugepages-2Mi=4Mi").Requests)
	want := values{shares: 2048, memory: 1 << 30, pids: 500, hugepages: map[string]int64{"2MB": 4 << 20}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(values{})); diff != "" {
		t.Error(diff)
	}
}

// fixture is a file system of cgroups without a kernel behind it.
type fixture struct {
	*Tree
	t      *testing.T
	mu     sync.Mutex // guards killed
	killed []int
}

func newFixture(t *testing.T, version int, cfg Config) *fixture {
	t.Helper()
	cfg.Mount = t.TempDir()
	f := &fixture{t: t}
	fill := func(dir string, v2 bool) {
		files := map[string]string{"cgroup.procs": "", "cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "memory.limit_in_bytes": "9223372036854771712", "pids.max": "max", "cpuset.cpus": "", "cpuset.mems": ""}
		if v2 {
			files = map[string]string{"cgroup.procs": "", "cgroup.controllers": "cpuset cpu io memory pids", "cgroup.subtree_control": "", "cpu.weight": "100", "cpu.max": "max 100000", "memory.max": "max", "pids.max": "max"}
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if version == 2 {
		fill(cfg.Mount, true)
	} else {
		for _, c := range []string{"cpu", "cpuset", "memory", "pids", "systemd", "files"} {
			dir := filepath.Join(cfg.Mount, c)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			fill(dir, false)
		}
		for name, text := range map[string]string{"cpuset.cpus": "0-1", "cpuset.mems": "0"} {
			if err := os.WriteFile(filepath.Join(cfg.Mount, "cpuset", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var err error
	if f.Tree, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	f.files.mkdir = func(dir string) error {
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			fill(dir, version == 2)
		}
		return err
	}
	f.files.rmdir = func(dir string) error {
		if b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")); len(b) > 0 {
			return errors.New("device or resource busy")
		}
		return os.RemoveAll(dir)
	}
	f.files.kill = func(pid int) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.killed = append(f.killed, pid)
		return nil
	}
	return f
}

func (f *fixture) file(path string) string {
	b, err := os.ReadFile(filepath.Join(f.cfg.Mount, path))
	if err != nil {
		return "none"
	}
	return string(b)
}

func (f *fixture) holds(want map[string]string) {
	f.t.Helper()
	for path, text := range want {
		if got := f.file(path); got != text {
			f.t.Errorf("%s is %q, want %q", path, got, text)
		}
	}
}

func TestVersion2(t *testing.T) {
	for _, systemd := range []bool{false, true} {
		burst := podOf("b-1", "cpu=100m cpu<200m memory<1Mi")
		f := newFixture(t, 2, Config{Systemd: systemd, PodPids: 64, Pods: func() []*v1.Pod { return []*v1.Pod{burst} }, Allocatable: func() v1.ResourceList { return sizes("cpu=2 memory=1Gi").Requests }})
		all, class, pod := "kubepods/", "kubepods/burstable/", "kubepods/burstable/podb-1/"
		if systemd {
			all, class, pod = "kubepods.slice/", "kubepods.slice/kubepods-burstable.slice/", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb_1.slice/"
		}
		ctx := t.Context()
		if err := f.Ensure(ctx, burst); err != nil {
			t.Fatal(err)
		}
		f.holds(map[string]string{
			"cgroup.subtree_control": "+cpu +cpuset +memory +pids", class + "cgroup.subtree_control": "+cpu +cpuset +memory +pids",
			all + "cpu.weight": "79", all + "memory.max": "1073741824", class + "cpu.weight": "4", class + "memory.max": "max",
			pod + "cpu.weight": "4", pod + "cpu.max": "20000 100000", pod + "memory.max": "1048576", pod + "pids.max": "64",
		})
		other := podOf("b-1", "cpu=50m cpu<300m memory<3Mi")
		if err := f.Ensure(ctx, other); err != nil {
			t.Fatal(err)
		}
		f.holds(map[string]string{pod + "cpu.weight": "4", pod + "cpu.max": "30000 100000", pod + "memory.max": "3145728"})
		if err := f.Shrink(ctx, podOf("b-1", "cpu=50m memory<2Mi")); err != nil {
			t.Fatal(err)
		}
		f.holds(map[string]string{pod + "cpu.weight": "2", pod + "cpu.max": "max 100000", pod + "memory.max": "2097152"})
		if err := f.Remove(ctx, "b-1"); err != nil {
			t.Fatal(err)
		}
		f.holds(map[string]string{pod + "cpu.weight": "none", class + "cpu.weight": "4"})
		if err := f.Remove(ctx, "b-1"); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}

func TestVersion1(t *testing.T) {
	f := newFixture(t, 1, Config{})
	pod := podOf("g-1", guaranteed)
	if err := f.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.holds(map[string]string{
		"cpu/kubepods/podg-1/cpu.shares": "1024", "cpu/kubepods/podg-1/cpu.cfs_quota_us": "100000", "memory/kubepods/podg-1/memory.limit_in_bytes": "1048576",
		"pids/kubepods/podg-1/pids.max": "max", "cpuset/kubepods/podg-1/cpuset.cpus": "0-1", "cpuset/kubepods/podg-1/cpuset.mems": "0",
		"systemd/kubepods/podg-1/cgroup.procs": "", "cpu/kubepods/besteffort/cpu.shares": "2", "files/kubepods/podg-1/cgroup.procs": "none",
	})
	tree, err := New(Config{Mount: f.cfg.Mount, Period: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f.cfg.Period = tree.cfg.Period
	if err := f.Shrink(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.holds(map[string]string{"cpu/kubepods/podg-1/cpu.cfs_quota_us": "10000", "cpu/kubepods/podg-1/cpu.cfs_period_us": "10000"})
}

func TestCase_c164_leftovers_in_a_hierarchy_nobody_knows_are_not_found(t *testing.T) {
	f := newFixture(t, 1, Config{})
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(f.cfg.Mount, "unified"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.cfg.Mount, "unified", "cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"files", "memory", "unified"} { // of files nobody knows what it is; memory alone was left over
		if err := os.MkdirAll(filepath.Join(f.cfg.Mount, c, "kubepods/burstable/podold-1/child"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var asked []types.UID
	sweep := func() {
		t.Helper()
		asked = nil
		if err := f.Sweep(t.Context(), func(uid types.UID) bool { asked = append(asked, uid); return false }); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if f.file("unified/kubepods/burstable/podold-1/cgroup.procs") != "none" {
			t.Error("what engines put into version 2 beside version 1 is left")
		}
	}()
	if sweep(); !slices.Equal(asked, []types.UID{"old-1"}) || f.files.exists("kubepods/burstable/podold-1") {
		t.Errorf("asked for %v", asked)
	}
	if sweep(); len(asked) > 0 {
		t.Errorf("asked again for %v", asked)
	}
}

func TestWhatOthersRunIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, Config{Ours: func(uid types.UID) bool { return uid == "ours" }})
		procs := func(uid string) string { return "memory/kubepods/besteffort/pod" + uid + "/cgroup.procs" }
		for _, uid := range []string{"ours", "busy", "empty"} {
			if err := f.Ensure(t.Context(), podOf(uid)); err != nil {
				t.Fatal(err)
			}
			if uid == "empty" {
				continue
			}
			if err := os.WriteFile(filepath.Join(f.cfg.Mount, procs(uid)), []byte("12\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := f.Sweep(t.Context(), func(types.UID) bool { return false })
		if err == nil || !strings.Contains(err.Error(), "podours") || strings.Contains(err.Error(), "podbusy") || len(f.killed) != 5 {
			t.Errorf("%v, killed %v", err, f.killed)
		}
		f.holds(map[string]string{procs("busy"): "12\n", procs("empty"): "none"})
		if err := os.WriteFile(filepath.Join(f.cfg.Mount, procs("busy")), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = f.Sweep(t.Context(), func(types.UID) bool { return false }) // of ours it says the same again
		if len(f.strange) > 0 {
			t.Errorf("of what is gone this stays: %v", f.strange)
		}
	})
}

func TestWhatIsLeftIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 2, Config{})
		pod := podOf("u-1")
		if err := f.Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		procs := filepath.Join(f.cfg.Mount, "kubepods/besteffort/podu-1/cgroup.procs")
		if err := os.WriteFile(procs, []byte("12\n13\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.Remove(t.Context(), "u-1"); err == nil || !strings.Contains(err.Error(), "busy") || len(f.killed) != 10 {
			t.Errorf("%v, killed %v", err, f.killed)
		}
		if err := os.WriteFile(procs, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.Remove(t.Context(), "u-1"); err != nil {
			t.Error(err)
		}
	})
}

func TestRunKeepsValuesRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var pods []*v1.Pod
		f := newFixture(t, 2, Config{Pods: func() []*v1.Pod { mu.Lock(); defer mu.Unlock(); return pods }})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := f.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		f.holds(map[string]string{"kubepods/burstable/cpu.weight": "1"})
		pod := podOf("u-1", "cpu=1 cpu<2 memory=1Mi memory<2Mi")
		mu.Lock()
		pods = []*v1.Pod{pod}
		mu.Unlock()
		if err := f.Ensure(ctx, pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		f.holds(map[string]string{"kubepods/burstable/cpu.weight": "39"})
		if err := os.WriteFile(filepath.Join(f.cfg.Mount, "kubepods/burstable/podu-1/memory.max"), []byte("1000"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f.holds(map[string]string{"kubepods/burstable/podu-1/memory.max": "2097152"})
		cancel()
		wg.Wait()
	})
}

func TestWhatIsNotKnownStays(t *testing.T) {
	var pods []*v1.Pod
	f := newFixture(t, 1, Config{Pods: func() []*v1.Pod { return pods }})
	check := func(what, want string) {
		t.Helper()
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
		if got := f.file("cpu/kubepods/burstable/cpu.shares"); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("a new cgroup while pods are not known", "2")
	pods = []*v1.Pod{podOf("a", "cpu=1")}
	check("a pod", "1024")
	pods = nil
	check("another agent that knows none yet", "1024")
	pods = []*v1.Pod{}
	check("none", "2")
}

type events func(observe.Event)

func (f events) Event(e observe.Event) { f(e) }

func TestLimitsOfAllPodsAreToldOf(t *testing.T) {
	var told []string
	size := "memory=1Gi"
	f := newFixture(t, 2, Config{
		Node: "n1", Allocatable: func() v1.ResourceList { return sizes(size).Requests },
		Observe: observe.To{Events: events(func(e observe.Event) { told = append(told, e.About.Kind+" "+e.About.Name+" "+e.Reason) })},
	})
	round := func(what string, want ...string) {
		t.Helper()
		told = nil
		if err := f.round(true); err != nil {
			t.Error(err)
		}
		if !slices.Equal(told, want) {
			t.Errorf("%s: %v, want %v", what, told, want)
		}
	}
	round("the first time", "Node n1 NodeAllocatableEnforced")
	round("again")
	limit := filepath.Join(f.cfg.Mount, "kubepods/memory.max")
	if err := errors.Join(os.Remove(limit), os.Mkdir(limit, 0o700)); err != nil {
		t.Fatal(err)
	}
	round("it is refused", "Node n1 FailedNodeAllocatableEnforcement")
	round("it is refused again")
	if err := errors.Join(os.Remove(limit), os.WriteFile(limit, []byte("max"), 0o600)); err != nil {
		t.Fatal(err)
	}
	round("it is not refused any more", "Node n1 NodeAllocatableEnforced")
	f.holds(map[string]string{"kubepods/memory.max": "1073741824"})
	if err := f.Ensure(t.Context(), podOf("u")); err != nil {
		t.Error(err)
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

func TestNoCgroups(t *testing.T) {
	for what, cfg := range map[string]Config{
		"no cgroups are mounted": {Mount: t.TempDir()},
		"does not exist":         {Root: "/kubeletkit-none-such"},
	} {
		tree, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Check(); err == nil || !strings.Contains(err.Error(), what) && !strings.Contains(err.Error(), "no cgroups") {
			t.Errorf("%v, want %q", err, what)
		}
	}
	f := newFixture(t, 2, Config{})
	for _, uid := range []types.UID{"", "../x", "a/b"} {
		if f.Kill(uid) == nil || f.Remove(t.Context(), uid) == nil || f.Ensure(t.Context(), podOf(string(uid))) == nil {
			t.Errorf("uid %q is taken", uid)
		}
	}
}

// TestOnThisMachine makes cgroups for real. It needs the right to, and a machine with cgroup version 1 or 2.
func TestOnThisMachine(t *testing.T) {
	own := fmt.Sprintf("kubeletkit-test-%d", os.Getpid())
	f := openFiles("/sys/fs/cgroup", "/")
	if os.Geteuid() != 0 || f.usable() != nil {
		t.Skip("needs root and a cgroup file system")
	}
	if err := f.make(own); errors.Is(err, fs.ErrPermission) || err != nil && strings.Contains(err.Error(), "read-only") {
		t.Skip("the cgroup file system cannot be written:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.remove(context.Background(), own); err != nil {
			t.Error(err)
		}
	}()
	tree, err := New(Config{Root: own, PodPids: 50})
	if err != nil {
		t.Fatal(err)
	}
	pod := podOf("u-1", "cpu=100m cpu<200m memory=16Mi memory<32Mi")
	if err := tree.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	at := tree.at(tier(v1.PodQOSBurstable).pod("u-1"))
	check := func(p *v1.Pod) {
		t.Helper()
		has, err := tree.files.has(at)
		want := tree.cfg.podValues(p)
		want.hugepages = nil
		if err != nil || !cmp.Equal(want, has, cmp.AllowUnexported(values{})) {
			t.Errorf("%v\n%s", err, cmp.Diff(want, has, cmp.AllowUnexported(values{})))
		}
	}
	check(pod)
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range tree.files.dirs(at) {
		child := filepath.Join(dir, "container")
		if err := os.Mkdir(child, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := inherit(child); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(child, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := podOf("u-1", "cpu=300m cpu<400m memory=16Mi memory<16Mi")
	if err := tree.Ensure(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	check(podOf("u-1", "cpu=300m cpu<400m memory=16Mi memory<32Mi"))
	if err := tree.Shrink(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	check(other)
	if err := tree.Kill("u-1"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("what ran there has ended well")
	}
	cmd = exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range tree.files.dirs(at) {
		if err := os.WriteFile(filepath.Join(dir, "container", "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || tree.files.exists(at) {
		t.Errorf("what ran there: %v", err)
	}
}
