package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const mi = 1 << 20

// node is one whose memory and disks are what its pods, dead containers and images take. Times are those of the bubble.
type node struct {
	t        *testing.T
	capacity map[eviction.Signal]int64
	taken    map[eviction.Signal]int64 // by nobody in particular
	dead     int64                     // of nodefs, given back by Reclaim
	images   int64                     // of imagefs
	layout   eviction.Layout
	stale    time.Duration // figures are made anew that often; 0: each time
	at       time.Time
	refuse   error         // of Kill
	cleanup  time.Duration // until an ended pod gives back what it held

	mu      sync.Mutex // guards the rest
	pods    []*v1.Pod
	usage   map[types.UID]eviction.Usage
	gone    map[types.UID]time.Time
	last    eviction.Observation
	ended   []string
	how     []runtime.Termination
	events  []observe.Event
	reclaim []string
}

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{
		t: t, capacity: map[eviction.Signal]int64{eviction.MemoryAvailable: 1000 * mi}, taken: map[eviction.Signal]int64{},
		usage: map[types.UID]eviction.Usage{}, gone: map[types.UID]time.Time{},
	}
}

// run adds a pod that uses so much memory.
func (n *node) run(name string, memory int64, edits ...func(*v1.Pod)) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	for _, edit := range edits {
		edit(p)
	}
	n.pods = append(n.pods, p)
	n.usage[p.UID] = eviction.Usage{Memory: memory, Containers: []eviction.ContainerUsage{{Name: "c", Memory: memory}}}
}

func (n *node) Active() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.pods)
}

func (n *node) Observe(context.Context) (eviction.Observation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); n.at.IsZero() || now.Sub(n.at) >= n.stale {
		n.at = now
		n.last = n.look(now)
	}
	return n.last, nil
}

func (n *node) look(now time.Time) eviction.Observation {
	o := eviction.Observation{Levels: map[eviction.Signal]eviction.Level{}, Usage: map[types.UID]eviction.Usage{}, Layout: n.layout}
	var memory, disk int64
	for uid, u := range n.usage {
		if at, ok := n.gone[uid]; ok && !now.Before(at) {
			continue
		}
		o.Usage[uid] = u
		memory += u.Memory
		for _, c := range u.Containers {
			disk += c.Rootfs.Bytes
		}
	}
	used := map[eviction.Signal]int64{eviction.MemoryAvailable: memory, eviction.NodeFsAvailable: disk + n.dead, eviction.ImageFsAvailable: n.images}
	for s, c := range n.capacity {
		o.Levels[s] = eviction.Level{Available: c - used[s] - n.taken[s], Capacity: c, Used: used[s], At: now}
	}
	return o
}

func (n *node) Kill(ctx context.Context, uid types.UID, how runtime.Termination) error {
	if n.refuse != nil {
		<-ctx.Done()
		return errors.Join(n.refuse, context.Cause(ctx))
	}
	time.Sleep(how.Grace)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended, n.how = append(n.ended, string(uid)), append(n.how, how)
	n.pods = slices.DeleteFunc(n.pods, func(p *v1.Pod) bool { return p.UID == uid })
	n.gone[uid] = time.Now().Add(n.cleanup)
	return nil
}

