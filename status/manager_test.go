package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnlyTheNewestIsSent(t *testing.T) {
	s := &sink{delay: time.Second}
	bubble(t, Config{Sink: s}, func(b rig) {
		b.update("a", "1")
		synctest.Wait() // 1 is under way
		for _, message := range []string{"2", "3", "4"} {
			b.update("a", message)
		}
		time.Sleep(3 * time.Second)
		b.want(s, "a 1, a 4")
	})
}

func TestEqualStatusesAreSentOnce(t *testing.T) {
	s := &sink{}
	bubble(t, Config{Sink: s}, func(b rig) {
		p, st := named("a"), says("1")
		st.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: stamp(now), ObservedGeneration: 1}, {Type: "x"}}
		again := *st.DeepCopy()
		slices.Reverse(again.Conditions)
		again.Conditions[1].LastTransitionTime = stamp(now.Add(time.Hour))
		again.Conditions[1].ObservedGeneration = 2
		again.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "not ours"}}
		again.PodIPs = []v1.PodIP{}
		for _, st := range []v1.PodStatus{st, again} {
			b.tell(p, st)
			synctest.Wait()
		}
		b.want(s, "a 1")

		for _, change := range []func(*v1.PodStatus){
			func(s *v1.PodStatus) { s.Conditions[0].Status = v1.ConditionFalse },
			func(s *v1.PodStatus) { s.Conditions[0].Reason = "r" },
			func(s *v1.PodStatus) { s.Conditions[0].Message = "m" },
			func(s *v1.PodStatus) { s.Conditions = s.Conditions[:1] },
			func(s *v1.PodStatus) { s.ObservedGeneration = 9 },
			func(s *v1.PodStatus) { s.StartTime = new(stamp(now)) },
		} {
			st = *st.DeepCopy()
			change(&st)
			before := s.told()
			b.tell(p, st)
			b.want(s, before+", a 1")
		}
	})
}

func TestBackToWhatWasSentIsNothingToSend(t *testing.T) {
	s := &sink{delay: time.Second}
	bubble(t, Config{Sink: s, Parallel: 1}, func(b rig) {
		b.update("a", "1")
		time.Sleep(2 * time.Second)
		b.update("b", "1") // takes the one worker
		synctest.Wait()
		b.update("a", "2")
		b.update("a", "1")
		time.Sleep(5 * time.Second)
		b.want(s, "a 1, b 1")
	})
}

func TestPodsGoSideBySideWithinBounds(t *testing.T) {
	s := &sink{delay: time.Second}
	bubble(t, Config{Sink: s}, func(b rig) {
		for i := range 12 {
			b.update(fmt.Sprint(i), "1")
		}
		time.Sleep(3*time.Second + time.Millisecond)
		if n := s.attempts(); n != 12 || s.most != 4 {
			t.Errorf("%d calls in three seconds, %d at once", n, s.most)
		}
	})
}

