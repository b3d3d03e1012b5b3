package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// What probes and lifecycle events must come to is seen only where all parts are together. These are reports from the field.

// server is a source and a sink as an API server is both: it keeps statuses, and shows them to the next agent.
type server struct {
	sets chan []*v1.Pod

	mu       sync.Mutex // guards statuses
	statuses map[string][]v1.PodStatus
}

func newServer() *server {
	return &server{sets: make(chan []*v1.Pod), statuses: map[string][]v1.PodStatus{}}
}

func (s *server) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case pods := <-s.sets:
			set(pods, true)
		}
	}
}

// wants shows pods with the statuses they had last.
func (s *server) wants(pods ...*v1.Pod) {
	for _, p := range pods {
		if all := s.of(p.Name); len(all) > 0 {
			p.Status = *all[len(all)-1].DeepCopy()
		}
	}
	s.sets <- pods
}

func (s *server) UpdateStatus(_ context.Context, pod *v1.Pod, status v1.PodStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[pod.Name] = append(s.statuses[pod.Name], *status.DeepCopy())
	return nil
}

func (s *server) Finished(context.Context, *v1.Pod) error { return nil }

func (s *server) of(name string) []v1.PodStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.statuses[name])
}

// last is the newest status of a pod.
func (s *server) last(t *testing.T, name string) v1.PodStatus {
	t.Helper()
	all := s.of(name)
	if len(all) == 0 {
		t.Fatalf("nothing was told of %s", name)
	}
	return all[len(all)-1]
}

func ready(s v1.PodStatus) v1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == v1.PodReady {
			return c
		}
	}
	return v1.PodCondition{}
}

// commands are what runs in containers: which command succeeds, and how often each was run.
type commands struct {
	mu    sync.Mutex // guards the rest
	fails map[string]bool
	ran   map[string]int
}

func (c *commands) exec(_ context.Context, cmd []string) (runtime.ExecResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran[cmd[0]]++
	if c.fails[cmd[0]] {
		return runtime.ExecResult{Code: 1}, nil
	}
	return runtime.ExecResult{}, nil
}

func (c *commands) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ran[name]
}

func (c *commands) fail(name string, does bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails[name] = does
}

// withCommands is an engine whose containers run until they are asked to stop.
func withCommands(fails ...string) (*runtimetest.Engine, *commands) {
	e, c := newEngine(), &commands{fails: map[string]bool{}, ran: map[string]int{}}
	for _, name := range fails {
		c.fails[name] = true
	}
	e.Behave = func(*runtime.ContainerConfig) runtimetest.Behavior { return runtimetest.Behavior{Exec: c.exec} }
	return e, c
}

// command is a probe by a command.
func command(name string, period int32, more ...func(*v1.Probe)) *v1.Probe {
	p := &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{name}}},
		PeriodSeconds: period, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1,
	}
	for _, f := range more {
		f(p)
	}
	return p
}

func with(p *v1.Pod, change func(c *v1.Container)) *v1.Pod {
	change(&p.Spec.Containers[0])
	return p
}

// begin starts an agent between a server and an engine.
func begin(t *testing.T, s *server, e *runtimetest.Engine, root string, change ...func(*Config)) (stop func()) {
	t.Helper()
	cfg := Config{Sources: map[string]syncloop.PodSource{"api": s}, Sink: s, Root: root, Engine: e, Notifier: e, Scheme: "memory"}
	for _, f := range change {
		f(&cfg)
	}
	_, stop = start(t, cfg)
	return stop
}

