package cgroup

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
)

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

// A pod's cgroup is made once, and looked at no more when it is to be as it was made.
func TestWhatIsJustRightIsNotTouched(t *testing.T) {
	for _, version := range []int{1, 2} {
		f := newFixture(t, version, Config{})
		made, gone := 0, 0
		mkdir, rmdir := f.files.mkdir, f.files.rmdir
		f.files.mkdir = func(dir string) error { made++; return mkdir(dir) }
		f.files.rmdir = func(dir string) error { gone++; return rmdir(dir) }
		pod := podOf("u-1", "cpu=50m memory<2Mi")
		if err := f.Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		made = 0
		if err := f.Shrink(t.Context(), pod); err != nil || made > 0 {
			t.Errorf("version %d: %d folders made to take nothing away, %v", version, made, err)
		}
		if err := f.Shrink(t.Context(), podOf("u-1", "cpu=40m memory<2Mi")); err != nil || made == 0 {
			t.Errorf("version %d: nothing was taken away, %v", version, err)
		}
		trees := len(f.files.dirs(""))
		if err := f.Remove(t.Context(), "u-1"); err != nil || gone > 2*trees { // guaranteed, burstable; not best effort
			t.Errorf("version %d: %d folders of %d trees were to be removed, %v", version, gone, trees, err)
		}
		if err := f.Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if made = 0; f.Shrink(t.Context(), podOf("u-1", "cpu=40m memory<2Mi")) != nil || made == 0 {
			t.Errorf("version %d: a cgroup made anew is taken for the old one", version)
		}
	}
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

// What a pod is to keep is taken from it as long as the cgroups above it are given nothing.
func TestMemoryIsKeptForPodsAndAllAboveThem(t *testing.T) {
	sure, soft := podOf("g-1", guaranteed), podOf("b-1", "memory=3Mi memory<4Mi")
	pods := []*v1.Pod{sure, soft, podOf("e-1")}
	f := newFixture(t, 2, Config{Reserve: true, Pods: func() []*v1.Pod { return pods }})
	for _, p := range pods {
		if err := f.Ensure(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	round := func(all bool, want map[string]string) {
		t.Helper()
		if err := f.round(all); err != nil {
			t.Error(err)
		}
		f.holds(want)
	}
	all, tier, best := "kubepods/memory.", "kubepods/burstable/memory.", "kubepods/besteffort/memory."
	kept := map[string]string{
		all + "min": "4194304", all + "low": "3145728", tier + "min": "0", tier + "low": "3145728", best + "min": "0", best + "low": "0",
		"kubepods/podg-1/memory.min": "1048576", "kubepods/podg-1/memory.low": "0",
		"kubepods/burstable/podb-1/memory.min": "0", "kubepods/burstable/podb-1/memory.low": "3145728", "kubepods/besteffort/pode-1/memory.low": "0",
	}
	round(true, kept)
	pods = nil
	round(true, kept) // not known
	pods = []*v1.Pod{sure}
	round(false, map[string]string{all + "min": "1048576", all + "low": "0", tier + "low": "0"})
	f.cfg.Reserve = false // an agent that was told otherwise
	round(true, map[string]string{all + "min": "0", "kubepods/podg-1/memory.min": "0"})
}

// Containers without a limit of their own are slowed down by their pod.
func TestPodsAreSlowedDown(t *testing.T) {
	f := newFixture(t, 2, Config{Throttle: 0.5})
	const at = "kubepods/burstable/podu-1/"
	for _, step := range []struct {
		rule      string
		do        func(context.Context, *v1.Pod) error
		pod, high string
	}{
		{"a new one", f.Ensure, "memory=2Mi memory<4Mi", "3145728"},
		{"nothing becomes less", f.Ensure, "memory=1Mi memory<3Mi", "3145728"},
		{"until it has grown less", f.Shrink, "memory=1Mi memory<3Mi", "2097152"},
		{"one that asks for its limit", f.Ensure, "memory=4Mi memory<4Mi", "max"},
	} {
		pod := podOf("u-1", "memory=1Mi")
		pod.Spec.Resources = new(sizes(step.pod))
		pod.Status.QOSClass = v1.PodQOSBurstable
		if err := step.do(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if got := f.file(at + "memory.high"); got != step.high {
			t.Errorf("%s: %s, want %s", step.rule, got, step.high)
		}
	}
	if err := f.Ensure(t.Context(), podOf("plain", "memory=1Mi memory<2Mi")); err != nil {
		t.Fatal(err)
	}
	f.holds(map[string]string{"kubepods/burstable/podplain/memory.high": "max"})
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

func TestTreesThatMakeNoSenseAreRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"a negative interval":        {Interval: -1},
		"a period beyond a second":   {Period: time.Minute},
		"a name systemd cannot have": {Systemd: true, Root: "/a_b"},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// operations are what was measured, by kind.
type operations map[string]int

func (o operations) Histogram(string, string, []float64, ...string) (observe.Metric, error) {
	return o, nil
}
func (o operations) Counter(string, string, ...string) (observe.Metric, error) { return o, nil }
func (o operations) Gauge(string, string, ...string) (observe.Metric, error)   { return o, nil }

func (o operations) Record(_ float64, labels ...string) { o[labels[0]]++ }
func (o operations) Forget(...string)                   {}

func TestChangesOfPodsAreMeasured(t *testing.T) {
	o := operations{}
	f := newFixture(t, 2, Config{Observe: observe.To{Metrics: o}})
	pod := podOf("u1", "cpu=1")
	for _, c := range []struct {
		what string
		do   func() error
		want operations
	}{
		{"made", func() error { return f.Ensure(t.Context(), pod) }, operations{"create": 1}},
		{"changed", func() error { return f.Ensure(t.Context(), podOf("u1", "cpu=2")) }, operations{"create": 1, "update": 1}},
		{"taken from", func() error { return f.Shrink(t.Context(), pod) }, operations{"create": 1, "update": 2}},
		{"nothing to take", func() error { return f.Shrink(t.Context(), pod) }, operations{"create": 1, "update": 2}},
		{"removed", func() error { return f.Remove(t.Context(), "u1") }, operations{"create": 1, "update": 2, "destroy": 1}},
		{"there is none", func() error { return f.Remove(t.Context(), "u1") }, operations{"create": 1, "update": 2, "destroy": 1}},
	} {
		if err := c.do(); err != nil || !maps.Equal(o, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.what, err, o, c.want)
		}
	}
}
