package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// probed has agents ask check how containers are.
func probed(check func(manager.Target) (probe.Result, error)) func(context.Context, *sync.WaitGroup, *syncloop.Config) {
	return func(ctx context.Context, wg *sync.WaitGroup, cfg *syncloop.Config) {
		m, err := manager.New(manager.Config{Changed: cfg.Roster.Wake, Check: func(_ context.Context, t manager.Target, _ *v1.Probe) (probe.Result, string, error) {
			result, err := check(t)
			return result, "", err
		}})
		if err != nil {
			panic(err)
		}
		cfg.Probes = m
		wg.Go(func() { _ = m.Run(ctx) })
	}
}

// startup gives the init containers of those names a startup probe.
func startup(p *v1.Pod, names ...string) {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; slices.Contains(names, c.Name) {
			c.StartupProbe = &v1.Probe{PeriodSeconds: 1, FailureThreshold: 2, SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}
		}
	}
}

// put has the server want a pod.
func (n *node) put(name string, words string, change func(*v1.Pod)) *v1.Pod {
	p := n.pod(name, strings.Fields(words+" source=api"))
	if change != nil {
		change(p)
	}
	n.pods[name] = p
	n.api.put(p)
	synctest.Wait()
	return p
}

// container is what the newest instance of that name is, nil when there is none.
func (n *node) container(p *v1.Pod, name string) *runtime.Container {
	id := n.engine.Newest(p.UID, name)
	_, all := n.engine.Truth()
	if i := slices.IndexFunc(all, func(c runtime.Container) bool { return c.ID == id }); i >= 0 {
		return &all[i]
	}
	return nil
}

// shows is the status the server has of a container.
func (n *node) shows(pod, name string) v1.ContainerStatus {
	p := n.api.get(pod)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.Name == name {
			return s
		}
	}
	return v1.ContainerStatus{}
}

func TestCase_c001_an_init_container_that_was_removed_does_not_run_again(t *testing.T) {
	onNode(t, nil, func(n *node) {
		p := n.put("web", "init:init=exit_0 app=sleep_100000", nil)
		time.Sleep(time.Second)
		app, made := n.container(p, "app").ID, n.engine.Calls("CreateContainer")
		if err := n.engine.RemoveContainer(t.Context(), n.container(p, "init").ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // some resyncs
		synctest.Wait()
		initialized := slices.ContainsFunc(n.api.get("web").Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodInitialized && c.Status == v1.ConditionTrue
		})
		if n.engine.Calls("CreateContainer") != made || n.container(p, "app").ID != app || n.api.phaseOf("web") != "Running " || !initialized {
			t.Errorf("%d containers were made, then %d; the pod is %s, initialized %v", made, n.engine.Calls("CreateContainer"), n.api.phaseOf("web"), initialized)
		}
	})
}

// kubernetes/kubernetes#51142: somebody removes records of what has ended while the pod still runs.
func TestWhatHasEndedForGoodDoesNotRunAgainWhenItsRecordIsRemoved(t *testing.T) {
	for _, tt := range []struct {
		pod   string
		again bool
	}{
		{"policy=Never", false},
		{"policy=OnFailure", false},
		{"policy=Always", true},
	} {
		onNode(t, nil, func(n *node) {
			p := n.put("web", tt.pod+" done=exit_0 app=sleep_600", nil)
			time.Sleep(time.Second)
			n.do("halt") // another agent knows no more than its server
			_, all := n.engine.Truth()
			for _, c := range all {
				if c.Name == "done" {
					if err := n.engine.RemoveContainer(t.Context(), c.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
			n.do("start")
			time.Sleep(5 * time.Minute)
			if again := n.container(p, "done") != nil; again != tt.again {
				t.Errorf("%s: it runs again: %v, want %v", tt.pod, again, tt.again)
			}
			if end := n.shows("web", "done").State.Terminated; !tt.again && (end == nil || end.ExitCode != 0) {
				t.Errorf("%s: the server is told %+v", tt.pod, n.shows("web", "done"))
			}
			time.Sleep(11 * time.Minute)
			if want := map[bool]string{true: "Running ", false: "Succeeded "}[tt.again]; n.api.phaseOf("web") != want {
				t.Errorf("%s: in the end the pod is %s", tt.pod, n.api.phaseOf("web"))
			}
		})
	}
}

// The same of a pod from a file, whose source shows no status.
func TestWhatHasEndedForGoodInAPodFromAFileDoesNotRunAgain(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("add web policy=OnFailure done=exit_0 app=sleep_600")
		p := n.pods["web"]
		time.Sleep(time.Second)
		if err := n.engine.RemoveContainer(t.Context(), n.container(p, "done").ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if c := n.container(p, "done"); c != nil {
			t.Errorf("it runs again: %+v", c)
		}
		time.Sleep(11 * time.Minute)
		if got := n.roster.Pods()[0].Status; got.Phase != v1.PodSucceeded {
			t.Errorf("in the end the pod is %s, %+v", got.Phase, got.ContainerStatuses)
		}
	})
}

// KEP-5532: a pod that has all of itself restarted, again and again, waits as a container does that restarts alone.
func TestAPodThatKeepsRestartingAllOfItselfBacksOff(t *testing.T) {
	onNode(t, nil, func(n *node) {
		p := n.put("web", "policy=Never a=exit_88 b=sleep_1000", func(p *v1.Pod) {
			p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
			p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
			}}
		})
		var begun []int
		seen := map[string]bool{}
		for second := range 80 {
			if c := n.container(p, "a"); c != nil && !seen[c.ID] {
				seen[c.ID] = true
				begun = append(begun, second)
			}
			time.Sleep(time.Second)
		}
		want := []int{0, 2, 14, 36, 78} // 0, 10, 20 and 40 s, and two in which b ends
		if !slices.EqualFunc(begun, want, func(a, b int) bool { return a == b || a == b+1 }) {
			t.Errorf("it began after %v seconds, want %v", begun, want)
		}
		a, b := n.shows("web", "a"), n.shows("web", "b")
		if w := a.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || b.State.Running == nil || a.RestartCount != 4 || b.RestartCount != 4 {
			t.Errorf("the server is told of a %d %+v, of b %d %+v", a.RestartCount, a.State, b.RestartCount, b.State)
		}
	})
}

