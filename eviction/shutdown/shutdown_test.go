package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name string, priority int32, graceSeconds int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &graceSeconds},
	}
}

func TestPlan(t *testing.T) {
	static := pod("static", 0, 1) // field reports kubernetes/kubernetes#113940 and #133442: control planes ended first
	static.Annotations = map[string]string{podspec.SourceAnnotation: "file"}
	static.Spec.Priority, static.Spec.PriorityClassName = nil, "system-node-critical"
	pods := []*v1.Pod{pod("negative", -5, 1), pod("zero", 0, 1), pod("middle", 150_000, 1), pod("critical", systemCritical, 1), {ObjectMeta: metav1.ObjectMeta{Name: "none"}}, static}
	for name, c := range map[string]struct {
		periods map[int32]time.Duration
		want    string
	}{
		"no groups":                          {nil, ""},
		"two":                                {Periods(30*time.Second, 10*time.Second), "0/20s: negative zero middle none; 2000000000/10s: critical static"},
		"below the lowest is in the lowest":  {map[int32]time.Duration{100_000: time.Second}, "100000/1s: negative zero middle critical none static"},
		"groups without pods are left out":   {map[int32]time.Duration{0: 1e9, 10: 2e9, 100_000: 3e9}, "0/1s: negative zero none; 100000/3s: middle critical static"},
		"a priority of none is that of zero": {map[int32]time.Duration{-10: 1e9, 0: 2e9}, "-10/1s: negative; 0/2s: zero middle critical none static"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, g := range plan(pods, c.periods) {
				var names []string
				for _, p := range g.pods {
					names = append(names, p.Name)
				}
				got = append(got, fmt.Sprintf("%d/%v: %s", g.priority, g.period, strings.Join(names, " ")))
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// machine is a Notice, and a node whose pods take so long to end.
type machine struct {
	said  chan bool
	fails int

	mu    sync.Mutex // guards the rest
	began time.Time
	takes map[types.UID]time.Duration
	pods  []*v1.Pod
	log   []string
	how   []runtime.Termination
}

func newMachine(pods ...*v1.Pod) *machine {
	return &machine{said: make(chan bool), began: time.Now(), takes: map[types.UID]time.Duration{}, pods: pods}
}

func (m *machine) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, fmt.Sprintf("%v ", time.Since(m.began))+fmt.Sprintf(format, args...))
}

func (m *machine) Watch(ctx context.Context, need time.Duration, tell func(bool) <-chan struct{}) error {
	if m.fails > 0 {
		m.fails--
		return errors.New("no bus")
	}
	m.note("hold up to %v", need)
	var ready <-chan struct{}
	for {
		select {
		case down := <-m.said:
			ready = tell(down)
			if !down {
				ready = nil
			}
		case <-ready:
			m.note("go")
			ready = nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *machine) Active() []*v1.Pod { return m.pods }

func (m *machine) Kill(ctx context.Context, uid types.UID, how runtime.Termination) error {
	m.mu.Lock()
	m.how = append(m.how, how)
	m.mu.Unlock()
	d := how.Grace
	if t, ok := m.takes[uid]; ok {
		d = t
	}
	select {
	case <-time.After(d):
		m.note("ended %s", uid)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *machine) Settled(context.Context, types.UID) error { return nil }

func (m *machine) Event(e observe.Event) { m.note("event %s: %s", e.Reason, e.Message) }

// run runs a manager while do acts on the machine.
func (m *machine) run(t *testing.T, cfg Config, do func(g *Manager)) {
	t.Helper()
	cfg.Notice, cfg.Pods, cfg.Observe.Events = m, m, m
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- g.Run(ctx) }()
	synctest.Wait()
	do(g)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNothingIsDoneWithoutPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.run(t, Config{Periods: Periods(0, 0)}, func(*Manager) { time.Sleep(time.Hour) })
		if m.log != nil {
			t.Error(m.log)
		}
	})
}

func TestANoticeThatFailsIsAskedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.fails = 3
		var log strings.Builder
		cfg := Config{Periods: Periods(2e9, 1e9), Observe: observe.To{Log: slog.New(slog.NewTextHandler(&log, nil))}}
		m.run(t, cfg, func(*Manager) { time.Sleep(10 * time.Second) })
		if diff := cmp.Diff([]string{"3s hold up to 2s"}, m.log); diff != "" {
			t.Error(diff)
		}
		if n := strings.Count(log.String(), "no bus"); n != 1 {
			t.Errorf("it was told %d times that there is no bus:\n%s", n, log.String())
		}
	})
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	m := newMachine()
	for name, c := range map[string]Config{
		"nothing":     {},
		"negative":    {Notice: m, Pods: m, Periods: Periods(1e9, 2e9)},
		"half second": {Notice: m, Pods: m, Periods: map[int32]time.Duration{0: 5e8}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCase_c172_statuses_are_told_before_the_machine_goes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []*v1.Pod
		for i := range 39 {
			pods = append(pods, pod(fmt.Sprint("p", i), 0, 5))
		}
		m := newMachine(append(pods, pod("critical", systemCritical, 5))...)
		changes := 0
		cfg := Config{Periods: Periods(30*time.Second, 10*time.Second), Changed: func() { changes++ }, Flush: func(ctx context.Context) error {
			m.note("flush")
			select {
			case <-time.After(8 * time.Second): // 40 at 5 a second
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		m.run(t, cfg, func(g *Manager) {
			if err := g.Admit(t.Context(), pods[0], nil); err != nil {
				t.Error(err)
			}
			m.said <- true
			time.Sleep(time.Second)
			if r, ok := errors.AsType[*runtime.Rejection](g.Admit(t.Context(), pods[0], nil)); !ok || r.Reason != "NodeShutdown" || g.Healthy() == nil {
				t.Error(r, g.Healthy())
			}
			time.Sleep(time.Minute)
		})
		got := slices.DeleteFunc(m.log, func(s string) bool { return strings.HasPrefix(s, "5s ended p") })
		want := []string{"0s hold up to 30s", "0s event Shutdown: Shutdown manager detected shutdown event", "10s ended critical", "10s flush", "18s go"}
		if diff := cmp.Diff(want, got); diff != "" || changes != 1 {
			t.Error(diff, changes)
		}
	})
}

func TestCase_c173_pods_are_terminated_in_words_of_the_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(pod("a", 0, 30))
		m.run(t, Config{Periods: Periods(30*time.Second, 10*time.Second)}, func(*Manager) {
			m.said <- true
			time.Sleep(time.Minute)
		})
		want := []runtime.Termination{{
			Grace: 20 * time.Second, Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown.", Disruption: true,
		}}
		if diff := cmp.Diff(want, m.how); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCase_c176_a_pod_that_never_ends_holds_up_nobody_and_a_shutdown_may_be_called_off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(pod("stuck", 0, 120), pod("middle", 100_000, 2), pod("critical", systemCritical, 120))
		m.takes["stuck"], m.takes["critical"] = time.Hour, time.Hour
		m.run(t, Config{Periods: map[int32]time.Duration{0: 10 * time.Second, 100_000: 5 * time.Second, systemCritical: 5 * time.Second}}, func(g *Manager) {
			m.said <- true
			time.Sleep(time.Second)
			m.said <- true // once more: nothing is begun anew
			time.Sleep(13 * time.Second)
			m.said <- false
			synctest.Wait()
			if g.Healthy() != nil || g.Admit(t.Context(), m.pods[0], nil) != nil {
				t.Error("the node is not back")
			}
			time.Sleep(time.Minute)
			m.said <- true
			time.Sleep(time.Minute)
		})
		want := []string{
			"0s hold up to 20s", "0s event Shutdown: Shutdown manager detected shutdown event", "12s ended middle",
			"14s event Shutdown: Shutdown manager detected shutdown cancellation",
			"1m14s event Shutdown: Shutdown manager detected shutdown event", "1m26s ended middle", "1m31s go",
		}
		if diff := cmp.Diff(want, m.log); diff != "" {
			t.Error(diff)
		}
		if got := m.how[0].Grace; got != 10*time.Second {
			t.Error(got)
		}
	})
}
