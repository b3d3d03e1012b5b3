package podruntime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// sized gives container number i of a pod sizes such as "cpu=1 memory=1Mi cpu<2": requests and limits.
func sized(p *v1.Pod, i int, words string) *v1.Pod {
	p = p.DeepCopy()
	r := &p.Spec.Containers[i].Resources
	*r = v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for w := range strings.FieldsSeq(words) {
		list, at := r.Requests, strings.IndexAny(w, "=<")
		if w[at] == '<' {
			list = r.Limits
		}
		list[v1.ResourceName(w[:at])] = resource.MustParse(w[at+1:])
	}
	return p
}

// updates is an engine that writes down updates.
type updates struct {
	*runtimetest.Engine
	got       []runtime.Resources
	sandboxes []string // what is told of them, and of their overhead
}

func (u *updates) UpdateSandbox(ctx context.Context, id string, r, overhead runtime.Resources) error {
	word := func(r runtime.Resources) string {
		return fmt.Sprintf("%d %d %dMi", r.CPUShares, r.CPUQuota, r.Memory>>20)
	}
	u.sandboxes = append(u.sandboxes, word(r)+" and "+word(overhead))
	return u.Engine.UpdateSandbox(ctx, id, r, overhead)
}

func (u *updates) UpdateContainer(ctx context.Context, id string, r runtime.Resources) error {
	u.got = append(u.got, runtime.Resources{CPUShares: r.CPUShares, CPUQuota: r.CPUQuota, Memory: r.Memory})
	return u.Engine.UpdateContainer(ctx, id, r)
}

func TestResizeChangesOneResourceAtATime(t *testing.T) {
	u := &updates{}
	n := newNode(t, func(c *Config) { u.Engine = c.Engine.(*runtimetest.Engine); c.Engine = u })
	p := sized(pod("sleep 9999"), 0, "cpu=100m memory=10Mi cpu<200m memory<20Mi")
	p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("120Mi")}
	first, _ := n.sync(p)
	p = sized(p, 0, "cpu=300m memory=10Mi cpu<400m memory<30Mi")
	if seen := n.look(p); !plan.Resizing(p, seen) {
		t.Error("no resize is seen")
	}
	seen, _ := n.sync(p)
	want := []runtime.Resources{{CPUShares: 102, CPUQuota: 20000, Memory: 30 << 20}, {CPUShares: 307, CPUQuota: 40000, Memory: 30 << 20}}
	if diff := cmp.Diff(want, u.got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if seen.Containers[0].ID != first.Containers[0].ID || plan.Resizing(p, seen) {
		t.Errorf("%+v", seen)
	}
	if diff := cmp.Diff([]string{"307 40000 30Mi and 256 25000 120Mi"}, u.sandboxes); diff != "" {
		t.Errorf("sandboxes: (-want +got)\n%s", diff)
	}
}

func TestAppliedSizesOutliveTheAgent(t *testing.T) {
	synctest.Test(t, appliedSizes)
}

func appliedSizes(t *testing.T) {
	t.Helper()
	n := newNode(t)
	p := sized(pod("sleep 9999", "sleep 9999"), 0, "cpu=100m")
	p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
	n.sync(p)
	another := func() {
		t.Helper()
		next, err := New(n.cfg)
		if err != nil {
			t.Fatal(err)
		}
		n.Runtime = next
	}
	another()
	if seen, _ := n.sync(p); len(seen.Containers) != 2 {
		t.Errorf("unchanged: %d instances", len(seen.Containers))
	}
	another()
	p = sized(sized(p, 0, "cpu=200m"), 1, "memory=1Mi memory<2Mi")
	if seen, _ := n.sync(p); len(seen.Containers) != 3 || seen.Newest("a").Resources.CPUShares != 204 || seen.Newest("b").Resources.Memory != 2<<20 {
		t.Errorf("resized while no agent was there: %+v", seen.Containers)
	}
	another()
	if seen, _ := n.sync(p); len(seen.Containers) != 3 || plan.Resizing(p, seen) {
		t.Errorf("it is done twice: %+v", seen.Containers)
	}
	if err := n.Stop(t.Context(), p, n.look(p), runtime.Termination{}); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(t.Context(), p.UID, runtime.Purge); err != nil {
		t.Fatal(err)
	}
	if n.look(p).Applied != nil {
		t.Error("it is remembered for ever")
	}
}