// A probe's own grace holds when it fails; the pod's holds for everything else.
func TestCase_c027_grace_of_a_failed_probe(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct {
		grace   *int64 // of the probe
		deleted bool   // by the API, while the probe passes
		want    time.Duration
	}{
		"the probe's own": {grace: new(int64(3)), want: 3 * time.Second},
		"none":            {want: hour},
		"zero":            {grace: new(int64(0)), want: hour},
		"a deletion":      {grace: new(int64(3)), deleted: true, want: hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				e, cmds := withCommands()
				e.Behave = func(*runtime.ContainerConfig) runtimetest.Behavior {
					return runtimetest.Behavior{StopAfter: runtimetest.Deaf, Exec: cmds.exec}
				}
				defer begin(t, s, e, t.TempDir())()
				wedged := func() *v1.Pod {
					p := with(pod("wedged"), func(c *v1.Container) { c.LivenessProbe = command("live", 1) })
					p.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = c.grace
					p.Spec.TerminationGracePeriodSeconds = new(int64(3600))
					return p
				}
				s.wants(wedged())
				time.Sleep(10 * time.Second)
				first := e.Newest("wedged", "c")
				if c.deleted {
					p := wedged()
					p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(hour))), new(int64(3600))
					s.wants(p)
				} else {
					cmds.fail("live", true)
				}
				time.Sleep(c.want - time.Second)
				if got, err := e.Container(t.Context(), first); err != nil || got.State != runtime.Running {
					t.Fatalf("ended too early: %v, %v", got.State, err)
				}
				time.Sleep(4 * time.Second)
				if got, err := e.Container(t.Context(), first); err == nil && got.State == runtime.Running {
					t.Error("still running")
				}
			})
		})
	}
}

// A command that is slower than its probe allows is a failure, whether the runtime says so or hangs.
func TestCase_c031_a_slow_command_never_makes_a_pod_ready(t *testing.T) {
	for name, fault := range map[string]runtimetest.Fault{
		"the runtime hangs":   runtimetest.Hang,
		"the runtime says so": runtimetest.Fail(fmt.Errorf("exec: %w", context.DeadlineExceeded)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, journal := newServer(), new(observe.Journal)
				e, _ := withCommands()
				e.Inject("Exec", fault)
				defer begin(t, s, e, t.TempDir(), func(c *Config) { c.Observe.Events = journal })()
				s.wants(with(pod("slow"), func(c *v1.Container) { c.ReadinessProbe = command("sleep", 3) }))
				time.Sleep(time.Minute)
				for _, status := range s.of("slow") {
					if ready(status).Status == v1.ConditionTrue {
						t.Fatal("became ready")
					}
				}
				if s.last(t, "slow").Phase != v1.PodRunning {
					t.Errorf("is %s", s.last(t, "slow").Phase)
				}
				if told := events(journal, "slow"); !strings.Contains(told, "Unhealthy: Readiness probe failed: command timed out: ") {
					t.Errorf("told %s", told)
				}
			})
		})
	}
}

// events are those of a pod, as a person reads them.
func events(j *observe.Journal, name string) string {
	var lines []string
	for _, e := range j.Timeline(name) {
		lines = append(lines, e.Reason+": "+e.Message)
	}
	return strings.Join(lines, "\n")
}

// A restarted agent says of no pod that it is ready or not before it has asked.
func TestCase_c033_an_agents_restart_changes_no_readiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, root := newServer(), t.TempDir()
		e, cmds := withCommands("no")
		pods := func() []*v1.Pod {
			return []*v1.Pod{
				with(pod("well"), func(c *v1.Container) { c.ReadinessProbe = command("yes", 30) }),
				with(pod("ill"), func(c *v1.Container) { c.ReadinessProbe = command("no", 30) }),
			}
		}
		stop := begin(t, s, e, root)
		s.wants(pods()...)
		time.Sleep(time.Hour)
		stop()
		well, ill := s.last(t, "well"), s.last(t, "ill")
		if ready(well).Status != v1.ConditionTrue || ready(ill).Status != v1.ConditionFalse {
			t.Fatalf("before: %v, %v", ready(well), ready(ill))
		}
		told, ran := [2]int{len(s.of("well")), len(s.of("ill"))}, cmds.count("yes")
		time.Sleep(time.Minute)

		stop = begin(t, s, e, root)
		defer stop()
		s.wants(pods()...)
		time.Sleep(11 * time.Second)
		if cmds.count("yes") == ran {
			t.Error("not asked within eleven seconds")
		}
		time.Sleep(49 * time.Second)
		for _, status := range append(s.of("well")[told[0]:], s.last(t, "well")) {
			if c := ready(status); c.Status != v1.ConditionTrue || c.LastTransitionTime != ready(well).LastTransitionTime {
				t.Errorf("of the ready pod was told %+v", c)
			}
		}
		for _, status := range append(s.of("ill")[told[1]:], s.last(t, "ill")) {
			if c := ready(status); c.Status != v1.ConditionFalse || c.LastTransitionTime != ready(ill).LastTransitionTime {
				t.Errorf("of the other one was told %+v", c)
			}
		}
		cmds.fail("yes", true)
		cmds.fail("no", false)
		time.Sleep(31 * time.Second)
		if ready(s.last(t, "well")).Status != v1.ConditionFalse || ready(s.last(t, "ill")).Status != v1.ConditionTrue {
			t.Error("the next check does not decide")
		}
	})
}