func (n *node) Settled(ctx context.Context, uid types.UID) error {
	n.mu.Lock()
	at, ok := n.gone[uid]
	n.mu.Unlock()
	if !ok {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (n *node) Event(e observe.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

type reclaimer struct {
	n    *node
	what string
	do   func(*node)
}

func (r reclaimer) Reclaim(context.Context) error {
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	r.n.reclaim = append(r.n.reclaim, r.what)
	r.do(r.n)
	return errors.New("not all of it")
}

func (n *node) manager(thresholds []eviction.Threshold, change func(*eviction.Config)) *eviction.Manager {
	n.t.Helper()
	cfg := eviction.Config{
		Source: n, Pods: n, Thresholds: thresholds, Node: "n1", Observe: observe.To{Events: n},
		Dead:   reclaimer{n, "dead", func(n *node) { n.dead = 0 }},
		Images: reclaimer{n, "images", func(n *node) { n.images = 0 }},
	}
	if change != nil {
		change(&cfg)
	}
	m, err := eviction.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return m
}

// check makes a pass and compares who it ended.
func (n *node) check(m *eviction.Manager, want string) {
	n.t.Helper()
	uids, err := m.Check(n.t.Context())
	if err != nil {
		n.t.Error(err)
	}
	if got := strings.Trim(fmt.Sprint(uids), "[]"); got != want {
		n.t.Errorf("ended %q, want %q", got, want)
	}
}

// reasons of the events since it was asked last.
func (n *node) reasons() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, e := range n.events {
		out = append(out, e.Reason)
	}
	n.events = nil
	return strings.Join(out, " ")
}

type list = map[string]string

func parse(t *testing.T, hard, soft, grace, reclaim list) []eviction.Threshold {
	t.Helper()
	out, err := eviction.Parse(hard, soft, grace, reclaim)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func pressure(t *testing.T, m *eviction.Manager, want ...v1.NodeConditionType) {
	t.Helper()
	if diff := cmp.Diff(want, m.Pressure()); diff != "" {
		t.Errorf("pressure: %s", diff)
	}
}

func prio(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func annotated(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations = list{key: value} }
}

func requests(name, q string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceName(name): resource.MustParse(q)}
	}
}

func TestOnePodGoesForAHardThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("small", 100*mi)
		n.run("big", 600*mi, requests("memory", "200Mi"))
		n.run("other", 250*mi)
		changes := 0
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), func(c *eviction.Config) { c.Changed = func() { changes++ } })
		pressure(t, m)
		n.check(m, "big")
		want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. " +
			"Container c was using 600Mi, request is 200Mi, has larger consumption of memory. "
		if diff := cmp.Diff([]runtime.Termination{{Grace: time.Second, Reason: "Evicted", Message: want, Disruption: true}}, n.how); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(observe.Event{
			About: observe.Pod("default", "big", "big"), Warning: true, Reason: "Evicted", Message: want,
			Annotations: list{"offending_containers": "c", "offending_containers_usage": "600Mi", "starved_resource": "memory"},
		}, n.events[1]); diff != "" {
			t.Error(diff)
		}
		if got := n.events[0].Message; got != "Attempting to reclaim memory" {
			t.Error(got)
		}
		if got := n.reasons(); got != "EvictionThresholdMet Evicted" {
			t.Error(got)
		}
		pressure(t, m, v1.NodeMemoryPressure)
		n.check(m, "")
		if changes != 1 || n.reclaim != nil {
			t.Errorf("%d changes, reclaimed %v", changes, n.reclaim)
		}
	})
}

// closer is who knows better what pods use.
type closer func() (eviction.Observation, error)

func (c closer) Observe(context.Context) (eviction.Observation, error) { return c() }

func TestPodsAreLookedAtCloserBeforeOneIsChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 500*mi)
		n.run("b", 450*mi)
		looks, trouble := 0, error(nil)
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), func(c *eviction.Config) {
			c.Closer = closer(func() (eviction.Observation, error) {
				looks++
				return eviction.Observation{Usage: map[types.UID]eviction.Usage{"a": {Memory: mi}, "b": {Memory: 600 * mi}, "c": {Memory: mi}}}, trouble
			})
		})
		n.check(m, "b")
		time.Sleep(time.Minute)
		n.check(m, "") // a calm pass does not take the trouble
		if looks != 1 {
			t.Errorf("looked %d times", looks)
		}
		trouble = errors.New("away")
		n.run("c", 450*mi)
		time.Sleep(time.Minute)
		n.check(m, "a") // what was observed has to do
	})
}

func TestPressureStaysForTheTransitionPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("big", 950*mi)
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		n.check(m, "big") // seen at 0 s
		time.Sleep(5*time.Minute - 2*time.Second)
		n.check(m, "")
		pressure(t, m, v1.NodeMemoryPressure)
		time.Sleep(time.Second)
		n.check(m, "")
		pressure(t, m)
	})
}

