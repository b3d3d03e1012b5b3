package manager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// world is a node in a bubble: a manager that runs, answers for its checks, and all that was heard of it. Probes are
// told apart by the name of their only header.
type world struct {
	t     *testing.T
	m     *Manager
	begin time.Time

	mu     sync.Mutex
	answer func(ctx context.Context, probeName, id string) (probe.Result, string, error)
	lines  []string // what happened, with the second it happened in
}

func inWorld(t *testing.T, f func(w *world)) { t.Helper(); inWorldWith(t, Config{}, f) }

func inWorldWith(t *testing.T, cfg Config, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, begin: time.Now(), answer: always(probe.Success, "fine")}
		cfg.Check = w.check
		cfg.Observe.Events = w
		cfg.Changed = func(uid types.UID) { w.note("changed %s", uid) }
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.m = m
		m.sched.grain = 1 // to the nanosecond
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		f(w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func always(r probe.Result, text string) func(context.Context, string, string) (probe.Result, string, error) {
	return func(context.Context, string, string) (probe.Result, string, error) { return r, text, nil }
}

func (w *world) check(ctx context.Context, t Target, p *v1.Probe) (probe.Result, string, error) {
	name := p.HTTPGet.HTTPHeaders[0].Name
	w.note("%s %s", name, t.ID)
	w.mu.Lock()
	answer := w.answer
	w.mu.Unlock()
	return answer(ctx, name, t.ID)
}

func (w *world) Event(e observe.Event) {
	w.note("%s %s: %s", e.Reason, e.About.FieldPath, e.Message)
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.begin).Truncate(10 * time.Millisecond).Seconds()
	w.lines = append(w.lines, fmt.Sprintf("%gs ", at)+fmt.Sprintf(format, args...))
}

func (w *world) answers(f func(ctx context.Context, probeName, id string) (probe.Result, string, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// after lets time pass and checks what happened in it.
func (w *world) after(d time.Duration, want ...string) {
	w.t.Helper()
	time.Sleep(d)
	got := inOrder(w.take())
	if !slices.Equal(got, inOrder(want)) {
		w.t.Errorf("in %v to %v:\n got %q\nwant %q", d, time.Since(w.begin), got, want)
	}
}

// inOrder are lines by their time: what happens at one instant has no order.
func inOrder(lines []string) []string {
	at := func(line string) time.Duration {
		when, _, _ := strings.Cut(line, " ")
		d, _ := time.ParseDuration(when)
		return d
	}
	return slices.SortedFunc(slices.Values(lines), func(a, b string) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), strings.Compare(a, b))
	})
}

// take is what happened since it was asked last.
func (w *world) take() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

func (w *world) result(id string, want runtime.ProbeResult) {
	w.t.Helper()
	if got := w.m.Results("u")[id]; got != want {
		w.t.Errorf("result of %s is %+v, want %+v", id, got, want)
	}
}

// pod makes a pod of one container named c.
func pod(c v1.Container) *v1.Pod {
	c.Name = "c"
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "ns", "web", "u"
	p.Spec.Containers = []v1.Container{c}
	return p
}

// every is a probe that looks each period seconds. Other numbers: all thresholds one, no delay.
func every(name string, period int32, more ...func(*v1.Probe)) *v1.Probe {
	p := &v1.Probe{PeriodSeconds: period, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1}
	p.HTTPGet = &v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Name: name}}}
	for _, f := range more {
		f(p)
	}
	return p
}

func delay(s int32) func(*v1.Probe)    { return func(p *v1.Probe) { p.InitialDelaySeconds = s } }
func failures(n int32) func(*v1.Probe) { return func(p *v1.Probe) { p.FailureThreshold = n } }
func timeout(s int32) func(*v1.Probe)  { return func(p *v1.Probe) { p.TimeoutSeconds = s } }

// running is a look at a pod whose container has run for that long.
func running(id string, age time.Duration) runtime.Pod {
	return seen(runtime.Container{ID: id, Name: "c", State: runtime.Running, Started: time.Now().Add(-age)})
}

func seen(cs ...runtime.Container) runtime.Pod {
	return runtime.Pod{PodRef: runtime.PodRef{UID: "u"}, IPs: []string{"10.0.0.5"}, Containers: cs, At: time.Now()}
}