func TestCase_c003_an_agent_killed_after_a_start_does_not_start_again(t *testing.T) {
	for _, tt := range []struct{ app, want string }{{"sleep_100000", "Running "}, {"exit_0", "Succeeded "}} {
		onNode(t, nil, func(n *node) {
			n.engine.Inject("StartContainer", runtimetest.Delay(time.Second))
			n.put("web", "policy=Never app="+tt.app, nil)
			time.Sleep(time.Second / 2)
			n.do("server away") // so that nothing is told of the start
			time.Sleep(time.Second)
			n.do("halt")
			if st := n.shows("web", "app"); st.State.Running != nil || st.State.Terminated != nil {
				t.Fatalf("told already: %+v", st)
			}
			n.do("server back")
			n.do("start")
			time.Sleep(time.Minute)
			if got := n.api.phaseOf("web"); got != tt.want || n.engine.Calls("CreateContainer") != 1 {
				t.Errorf("%s; %d containers were made", got, n.engine.Calls("CreateContainer"))
			}
		})
	}
}

func TestCase_c005_restart_counts_never_go_back(t *testing.T) {
	onNode(t, nil, func(n *node) {
		p := n.put("web", "app=exit_1", nil)
		last := int32(0)
		for range 360 {
			time.Sleep(time.Second)
			st := n.shows("web", "app")
			if st.RestartCount < last {
				t.Fatalf("the count went from %d to %d", last, st.RestartCount)
			}
			last = st.RestartCount
			newest := n.container(p, "app")
			if st.State.Waiting != nil && (st.State.Waiting.Reason != "CrashLoopBackOff" || st.LastTerminationState.Terminated == nil ||
				!strings.HasSuffix(st.LastTerminationState.Terminated.ContainerID, newest.ID) || int(st.RestartCount) != newest.Restarts) {
				t.Fatalf("while it waits: %+v; newest is number %d", st, newest.Restarts)
			}
			_, all := n.engine.Truth()
			for _, c := range all { // somebody collects what is dead
				if c.ID != newest.ID {
					_ = n.engine.RemoveContainer(t.Context(), c.ID)
				}
			}
		}
		if last < 5 {
			t.Errorf("it restarted %d times", last)
		}
	})
}

func TestCase_c010_a_sidecar_that_failed_once_is_probed_again(t *testing.T) {
	var n *node
	check := func(target manager.Target) (probe.Result, error) {
		if c := n.container(target.Pod, target.Container); target.Container == "a" || c.Restarts > 0 {
			return probe.Success, nil
		}
		return probe.Failure, nil
	}
	onNode(t, probed(check), func(node *node) {
		n = node
		n.engine.Behave = func(c *runtime.ContainerConfig) runtimetest.Behavior {
			if c.Name == "b" && c.Attempt == 0 {
				return runtimetest.Behavior{Exits: true, After: time.Second / 2, Code: 1}
			}
			return runtimetest.Shell(c)
		}
		n.put("web", "policy=Never sidecar:a=sleep_100000 sidecar:b=sleep_100000 main=echo_hi grace=2", func(p *v1.Pod) { startup(p, "a", "b") })
		time.Sleep(time.Minute)
		if got := n.api.phaseOf("web"); got != "Succeeded " || n.shows("web", "main").State.Terminated == nil {
			t.Errorf("%s: %+v", got, n.shows("web", "main").State)
		}
	})
}