func TestSoftThresholds(t *testing.T) {
	soft := func(t *testing.T) []eviction.Threshold {
		t.Helper()
		return parse(t, nil, list{"memory.available": "100Mi"}, list{"memory.available": "30s"}, nil)
	}
	t.Run("the condition is there at once, the kill waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.run("big", 950*mi)
			m := n.manager(soft(t), func(c *eviction.Config) { c.MaxGrace = 20 * time.Second })
			n.check(m, "")
			pressure(t, m, v1.NodeMemoryPressure)
			time.Sleep(30*time.Second - time.Millisecond)
			n.check(m, "")
			time.Sleep(time.Millisecond)
			n.check(m, "big")
			if got := n.how[0].Grace; got != 20*time.Second {
				t.Error(got)
			}
		})
	})
	t.Run("one pass above it starts the grace period anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.run("big", 950*mi)
			m := n.manager(soft(t), nil)
			n.check(m, "")
			time.Sleep(20 * time.Second)
			n.taken[eviction.MemoryAvailable] = -100 * mi
			n.check(m, "")
			n.taken[eviction.MemoryAvailable] = 0
			time.Sleep(20 * time.Second)
			n.check(m, "")
			time.Sleep(20 * time.Second)
			n.check(m, "")
			time.Sleep(10 * time.Second)
			n.check(m, "big")
		})
	})
	t.Run("grace is the pod's if that is shorter, and a second at least", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			own := int64(7)
			n.run("short", 500*mi, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &own })
			n.run("long", 450*mi)
			m := n.manager(soft(t), func(c *eviction.Config) { c.MaxGrace = time.Minute })
			n.check(m, "")
			time.Sleep(30 * time.Second)
			n.check(m, "short")
			n.taken[eviction.MemoryAvailable] = 500 * mi
			n.check(m, "long")
			n.run("default", 450*mi)
			m = n.manager(soft(t), nil)
			n.check(m, "")
			time.Sleep(30 * time.Second)
			n.check(m, "default")
			var got []time.Duration
			for _, h := range n.how {
				got = append(got, h.Grace)
			}
			if diff := cmp.Diff([]time.Duration{7 * time.Second, time.Minute, time.Second}, got); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func TestFiguresThatAreNotNewEndNobodyButKeepTheCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.stale = time.Minute
		n.run("a", 500*mi)
		n.run("b", 450*mi)
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		n.taken[eviction.MemoryAvailable] = 600 * mi
		n.check(m, "a")
		time.Sleep(10 * time.Second)
		n.check(m, "") // 600 Mi are taken and b is still there, but that was measured before
		pressure(t, m, v1.NodeMemoryPressure)
		time.Sleep(time.Minute)
		n.check(m, "b")
	})
}

func TestASignalNobodyKnowsIsNotMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 100*mi)
		m := n.manager(parse(t, eviction.Defaults(), nil, nil, nil), nil)
		n.check(m, "")
		pressure(t, m)
	})
}

func TestExemptPodsAreSkippedAndTheNextGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("static", 300*mi, annotated("kubernetes.io/config.source", "file"))
		n.run("mirror", 300*mi, annotated("kubernetes.io/config.mirror", "x"))
		n.run("critical", 200*mi, prio(2_000_000_000))
		n.run("ordinary", 150*mi, prio(1_999_999_999), annotated("kubernetes.io/config.source", "api"))
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		n.check(m, "ordinary")
		n.taken[eviction.MemoryAvailable] = 150 * mi
		n.check(m, "")
	})
}

func TestAPodThatDoesNotEndCountsAndHoldsUpThePassForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("stuck", 500*mi)
		n.run("other", 450*mi)
		n.refuse = errors.New("no answer")
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		began := time.Now()
		n.check(m, "stuck")
		if took := time.Since(began); took != 40*time.Second {
			t.Errorf("took %v", took)
		}
		if got := n.reasons(); got != "EvictionThresholdMet Evicted ExceededGracePeriod" {
			t.Error(got)
		}
	})
}

func TestMemoryGoesBeforeDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.capacity[eviction.NodeFsAvailable] = 10
		n.taken[eviction.NodeFsAvailable] = 10
		n.run("hungry", 950*mi)
		m := n.manager(parse(t, list{"nodefs.available": "10%", "memory.available": "100Mi"}, nil, nil, nil), nil)
		n.check(m, "hungry")
		pressure(t, m, v1.NodeMemoryPressure, v1.NodeDiskPressure)
		if n.reclaim != nil {
			t.Error("memory is not found on disks")
		}
	})
}

func TestLocalLimitsEndEveryPodThatExceedsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		full := func(p *v1.Pod) {
			q := resource.MustParse("5Mi")
			p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &q}}}}
		}
		for _, name := range []string{"a", "b", "c"} {
			n.run(name, 400*mi, full)
			n.usage[types.UID(name)] = eviction.Usage{Memory: 400 * mi, Volumes: map[string]eviction.Amount{"scratch": {Bytes: 5*mi + 1}}}
		}
		n.pods[2].Annotations = list{"kubernetes.io/config.source": "file"}
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		uids, err := m.Check(t.Context()) // pressure ends nobody in the same pass
		slices.Sort(uids)
		if err != nil || fmt.Sprint(uids) != "[a b]" {
			t.Error(uids, err)
		}
		want := runtime.Termination{Grace: time.Second, Reason: "Evicted", Message: `Usage of EmptyDir volume "scratch" exceeds the limit "5Mi". `}
		if diff := cmp.Diff([]runtime.Termination{want, want}, n.how); diff != "" {
			t.Error(diff)
		}
		if n.events[0].Annotations != nil {
			t.Error("annotations are for pressure")
		}
		n.pods[0].Annotations = nil
		m = n.manager(nil, func(c *eviction.Config) { c.NoLocalLimits = true })
		n.check(m, "")
	})
}

func TestRunTicksAndGoesOnAtOnceAfterAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 300*mi)
		n.run("b", 200*mi)
		n.run("c", 100*mi)
		n.taken[eviction.MemoryAvailable] = 700 * mi
		m := n.manager(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil), nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b"}, n.ended); diff != "" { // a second each
			t.Error(diff)
		}
		n.mu.Lock()
		n.taken[eviction.MemoryAvailable] = 900 * mi
		n.mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b", "c"}, n.ended); diff != "" {
			t.Error(diff)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// bell is a Notifier.
type bell struct {
	ring chan struct{}
	mu   sync.Mutex
	used map[eviction.Signal]int64
}

func (b *bell) Wait(ctx context.Context, s eviction.Signal, used int64) error {
	b.mu.Lock()
	b.used[s] = used
	b.mu.Unlock()
	if s == eviction.AllocatableMemoryAvailable {
		return errors.ErrUnsupported
	}
	select {
	case <-b.ring:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestAPodThatEndsTooSlowlyIsKilled(t *testing.T) {
	for _, tt := range []struct {
		rule       string
		hard, soft list
		ring       bool
		want       []types.UID
	}{
		{"half of what was left is gone", list{"memory.available": "200Mi"}, nil, true, []types.UID{"a"}},
		{"it is not", list{"memory.available": "200Mi"}, nil, false, nil},
		{"a soft threshold can wait", nil, list{"memory.available": "200Mi"}, true, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.run("a", 100*mi)
			n.taken[eviction.MemoryAvailable] = 750 * mi
			b := &bell{ring: make(chan struct{}, 1), used: map[eviction.Signal]int64{}}
			var killed []types.UID
			grace := list{}
			for signal := range tt.soft {
				grace[signal] = "0.1s"
			}
			m := n.manager(parse(t, tt.hard, tt.soft, grace, nil), func(c *eviction.Config) {
				c.Notifier, c.Kill = b, func(uid types.UID) error { killed = append(killed, uid); return nil }
			})
			if tt.soft != nil {
				n.check(m, "")
				time.Sleep(time.Second)
			}
			if tt.ring {
				b.ring <- struct{}{}
			}
			n.check(m, "a")
			if !slices.Equal(n.ended, []string{"a"}) || !slices.Equal(killed, tt.want) {
				t.Errorf("%s: ended %v, killed %v, want %v", tt.rule, n.ended, killed, tt.want)
			}
			if got := b.used[eviction.MemoryAvailable]; tt.hard != nil && got != 150*mi {
				t.Errorf("%s: armed at %d", tt.rule, got)
			}
		})
	}
}

func TestTheKernelsNoticeComesBeforeTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 100*mi)
		n.capacity[eviction.AllocatableMemoryAvailable] = 500 * mi
		n.taken[eviction.AllocatableMemoryAvailable] = 1
		b := &bell{ring: make(chan struct{}), used: map[eviction.Signal]int64{}}
		thresholds := eviction.Allocatable(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil))
		m := n.manager(thresholds, func(c *eviction.Config) { c.Notifier = b })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := b.used[eviction.MemoryAvailable]; got != 900*mi {
			t.Errorf("armed at %d", got)
		}
		n.mu.Lock()
		n.taken[eviction.MemoryAvailable] = 850 * mi
		n.mu.Unlock()
		b.ring <- struct{}{}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a"}, n.ended); diff != "" {
			t.Error(diff)
		}
		stop()
		<-done
	})
}