// A pod that was starting when the agent was restarted is still starting.
func TestCase_c034_a_start_goes_on_over_an_agents_restart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, root := newServer(), t.TempDir()
		e, cmds := withCommands("started")
		slow := func() *v1.Pod {
			return with(pod("slow"), func(c *v1.Container) {
				c.StartupProbe = command("started", 2, func(p *v1.Probe) { p.FailureThreshold = 600 })
				c.LivenessProbe = command("live", 1)
			})
		}
		stop := begin(t, s, e, root)
		s.wants(slow())
		time.Sleep(10 * time.Second)
		stop()

		stop = begin(t, s, e, root)
		defer stop()
		s.wants(slow())
		time.Sleep(5 * time.Minute)
		for _, status := range s.of("slow") {
			for _, c := range status.ContainerStatuses {
				if ready(status).Status == v1.ConditionTrue || c.Ready || c.Started != nil && *c.Started {
					t.Fatalf("told %+v", c)
				}
			}
		}
		if n := cmds.count("live"); n > 0 {
			t.Errorf("asked %d times whether it lives", n)
		}
		cmds.fail("started", false)
		time.Sleep(3 * time.Second)
		if c := s.last(t, "slow"); ready(c).Status != v1.ConditionTrue || !*c.ContainerStatuses[0].Started || cmds.count("live") == 0 {
			t.Errorf("after its start: %+v, asked %d times whether it lives", c.ContainerStatuses[0], cmds.count("live"))
		}
	})
}

// A startup probe that passed is not repeated for the same container.
func TestCase_c035_what_has_started_is_not_asked_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, root := newServer(), t.TempDir()
		e, cmds := withCommands()
		once := func() *v1.Pod {
			return with(pod("once"), func(c *v1.Container) { c.StartupProbe = command("once", 5) })
		}
		stop := begin(t, s, e, root)
		s.wants(once())
		time.Sleep(time.Minute)
		cmds.fail("once", true)
		stop()
		before, told := e.Newest("once", "c"), len(s.of("once"))

		stop = begin(t, s, e, root)
		defer stop()
		s.wants(once())
		time.Sleep(10 * time.Minute)
		if n := cmds.count("once"); n != 1 || e.Newest("once", "c") != before {
			t.Errorf("asked %d times; container %s, was %s", n, e.Newest("once", "c"), before)
		}
		for _, status := range append(s.of("once")[told:], s.last(t, "once")) {
			if c := status.ContainerStatuses[0]; !c.Ready || c.Started == nil || !*c.Started {
				t.Errorf("told %+v", c)
			}
		}
	})
}

// lines counts what is logged.
type lines struct {
	slog.Handler
	n *atomic.Int64
}

func (l lines) Enabled(context.Context, slog.Level) bool      { return true }
func (l lines) Handle(_ context.Context, r slog.Record) error { l.n.Add(1); return nil }