func TestCase_c011_a_sidecar_told_as_started_is_started_for_another_agent(t *testing.T) {
	answers := true
	check := func(manager.Target) (probe.Result, error) {
		if answers {
			return probe.Success, nil
		}
		return probe.Unknown, errors.New("nobody answers")
	}
	onNode(t, probed(check), func(n *node) {
		p := n.put("web", "sidecar:log=sleep_100000 app=sleep_100000", func(p *v1.Pod) { startup(p, "log") })
		time.Sleep(20 * time.Second)
		if st := n.shows("web", "log"); st.Started == nil || !*st.Started || n.container(p, "app") == nil {
			t.Fatalf("before: %+v", st)
		}
		n.do("halt")
		answers = false
		n.do("start")
		time.Sleep(5 * time.Second)
		n.do("exit web/app 1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := n.shows("web", "app"); st.State.Running == nil || st.RestartCount != 1 {
			t.Errorf("the container is %+v", st)
		}
	})
}

func TestCase_c013_a_sidecar_that_runs_again_is_told_so(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.put("web", "policy=OnFailure sidecar:log=sleep_100000 app=sleep_60", nil)
		time.Sleep(5 * time.Second)
		n.do("exit web/log 1")
		time.Sleep(5 * time.Second)
		st := n.shows("web", "log")
		if st.State.Running == nil || st.RestartCount != 1 || st.LastTerminationState.Terminated == nil {
			t.Errorf("%+v", st)
		}
	})
}

func TestCase_c014_sidecars_that_never_became_ready_end(t *testing.T) {
	check := func(target manager.Target) (probe.Result, error) {
		if target.Container == "b" {
			return probe.Unknown, errors.New("nobody answers")
		}
		return probe.Success, nil
	}
	onNode(t, probed(check), func(n *node) {
		n.put("web", "sidecar:a=trap_'exit_0'_TERM;_sleep_100000 sidecar:b=trap_'exit_0'_TERM;_sleep_100000 sidecar:c=sleep_100000 main=sleep_100000", func(p *v1.Pod) { startup(p, "a", "b", "c") })
		time.Sleep(20 * time.Second)
		n.take()
		n.do("delete web grace=10")
		time.Sleep(12 * time.Second)
		synctest.Wait()
		acts := strings.Join(n.take(), "\n")
		if got := n.api.phaseOf("web"); got != "gone" || strings.Index(acts, "stop b") > strings.Index(acts, "stop a") || strings.Contains(acts, "stop c") {
			t.Errorf("%s\n%s", got, acts)
		}
	})
}

func TestCase_c015_a_pod_that_is_done_gets_no_other_sandbox(t *testing.T) {
	for _, words := range []string{"policy=OnFailure app=exit_0", "policy=Never app=exit_1"} {
		onNode(t, nil, func(n *node) {
			n.put("web", words, nil)
			time.Sleep(5 * time.Minute)
			if got := n.api.phaseOf("web"); n.engine.Calls("RunSandbox") != 1 || got == "Running " || got == "Pending " {
				t.Errorf("%s: %s with %d sandboxes made", words, got, n.engine.Calls("RunSandbox"))
			}
		})
	}
}

func TestCase_c016_what_ran_before_a_sandbox_ended_is_stopped_first(t *testing.T) {
	onNode(t, nil, func(n *node) {
		p := n.put("web", "app=trap_'exit_0'_TERM;_sleep_100000", nil)
		sandboxes, _ := n.engine.Truth()
		ready := func(yes bool) {
			if err := n.engine.EditSandbox(sandboxes[0].ID, func(s *runtime.Sandbox) { s.Ready = yes }); err != nil {
				t.Fatal(err)
			}
		}
		n.engine.Inject("RunSandbox", runtimetest.Delay(time.Second))
		ready(false) // what runs in it runs on
		time.Sleep(time.Millisecond)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			_, all := n.engine.Truth()
			running := 0
			for _, c := range all {
				if c.State == runtime.Running {
					running++
				}
			}
			if running > 1 {
				t.Fatalf("%d run", running)
			}
		}
		if c := n.container(p, "app"); c.State != runtime.Running || c.Restarts != 1 || c.SandboxID == sandboxes[0].ID {
			t.Errorf("%+v", c)
		}
	})
}