func TestAdmit(t *testing.T) {
	tolerating := func(tol v1.Toleration) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{tol} }
	}
	memory, both := []string{"memory"}, []string{"memory", "disk"}
	for name, c := range map[string]struct {
		pressed []string
		edit    func(*v1.Pod)
		here    bool
		refused bool
	}{
		"nothing presses":                             {},
		"memory, best effort":                         {pressed: memory, refused: true},
		"memory, it requests some":                    {pressed: memory, edit: requests("memory", "1Mi")},
		"memory, tolerated":                           {pressed: memory, edit: tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure", Operator: "Exists", Effect: "NoSchedule"})},
		"memory, everything tolerated":                {pressed: memory, edit: tolerating(v1.Toleration{Operator: "Exists"})},
		"memory, tolerated with an empty value":       {pressed: memory, edit: tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure"})},
		"memory, tolerated with another value":        {pressed: memory, edit: tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure", Value: "x"}), refused: true},
		"memory, tolerated for another effect":        {pressed: memory, edit: tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure", Operator: "Exists", Effect: "NoExecute"}), refused: true},
		"disk too, it requests memory":                {pressed: both, edit: requests("memory", "1Mi"), refused: true},
		"disk alone, tolerated":                       {pressed: []string{"disk"}, edit: tolerating(v1.Toleration{Operator: "Exists"}), refused: true},
		"disk, static":                                {pressed: both, edit: annotated("kubernetes.io/config.source", "file")},
		"disk, critical":                              {pressed: both, edit: prio(2_000_000_000)},
		"a resize of one that is here is not stopped": {pressed: both, here: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.capacity[eviction.NodeFsAvailable] = 100
			if slices.Contains(c.pressed, "memory") {
				n.taken[eviction.MemoryAvailable] = 950 * mi
			}
			if slices.Contains(c.pressed, "disk") {
				n.taken[eviction.NodeFsAvailable] = 95
			}
			m := n.manager(parse(t, list{"memory.available": "100Mi", "nodefs.available": "10%"}, nil, nil, nil), nil)
			n.check(m, "")
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
			if c.edit != nil {
				c.edit(p)
			}
			var others []*v1.Pod
			if c.here {
				others = append(others, p)
			}
			err := m.Admit(t.Context(), p, others)
			r, _ := errors.AsType[*runtime.Rejection](err)
			if (r != nil) != c.refused {
				t.Fatal(err)
			}
			if r != nil && (r.Reason != "Evicted" || !strings.HasPrefix(r.Message, "The node had condition: [")) {
				t.Error(r)
			}
		})
	}
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	n := newNode(t)
	for name, c := range map[string]eviction.Config{
		"nothing":           {},
		"an unknown signal": {Source: n, Pods: n, Thresholds: []eviction.Threshold{{Signal: "coffee.available"}}},
		"a negative period": {Source: n, Pods: n, Every: -1},
	} {
		if _, err := eviction.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