// An agent that is up before its runtime waits for it, says why, and needs no restart.
func TestCase_c046_a_runtime_that_comes_late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begun := newServer(), time.Now()
		e, _ := withCommands()
		e.Inject("", func(ctx context.Context, c runtimetest.Call) error {
			switch age := time.Since(begun); {
			case age < 20*time.Second:
				return errors.New("no such socket")
			case age < 30*time.Second && c.Method == "ListSandboxes":
				time.Sleep(30*time.Second - age)
			}
			return nil
		})
		var logged atomic.Int64
		var health map[string]func() error
		cfg := Config{
			Sources: map[string]syncloop.PodSource{"api": s}, Sink: s, Root: t.TempDir(), Engine: e, Notifier: e,
			Observe: observe.To{Log: slog.New(lines{slog.DiscardHandler, &logged})},
		}
		a, stop := start(t, cfg)
		defer stop()
		health = a.Health()
		s.wants(pod("web"))
		time.Sleep(19 * time.Second)
		if err := health["pleg"](); err == nil || !strings.Contains(err.Error(), "have not been listed yet: ") || !strings.Contains(err.Error(), "no such socket") {
			t.Errorf("before there is a runtime: %v", err)
		}
		if synctest.Wait(); logged.Load() > 60 {
			t.Errorf("%d lines in 19 seconds", logged.Load())
		}
		time.Sleep(14 * time.Second)
		if got := s.last(t, "web"); got.Phase != v1.PodRunning {
			t.Errorf("the pod is %s", got.Phase)
		}
		for name, healthy := range health {
			if err := healthy(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// deafTo is an event stream on which nothing ever comes.
type deafTo struct{}

func (deafTo) Events(ctx context.Context, _ func(runtime.Event)) error {
	<-ctx.Done()
	return nil
}

// A container that vanishes without an event is missed, and a deadline needs no events.
func TestCase_c047_lost_events_lose_no_pod(t *testing.T) {
	for name, c := range map[string]struct {
		notifier runtime.Notifier
		within   time.Duration // the period of relists
	}{
		"relists alone":               {nil, 2 * time.Second},
		"a stream that tells nothing": {deafTo{}, 62 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				e, _ := withCommands()
				defer begin(t, s, e, t.TempDir(), func(cfg *Config) { cfg.Notifier = c.notifier })()
				job := pod("job")
				job.Spec.RestartPolicy, job.Spec.ActiveDeadlineSeconds = v1.RestartPolicyOnFailure, new(int64(120))
				s.wants(job)
				time.Sleep(15 * time.Second)
				first := e.Newest("job", "c")
				if err := e.RemoveContainer(t.Context(), first); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.within)
				if again := e.Newest("job", "c"); again == "" || again == first {
					t.Errorf("not started again within %v", c.within)
				}
				time.Sleep(121*time.Second - 15*time.Second - c.within)
				if got := s.last(t, "job"); got.Phase != v1.PodFailed || got.Reason != "DeadlineExceeded" {
					t.Errorf("after its deadline: %s %s", got.Phase, got.Reason)
				}
			})
		})
	}
}

// One pod for which the runtime hangs holds up nobody else.
func TestCase_c048_a_sandbox_that_hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, journal := newServer(), new(observe.Journal)
		e, _ := withCommands()
		sandboxed := func(c runtimetest.Call) bool { return c.Pod.Name == "sandboxed" }
		slow := func(ctx context.Context, c runtimetest.Call) error {
			if err := runtimetest.Delay(2*time.Minute)(ctx, c); err != nil {
				return err
			}
			return errors.New("no answer from the handler")
		}
		e.Inject("RunSandbox", runtimetest.Only(sandboxed, slow))
		e.Inject("Sandbox", runtimetest.Only(sandboxed, slow))
		a, stop := start(t, Config{
			Sources: map[string]syncloop.PodSource{"api": s}, Sink: s, Root: t.TempDir(), Engine: e, Notifier: e, Observe: observe.To{Events: journal},
		})
		defer stop()
		all := []*v1.Pod{pod("sandboxed")}
		for i := range 20 {
			all = append(all, pod(fmt.Sprint("p", i)))
		}
		s.wants(all...)
		time.Sleep(5 * time.Second)
		for _, p := range all[1:] {
			if got := s.last(t, p.Name); got.Phase != v1.PodRunning {
				t.Errorf("%s is %s", p.Name, got.Phase)
			}
		}
		s.wants(all[0])
		for range 20 { // minutes
			time.Sleep(time.Minute)
			for name, healthy := range a.Health() {
				if err := healthy(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		if _, containers := e.Truth(); len(containers) > 0 {
			t.Errorf("%d containers still run", len(containers))
		}
		if told := events(journal, "sandboxed"); !strings.Contains(told, "FailedCreatePodSandBox: ") {
			t.Errorf("told %s", told)
		}
	})
}