func TestResizeOfWhatAnEarlierAgentMade(t *testing.T) {
	n := newNode(t)
	p := sized(pod("sleep 9999"), 0, "cpu=100m")
	n.sync(p)
	n.cfg.Root = filepath.Join(n.root, "other") // nothing was noted there
	next, err := New(n.cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Runtime = next
	n.sync(p)
	if seen, _ := n.sync(sized(p, 0, "cpu=200m")); len(seen.Containers) != 1 || seen.Containers[0].Resources.CPUShares != 204 {
		t.Errorf("%+v", seen.Containers)
	}
}

func TestResizeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := sized(pod("sleep 9999", "exit 1"), 0, "cpu=100m")
		n.sync(p)
		n.engine.Inject("UpdateContainer", runtimetest.Fail(errors.New("boom")))
		before := len(n.look(p).Containers)
		p = sized(p, 0, "cpu=200m memory=1Mi memory<2Mi")
		result, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
		if err != nil || result.Resize == nil || result.RetryAt.IsZero() || !strings.Contains(result.Resize.Error(), "update memory of container a: ") {
			t.Errorf("%+v, %v", result, err)
		}
		time.Sleep(11 * time.Second)
		n.engine.Inject("UpdateContainer", runtimetest.Fail(errors.New("boom")))
		result, _ = n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
		if result.Resize == nil {
			t.Error("it is not tried again")
		}
		if result, _ = n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); result.Resize != nil || result.RetryAt.IsZero() {
			t.Errorf("tried again at once: %+v", result)
		}
		if after := len(n.look(p).Containers); after <= before {
			t.Error("another container does not start meanwhile")
		}
		n.engine.Inject("UpdateContainer", nil)
		p = sized(p, 0, "cpu=300m")
		if result, _ = n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); result.Resize != nil || plan.Resizing(p, n.look(p)) {
			t.Errorf("another wish waits: %+v", result)
		}
	})
}

// used says that all containers use so much memory.
type used struct {
	*runtimetest.Engine
	bytes int64
	err   error
}

func (u used) ContainerStats(ctx context.Context, f runtime.Filter) (out []runtime.Usage, err error) {
	list, err := u.ListContainers(ctx, f)
	for _, c := range list {
		out = append(out, runtime.Usage{Container: c.ID, WorkingSet: u.bytes})
	}
	return out, errors.Join(err, u.err)
}

func TestMemoryLimitBelowUse(t *testing.T) {
	for _, tt := range []struct {
		rule, from, to string
		use            int64
		err            error
		want           string
	}{
		{rule: "a limit above use", from: "memory<20Mi", to: "memory<10Mi", use: 9 << 20},
		{rule: "a limit below use", from: "memory<20Mi", to: "memory<10Mi", use: 11 << 20, want: `cannot decrease memory limits: [attempting to set pod memory limit (10485760) below current usage (11534336), attempting to set container "a" memory limit (10485760) below current usage (11534336)]`},
		{rule: "a first limit below use", from: "memory=1Mi", to: "memory=1Mi memory<10Mi", use: 10 << 20, want: "below current usage"},
		{rule: "a limit that grows", from: "memory<5Mi", to: "memory<10Mi", use: 11 << 20},
		{rule: "CPU alone", from: "memory<5Mi cpu=1", to: "memory<5Mi cpu=2", use: 11 << 20},
		{rule: "use is not known", from: "memory<20Mi", to: "memory<10Mi", err: errors.New("boom"), want: "unable to read memory usage: boom"},
		{rule: "the runtime tells of no use", from: "memory<20Mi", to: "memory<10Mi", want: `cannot decrease memory limits: [missing pod memory usage, missing container "a" memory usage]`},
		{rule: "use cannot be known", from: "memory<20Mi", to: "memory<10Mi", use: 11 << 20, err: errors.ErrUnsupported},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			n := newNode(t, func(c *Config) { c.Stats = used{c.Engine.(*runtimetest.Engine), tt.use, tt.err} })
			p := sized(pod("sleep 9999"), 0, tt.from)
			n.sync(p)
			p = sized(p, 0, tt.to)
			result, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
			got := ""
			if result.Resize != nil {
				got = result.Resize.Error()
			}
			if err != nil || (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
			if still := plan.Resizing(p, n.look(p)); still != (tt.want != "") {
				t.Errorf("resizing %v", still)
			}
		})
	}
}