func TestC186NoPodWaitsBehindTheChangesOfAnother(t *testing.T) {
	s := &sink{delay: time.Second}
	bubble(t, Config{Sink: s, Parallel: 1}, func(b rig) {
		b.update("busy", "0")
		synctest.Wait()
		b.update("other", "1")
		for i := range 30 {
			b.update("busy", fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if got := s.told(); !strings.HasPrefix(got, "busy 0, other 1, busy ") {
			t.Errorf("order: %s", got)
		}
		if _, n := b.held(); n > 2 {
			t.Errorf("%d queued for two pods", n)
		}
	})
}

func TestC086FailuresAreTriedAgainWithTheNewest(t *testing.T) {
	away := errors.New("no route to host")
	s := &sink{}
	s.failing(away)
	var log bytes.Buffer
	bubble(t, Config{Sink: s, Observe: observe.To{Log: slog.New(slog.NewTextHandler(&log, nil))}}, func(b rig) {
		b.update("a", "1")
		time.Sleep(time.Minute)
		// At 0, 0.5, 1.5, 3.5, 7.5 s and then every four seconds.
		if n := s.attempts(); n != 18 {
			t.Errorf("tried %d times in a minute", n)
		}
		b.update("a", "2")
		s.failing(nil)
		time.Sleep(10 * time.Second)
		b.want(s, "a 2")

		s.failing(away)
		before := s.attempts()
		b.update("a", "3")
		time.Sleep(400 * time.Millisecond)
		s.failing(nil)
		time.Sleep(100 * time.Millisecond)
		b.want(s, "a 2, a 3") // after a success the waits are short again
		if n := s.attempts() - before; n != 2 {
			t.Errorf("tried %d times", n)
		}
	})
	if !strings.Contains(log.String(), "no route to host") {
		t.Errorf("log: %s", log.String())
	}
}

func TestAFailedCallMayHaveArrived(t *testing.T) {
	s := &sink{}
	bubble(t, Config{Sink: s}, func(b rig) {
		b.update("a", "1")
		synctest.Wait()
		s.failing(context.DeadlineExceeded)
		b.update("a", "2")
		synctest.Wait()
		s.failing(nil)
		b.update("a", "1") // equal to what was delivered, but the sink may have 2
		time.Sleep(time.Second)
		b.want(s, "a 1, a 1")
	})
}

func TestFinishedComesLastAndOnce(t *testing.T) {
	failures := 3
	s := &sink{delay: time.Second, fail: func(string) error {
		if failures--; failures >= 0 {
			return errors.New("busy")
		}
		return nil
	}}
	bubble(t, Config{Sink: s}, func(b rig) {
		b.update("a", "1")
		synctest.Wait()
		b.update("a", "2")
		b.finish("a")
		b.finish("a")
		b.update("a", "late")
		time.Sleep(time.Minute)
		b.want(s, "a 2, a finished")
		if n, _ := b.held(); n != 0 {
			t.Error("the pod is still remembered")
		}

		b.update("a", "next life")
		time.Sleep(time.Minute)
		b.want(s, "a 2, a finished, a next life")
	})
}

// Field report virtual-kubelet/virtual-kubelet#938: a status that was malformed, and that no server took, kept a deleted pod for ever.
func TestAStatusThatIsRefusedKeepsNoObject(t *testing.T) {
	s := &sink{fail: func(call string) error {
		if strings.Contains(call, "malformed") {
			return fmt.Errorf("no such thing: %w", ErrRefused)
		}
		return nil
	}}
	bubble(t, Config{Sink: s}, func(b rig) {
		b.tell(named("stays"), says("malformed"))
		b.tell(with(named("goes"), deleted), says("malformed"))
		time.Sleep(time.Minute)
		if n, _ := b.held(); n != 2 || s.attempts() < 20 {
			t.Errorf("asked %d times, %d pods remembered: neither has finished, both are to be asked for again", s.attempts(), n)
		}
		for _, p := range []*v1.Pod{named("stays"), with(named("goes"), deleted)} {
			if err := b.m.Finished(t.Context(), p); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		b.want(s, "goes finished")
		if n, _ := b.held(); n != 1 {
			t.Errorf("%d pods remembered, want the one whose object stays", n)
		}
	})
}

func TestFinishedWithoutAStatus(t *testing.T) {
	s := &sink{}
	bubble(t, Config{Sink: s}, func(b rig) {
		b.finish("a")
		b.want(s, "a finished")
	})
}

func TestC074APodThatIsGoneIsForgotten(t *testing.T) {
	s := &sink{delay: time.Second}
	s.failing(fmt.Errorf("pod a: %w", runtime.ErrNotFound))
	bubble(t, Config{Sink: s}, func(b rig) {
		b.update("a", "1")
		time.Sleep(time.Minute)
		if n, _ := b.held(); n != 0 || s.attempts() != 1 {
			t.Errorf("tried %d times, %d pods remembered", s.attempts(), n)
		}
		b.update("a", "2")
		b.finish("a")
		time.Sleep(time.Minute)
		if n, _ := b.held(); n != 0 || s.attempts() != 3 {
			t.Errorf("tried %d times, %d pods remembered", s.attempts(), n)
		}
		b.update("a", "3")
		synctest.Wait()
		b.update("a", "4") // comes before 3 is answered
		time.Sleep(time.Second)
		synctest.Wait()
		s.failing(nil)
		time.Sleep(time.Second)
		b.want(s, "a 4")
	})
}

func TestAgainSendsWhatTheSinkHasAlready(t *testing.T) {
	s := &sink{}
	bubble(t, Config{Sink: s}, func(b rig) {
		b.m.Again("a") // nobody knows it
		b.update("a", "1")
		synctest.Wait()
		b.m.Again("a")
		synctest.Wait()
		b.want(s, "a 1, a 1")
	})
}

func TestC078WhatSomebodyElseWroteIsWrittenOver(t *testing.T) {
	s := &sink{}
	bubble(t, Config{Sink: s}, func(b rig) {
		p, st := named("a"), says("1")
		tell := func() { b.tell(p, st) }
		st.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		tell()
		time.Sleep(time.Minute)
		tell() // the source shows nothing: no opinion
		b.want(s, "a 1")

		p = named("a")
		p.Status = *st.DeepCopy()
		tell()
		b.want(s, "a 1")

		p = named("a")
		p.Status = *st.DeepCopy()
		p.Status.Conditions[0] = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "NodeNotReady"}
		tell()
		b.want(s, "a 1, a 1")
		tell() // the source lags behind: not at once again
		b.want(s, "a 1, a 1")
		time.Sleep(10 * time.Second)
		tell()
		b.want(s, "a 1, a 1, a 1")

		s.mu.Lock()
		s.delay = time.Second
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		st = says("2")
		tell()
		synctest.Wait()
		tell() // while it is on its way the source cannot show it yet
		time.Sleep(5 * time.Second)
		b.want(s, "a 1, a 1, a 1, a 2")
	})
}

func TestWhatCannotBeTrueIsRefused(t *testing.T) {
	ended := func(code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
	}
	for _, tt := range []struct {
		rule string
		pod  *v1.Pod
		name string
		code int32
		ok   bool
	}{
		{"Always restarts", pod(always, "app"), "app", 0, true},
		{"OnFailure restarts what failed", pod(onFailure, "app"), "app", 1, true},
		{"OnFailure does not restart what succeeded", pod(onFailure, "app"), "app", 0, false},
		{"Never restarts nothing", pod(never, "app"), "app", 1, false},
		{"nor an init container", pod(never, "i-a", "app"), "i-a", 1, false},
		{"but one that did its work, which it does once more in a new sandbox", pod(onFailure, "i-a", "app"), "i-a", 0, true},
		{"and a sidecar", pod(never, "s-a", "app"), "s-a", 1, true},
		{"a container with a policy of its own", with(pod(never, "app"), on("app", ownPolicy(v1.ContainerRestartPolicyAlways))), "app", 0, true},
		{"a rule that matches", with(pod(never, "app"), on("app", rule(v1.ContainerRestartRuleActionRestart, 7))), "app", 7, true},
		{"a rule that does not match", with(pod(never, "app"), on("app", rule(v1.ContainerRestartRuleActionRestart, 7))), "app", 8, false},
		{"any container where a rule restarts all", with(pod(never, "app", "log"), on("log", rule(v1.ContainerRestartRuleActionRestartAllContainers, 7))), "app", 0, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			list := func(state v1.ContainerState) (s v1.PodStatus) {
				cs := []v1.ContainerStatus{{Name: tt.name, State: state}}
				if s.ContainerStatuses = cs; strings.Contains(tt.name, "-") {
					s.ContainerStatuses, s.InitContainerStatuses = nil, cs
				}
				return s
			}
			m, err := New(Config{Sink: &sink{}})
			if err != nil {
				t.Fatal(err)
			}
			steps := []struct {
				state v1.ContainerState
				ok    bool
			}{
				{v1.ContainerState{Running: &v1.ContainerStateRunning{}}, true},
				{ended(tt.code), true},
				{v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}, tt.ok},
				{ended(tt.code), true},
			}
			for i, step := range steps {
				if err := m.UpdateStatus(t.Context(), tt.pod, list(step.state)); (err == nil) != step.ok {
					t.Errorf("step %d: %v", i, err)
				}
			}
			shown := tt.pod.DeepCopy()
			shown.UID, shown.Status = "u2", list(ended(tt.code))
			if err := m.UpdateStatus(t.Context(), shown, list(v1.ContainerState{})); (err == nil) != tt.ok {
				t.Errorf("against what the source shows: %v", err)
			}
			if tt.ok == (m.pods["u2"] == nil) {
				t.Error("a refused status is remembered, or another is not")
			}
		})
	}
}

