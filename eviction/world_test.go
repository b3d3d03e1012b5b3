package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
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