// What a container without a limit uses is not held against those of others: the pod as a whole has none.
func TestAMemoryLimitBesideAContainerWithoutOne(t *testing.T) {
	n := newNode(t, func(c *Config) { c.Stats = used{c.Engine.(*runtimetest.Engine), 9 << 20, nil} })
	p := sized(pod("sleep 9999", "sleep 9999"), 0, "memory<20Mi")
	n.sync(p)
	p = sized(p, 0, "memory<10Mi")
	if result, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); err != nil || result.Resize != nil || plan.Resizing(p, n.look(p)) {
		t.Errorf("%v, %v", result.Resize, err)
	}
}

func TestMixed(t *testing.T) {
	list := func(i int, words string) v1.ResourceRequirements {
		return sized(pod("x"), 0, words).Spec.Containers[i].Resources
	}
	has, wants := list(0, "cpu=1 memory=1Mi cpu<2"), list(0, "cpu=3 memory<3Mi example.com/x=1")
	if diff := cmp.Diff(list(0, "cpu=1 cpu<2 memory<3Mi example.com/x=1"), mixed(has, wants, v1.ResourceMemory)); diff != "" {
		t.Errorf("memory (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(list(0, "cpu=3 memory=1Mi example.com/x=1"), mixed(has, wants, v1.ResourceCPU)); diff != "" {
		t.Errorf("cpu (-want +got)\n%s", diff)
	}
}

func TestResizeOfThePodAsAWhole(t *testing.T) {
	n := newNode(t)
	p := pod("sleep 9999")
	p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("10Mi")}}
	n.sync(p)
	p = p.DeepCopy()
	p.Spec.Resources.Limits[v1.ResourceMemory] = resource.MustParse("20Mi")
	if seen, _ := n.sync(p); plan.Resizing(p, seen) || seen.Containers[0].Resources.Memory != 20<<20 {
		t.Errorf("%+v", seen.Containers[0].Resources)
	}
}

// A limit of the pod as a whole below what it uses is refused; meanwhile it has what it had.
func TestPodLimitBelowUse(t *testing.T) {
	n := newNode(t, func(c *Config) { c.Stats = used{c.Engine.(*runtimetest.Engine), 5 << 20, nil} })
	limited := func(memory string) *v1.Pod {
		p := sized(pod("sleep 9999"), 0, "memory<1Mi")
		p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}}
		return p
	}
	p := limited("10Mi")
	n.sync(p)
	for memory, want := range map[string]string{
		"4Mi": "cannot decrease memory limits: attempting to set pod memory limit (4194304) below current usage (5242880)",
		"6Mi": "", "12Mi": "",
	} {
		wish := limited(memory)
		wish.UID = p.UID
		result, err := n.Sync(t.Context(), wish, runtime.SyncInput{Seen: n.look(wish)})
		got := ""
		if result.Resize != nil {
			got = result.Resize.Error()
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", memory, got, err, want)
		}
		if seen := n.look(wish); plan.Resizing(wish, seen) != (want != "") {
			t.Errorf("%s: resizing %v, the pod has %+v", memory, plan.Resizing(wish, seen), seen.Level)
		}
	}
}