func TestCase_c154_a_network_that_comes_late_is_waited_for(t *testing.T) {
	onNode(t, nil, func(n *node) {
		p := n.put("web", "app=sleep_100000", nil)
		n.do("halt")
		n.engine.Reboot()
		n.engine.Inject("RunSandbox", runtimetest.Fail(errors.New("cni: no configuration found")))
		n.do("start")
		time.Sleep(time.Minute)
		if n.engine.Calls("RunSandbox") < 4 {
			t.Errorf("asked %d times in a minute", n.engine.Calls("RunSandbox"))
		}
		n.engine.Inject("RunSandbox", nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		sandboxes, _ := n.engine.Truth()
		newest := slices.MaxFunc(sandboxes, func(a, b runtime.Sandbox) int { return int(a.Attempt) - int(b.Attempt) })
		if c := n.container(p, "app"); c.State != runtime.Running || c.SandboxID != newest.ID || newest.Attempt == 0 {
			t.Errorf("%+v in one of %+v", c, sandboxes)
		}
	})
}

// lateSandbox is an engine's way to make sandboxes: the first one is done a minute after everybody stopped waiting, and until then
// its name is taken. With never it is never done.
func lateSandbox(n *node, never bool) {
	type own struct{}
	var begun, done atomic.Bool
	n.engine.Inject("RunSandbox", func(ctx context.Context, c runtimetest.Call) error {
		switch {
		case ctx.Value(own{}) != nil || done.Load():
			return nil
		case begun.Swap(true):
			return fmt.Errorf("name %s is reserved", c.Pod.Name)
		}
		time.Sleep(4 * time.Minute)
		n.killers.Go(func() {
			if time.Sleep(time.Minute); !never {
				done.Store(true)
				_, _ = n.engine.RunSandbox(context.WithValue(context.WithoutCancel(ctx), own{}, 1), &runtime.SandboxConfig{Pod: c.Pod})
			}
		})
		return fmt.Errorf("run sandbox: %w", context.DeadlineExceeded)
	})
}

func TestCase_c155_a_sandbox_that_is_done_late_is_found(t *testing.T) {
	onNode(t, nil, func(n *node) {
		lateSandbox(n, false)
		p := n.put("web", "app=sleep_100000", nil)
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		sandboxes, _ := n.engine.Truth()
		if c := n.container(p, "app"); c == nil || c.State != runtime.Running || len(sandboxes) != 1 {
			t.Errorf("%+v in one of %+v", c, sandboxes)
		}
		if calls := n.engine.Calls("RunSandbox"); calls > 15 {
			t.Errorf("asked %d times", calls)
		}
		if why := n.told("FailedCreatePodSandBox"); !strings.Contains(why, "deadline exceeded") || !strings.Contains(why, "is reserved") {
			t.Errorf("people are told %q", why)
		}
		n.killers.Wait()
	})
}

func TestCase_c155_a_sandbox_that_is_never_done_keeps_no_pod_from_its_end(t *testing.T) {
	onNode(t, nil, func(n *node) {
		lateSandbox(n, true)
		n.put("web", "app=sleep_100000", nil)
		time.Sleep(20 * time.Minute)
		if calls := n.engine.Calls("RunSandbox"); calls < 20 || calls > 120 {
			t.Errorf("asked %d times in 20 minutes", calls)
		}
		n.do("delete web grace=5")
		time.Sleep(10 * time.Second)
		if got := n.api.phaseOf("web"); got != "gone" {
			t.Error(got)
		}
		n.killers.Wait()
	})
}

// Dashboards of kubelets show how long pods take to start.
func TestHowLongAPodTookToStartIsCountedOnce(t *testing.T) {
	counts := &tally{counts: map[string]float64{}}
	took := func() float64 {
		counts.mu.Lock()
		defer counts.mu.Unlock()
		return counts.counts["kubelet_pod_start_duration_seconds"]
	}
	onNode(t, fits("10", func(cfg *syncloop.Config) { cfg.Observe.Metrics = counts }), func(n *node) {
		n.do("add web init:first=sleep_7 app=sleep_100000 source=api")
		time.Sleep(6 * time.Second)
		if got := took(); got != 0 {
			t.Errorf("%v before it runs", got)
		}
		time.Sleep(4 * time.Second)
		first := took()
		if first < 7 || first > 9 {
			t.Errorf("%v, want the time of its init container", first)
		}
		n.do("exit web/app code=1") // it runs again, and was started once
		time.Sleep(time.Minute)
		n.do("restart")
		time.Sleep(time.Minute)
		if got := took(); got != first {
			t.Errorf("%v in the end, %v once", got, first)
		}
	})
}