func TestTheStopDeliversWhatIsQueued(t *testing.T) {
	s := &sink{delay: time.Second}
	s.failing(errors.New("down"))
	synctest.Test(t, func(t *testing.T) {
		b := newRig(t, Config{Sink: s, Parallel: 2})
		b.update("a", "1") // before Run
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.m.Run(ctx) }()
		time.Sleep(1100 * time.Millisecond) // a waits for its second attempt
		s.failing(nil)
		for _, uid := range []string{"b", "c", "d", "e"} {
			b.update(uid, "1")
		}
		b.finish("b")
		cancel()
		start := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		got := strings.Split(s.told(), ", ")
		slices.Sort(got)
		if g := strings.Join(got, ", "); g != "a 1, b 1, b finished, c 1, d 1, e 1" {
			t.Errorf("told: %s", g)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("six calls, two at once, took %s", took)
		}
	})
}

// Field report kubernetes/kubernetes#110755: a machine went down before it had told that its pods had ended.
func TestFlushWaitsUntilTheSinkHasAll(t *testing.T) {
	for rule, c := range map[string]struct {
		delay time.Duration // of a call
		fail  error
		wait  time.Duration
		took  time.Duration
		ok    bool
	}{
		"for what is queued and under way":              {time.Second, nil, time.Minute, 3 * time.Second, true},
		"for one more attempt while the server is away": {0, errors.New("refused"), time.Minute, 0, false},
		"no longer than it may":                         {time.Hour, nil, 5 * time.Second, 5 * time.Second, false},
	} {
		t.Run(rule, func(t *testing.T) {
			s := &sink{delay: c.delay}
			s.failing(c.fail)
			bubble(t, Config{Sink: s, Parallel: 2, StopWithin: time.Nanosecond}, func(b rig) {
				for _, uid := range []string{"a", "b", "c", "d", "e"} {
					b.update(uid, "1")
				}
				b.finish("a")
				synctest.Wait() // those that are refused rest
				tried, begun := s.attempts(), time.Now()
				ctx, cancel := context.WithTimeout(b.Context(), c.wait)
				defer cancel()
				err := b.m.Flush(ctx)
				if took := time.Since(begun); (err == nil) != c.ok || took != c.took {
					b.Errorf("took %v: %v", took, err)
				}
				if c.fail != nil && s.attempts() != 2*tried {
					b.Errorf("%d attempts after %d", s.attempts(), tried)
				}
				if c.ok && strings.Count(s.told(), ", ") != 5 {
					b.Error("told:", s.told())
				}
			})
		})
	}
	t.Run("for nothing where there is nothing", func(t *testing.T) {
		bubble(t, Config{Sink: &sink{}}, func(b rig) {
			for range 2 {
				if err := b.m.Flush(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

func TestTheStopHasADeadlineAndTheNextRunGoesOn(t *testing.T) {
	s := &sink{delay: time.Hour}
	synctest.Test(t, func(t *testing.T) {
		b := newRig(t, Config{Sink: s})
		for i := range 6 {
			b.update(fmt.Sprint(i), "1")
		}
		b.finish("0")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.m.Run(ctx) }()
		synctest.Wait()
		cancel()
		start := time.Now()
		<-done
		if took := time.Since(start); took != 5*time.Second || s.told() != "" {
			t.Errorf("stopped after %s, told %q", took, s.told())
		}

		s.mu.Lock()
		s.delay = 0
		s.mu.Unlock()
		ctx, cancel = context.WithCancel(t.Context())
		go func() { done <- b.m.Run(ctx) }()
		if n := s.attempts() - 4; n != 7 { // four were under way at the deadline
			t.Errorf("the next Run made %d calls", n)
		}
		cancel()
		<-done
	})
}

func TestFinishedThatWasCutIsToldByTheNextRun(t *testing.T) {
	s := &sink{}
	s.failing(errors.New("down"))
	synctest.Test(t, func(t *testing.T) {
		b := newRig(t, Config{Sink: s})
		b.finish("a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.m.Run(ctx); err != nil {
			t.Error(err)
		}
		s.failing(nil)
		if err := b.m.Run(ctx); err != nil {
			t.Error(err)
		}
		b.want(s, "a finished")
	})
}

func TestAFailureAtTheStopIsNotTriedForEver(t *testing.T) {
	s := &sink{fail: func(string) error { return errors.New("down") }}
	synctest.Test(t, func(t *testing.T) {
		b := newRig(t, Config{Sink: s})
		b.update("a", "1")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := b.m.Run(ctx); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a Manager without a Sink")
	}
	if _, err := New(Config{Sink: &sink{}, Observe: observe.To{Metrics: noMetrics{}}}); err == nil {
		t.Error("an error of the metrics was lost")
	}
}

func TestMetrics(t *testing.T) {
	s, c := &sink{delay: time.Second}, &counted{}
	bubble(t, Config{Sink: s, Observe: observe.To{Metrics: c}}, func(b rig) {
		end := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
		st := v1.PodStatus{
			ContainerStatuses:     []v1.ContainerStatus{{Name: "app", State: end}},
			InitContainerStatuses: []v1.ContainerStatus{{Name: "i-a", State: end}},
		}
		for range 2 {
			b.tell(named("a"), st)
			time.Sleep(300 * time.Millisecond)
		}
		st.Message = "changed in the middle"
		b.tell(named("a"), st)
		time.Sleep(500 * time.Millisecond)
		for _, message := range []string{"and again", "changed in the middle"} { // back to what is on its way
			st.Message = message
			b.tell(named("a"), st)
		}
		time.Sleep(5 * time.Second)
		st.Message = "much later"
		b.tell(named("a"), st)
		time.Sleep(5 * time.Second)
	})
	want := []string{
		"terminated_containers_total 1 init_container,1,Error",
		"terminated_containers_total 1 container,1,Error",
		"pod_status_sync_duration_seconds 1 ",
		"pod_status_sync_duration_seconds 1.4 ", // changed while the first was under way
		"pod_status_sync_duration_seconds 1 ",
	}
	if !slices.Equal(c.lines, want) {
		t.Errorf("recorded\n%s", strings.Join(c.lines, "\n"))
	}
}

func TestConfigThatMakesNoSenseIsRefused(t *testing.T) {
	type sink struct{ Sink }
	for name, c := range map[string]Config{
		"nothing":                 {},
		"calls of a negative sum": {Sink: sink{}, Parallel: -1},
		"a negative time to stop": {Sink: sink{}, StopWithin: -time.Second},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
