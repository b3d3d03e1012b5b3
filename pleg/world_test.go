package pleg_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// node is a runtime in memory, its pods written as for TestDiff, and a diary of what was asked and told, each with the
// second it happened in.
type node struct {
	t     *testing.T
	g     *pleg.Generator
	begin time.Time

	mu     sync.Mutex
	pods   map[types.UID]runtime.Pod
	ips    []string                                     // of each pod
	before func(ctx context.Context, what string) error // called before each "list" and "look <uid>"
	diary  []string
}

// onNode runs a test in a bubble on a node without a running generator.
func onNode(t *testing.T, cfg pleg.Config, f func(n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{t: t, begin: time.Now(), before: func(context.Context, string) error { return nil }}
		cfg.Source, cfg.Tell = n, func(e pleg.Event) { n.note("%s", show(e)) }
		g, err := pleg.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n.g = g
		f(n)
	})
}

// run runs the generator until the returned function is called.
func (n *node) run() (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error)
	go func() { done <- n.g.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	}
}

// has says what exists from now on.
func (n *node) has(pods string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = map[types.UID]runtime.Pod{}
	for _, p := range parsePods(pods) {
		p.IPs = n.ips
		n.pods[p.UID] = p
	}
}

func (n *node) does(f func(ctx context.Context, what string) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = f
}

func (n *node) Pods(ctx context.Context) ([]runtime.Pod, error) {
	if err := n.ask(ctx, "list"); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []runtime.Pod
	for _, p := range n.pods {
		p.IPs = nil
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b runtime.Pod) int { return compareUIDs(a.UID, b.UID) })
	return all, nil
}

func compareUIDs(a, b types.UID) int {
	if a < b {
		return -1
	}
	return 1
}

func (n *node) Pod(ctx context.Context, uid types.UID) (runtime.Pod, error) {
	if err := n.ask(ctx, "look "+string(uid)); err != nil {
		return runtime.Pod{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[uid], nil
}

func (n *node) ask(ctx context.Context, what string) error {
	n.note("%s", what)
	n.mu.Lock()
	before := n.before
	n.mu.Unlock()
	return before(ctx, what)
}

func (n *node) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := time.Since(n.begin).Truncate(10 * time.Millisecond).Seconds()
	n.diary = append(n.diary, fmt.Sprintf("%gs ", at)+fmt.Sprintf(format, args...))
}

// take is the diary since it was taken last.
func (n *node) take() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.diary
	n.diary = nil
	return d
}

// after lets time pass and compares the diary.
func (n *node) after(d time.Duration, want ...string) {
	n.t.Helper()
	time.Sleep(d)
	if got := n.take(); !slices.Equal(got, want) {
		n.t.Errorf("until %v:\n got %q\nwant %q", time.Since(n.begin), got, want)
	}
}

// pod asks the generator, and shows the answer as for TestDiff.
func (n *node) pod(uid types.UID, after time.Time) string {
	n.t.Helper()
	p, err := n.g.Pod(n.t.Context(), uid, after)
	if err != nil {
		return "error: " + err.Error()
	}
	if p.UID != uid || p.At.IsZero() {
		n.t.Errorf("pod %s is %q as of %v", uid, p.UID, p.At)
	}
	return write(p)
}

// write is the inverse of parsePod.
func write(p runtime.Pod) string {
	s := string(p.UID)
	for _, b := range slices.Backward(p.Sandboxes) {
		s += " " + b.ID + map[bool]string{true: "+", false: "-"}[b.Ready]
	}
	for _, c := range slices.Backward(p.Containers) {
		s += " " + c.ID + [...]string{"!", "?", "+", "-"}[c.State]
	}
	return s
}

func (n *node) relist() {
	n.t.Helper()
	if err := n.g.Relist(n.t.Context()); err != nil {
		n.t.Error(err)
	}
}
