package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
)

// sink remembers what it was told, as "pod message", and "pod finished". It takes some time for each call and fails
// as fail says.
type sink struct {
	delay time.Duration
	fail  func(call string) error

	mu       sync.Mutex // guards the rest
	calls    []string   // that succeeded
	tried    int
	underway map[types.UID]int
	most     int // calls at once
}

func (s *sink) call(ctx context.Context, pod *v1.Pod, what string) error {
	call := string(pod.UID) + " " + what
	s.mu.Lock()
	s.tried++
	if s.underway == nil {
		s.underway = map[types.UID]int{}
	}
	s.underway[pod.UID]++
	if s.underway[pod.UID] > 1 {
		s.calls = append(s.calls, call+" OVERLAPS")
	}
	n := 0
	for _, u := range s.underway {
		n += u
	}
	s.most = max(s.most, n)
	s.mu.Unlock()

	var err error
	if s.delay > 0 {
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underway[pod.UID]--
	if err == nil && s.fail != nil {
		err = s.fail(call)
	}
	if err == nil {
		s.calls = append(s.calls, call)
	}
	return err
}

func (s *sink) UpdateStatus(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	return s.call(ctx, pod, st.Message)
}

func (s *sink) Finished(ctx context.Context, pod *v1.Pod) error { return s.call(ctx, pod, "finished") }

// attempts is how often it was called.
func (s *sink) attempts() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried
}

// failing makes all calls fail with err from now on; nil ends that.
func (s *sink) failing(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = func(string) error { return err }
}

func (s *sink) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.calls, ", ")
}

func named(uid string) *v1.Pod {
	p := pod(always, "app")
	p.UID = types.UID(uid)
	return p
}

func says(message string) v1.PodStatus { return v1.PodStatus{Phase: v1.PodRunning, Message: message} }

// rig is a Manager under test.
type rig struct {
	*testing.T
	m *Manager
}

func newRig(t *testing.T, cfg Config) rig {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rig{t, m}
}

// bubble runs a Manager in a bubble of its own time. script gets it running; afterwards it is stopped.
func bubble(t *testing.T, cfg Config, script func(rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newRig(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.m.Run(ctx) }()
		script(b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// held counts the pods the Manager remembers and those queued.
func (b rig) held() (pods, queue int) {
	synctest.Wait()
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	return len(b.m.pods), len(b.m.queue)
}

func (b rig) want(s *sink, calls string) {
	b.Helper()
	synctest.Wait()
	if got := s.told(); got != calls {
		b.Errorf("the sink was told\n  %s\nwant\n  %s", got, calls)
	}
}

func (b rig) update(uid, message string) {
	b.Helper()
	b.tell(named(uid), says(message))
}

func (b rig) tell(pod *v1.Pod, s v1.PodStatus) {
	b.Helper()
	if err := b.m.UpdateStatus(b.Context(), pod, s); err != nil {
		b.Error(err)
	}
}

func (b rig) finish(uid string) {
	b.Helper()
	if err := b.m.Finished(b.Context(), named(uid)); err != nil {
		b.Error(err)
	}
}

type noMetrics struct{}

func (noMetrics) Counter(string, string, ...string) (observe.Metric, error) {
	return nil, errors.New("taken")
}

func (noMetrics) Gauge(string, string, ...string) (observe.Metric, error) {
	return nil, errors.New("taken")
}

func (noMetrics) Histogram(string, string, []float64, ...string) (observe.Metric, error) {
	return nil, errors.New("taken")
}

// counted is Metrics that write down what is recorded.
type counted struct {
	mu    sync.Mutex // guards lines
	lines []string
}

type countedMetric struct {
	c    *counted
	name string
}

func (c *counted) Counter(name, _ string, _ ...string) (observe.Metric, error) {
	return countedMetric{c, name}, nil
}

func (c *counted) Gauge(name, _ string, _ ...string) (observe.Metric, error) {
	return countedMetric{c, name}, nil
}

func (c *counted) Histogram(name, _ string, _ []float64, _ ...string) (observe.Metric, error) {
	return countedMetric{c, name}, nil
}

func (m countedMetric) Record(v float64, labels ...string) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.c.lines = append(m.c.lines, fmt.Sprint(strings.TrimPrefix(m.name, "kubelet_"), " ", v, " ", strings.Join(labels, ",")))
}

func (countedMetric) Forget(...string) {}
