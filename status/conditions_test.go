package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// conditionLine writes a condition as "status reason: message".
func conditionLine(s v1.PodStatus, t v1.PodConditionType) string {
	c := condition(s.Conditions, t)
	if c == nil {
		return "absent"
	}
	line := string(c.Status)
	if c.Reason != "" {
		line += " " + c.Reason
	}
	if c.Message != "" {
		line += ": " + c.Message
	}
	return line
}

func TestConditions(t *testing.T) {
	const (
		sandbox = v1.PodReadyToStartContainers
		inited  = v1.PodInitialized
		ready   = v1.PodReady
		cready  = v1.ContainersReady
		target  = v1.DisruptionTarget
	)
	app := pod(always, "app")
	up := seen(running("app", 0))
	gated := with(pod(always, "app"), func(p *v1.Pod) {
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a/b"}, {ConditionType: "c/d"}}
	})
	gate := func(status v1.ConditionStatus) *v1.Pod {
		p := gated.DeepCopy()
		p.Status.Conditions = []v1.PodCondition{{Type: "a/b", Status: v1.ConditionTrue}, {Type: "c/d", Status: status}}
		return p
	}
	look := func(change func(*runtime.Pod)) runtime.Pod { l := seen(); change(&l); return l }
	evict := &runtime.Termination{Reason: "Evicted", Message: "disk", Disruption: true}
	wasInit := v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: inited, Status: v1.ConditionTrue}}}
	for _, tt := range []struct {
		rule string
		in   Input
		of   v1.PodConditionType
		want string
	}{
		{"a ready sandbox serves", Input{Pod: app, Seen: seen()}, sandbox, "True"},
		{"no sandbox", Input{Pod: app}, sandbox, "False PodSandboxNotReady: " + plan.NoSandbox},
		{"sandbox not ready", Input{Pod: app, Seen: look(func(l *runtime.Pod) { l.Sandboxes[0].Ready = false })}, sandbox, "False PodSandboxNotReady: " + plan.SandboxNotReady},
		{"two ready sandboxes", Input{Pod: app, Seen: look(func(l *runtime.Pod) { l.Sandboxes = append(l.Sandboxes, l.Sandboxes[0]) })}, sandbox, "False PodSandboxNotReady: " + plan.ManySandboxes},
		{"network mode changed", Input{Pod: app, Seen: look(func(l *runtime.Pod) { l.Sandboxes[0].HostNetwork = true })}, sandbox, "False PodSandboxNotReady: " + plan.SandboxNetwork},
		{"no address", Input{Pod: app, Seen: look(func(l *runtime.Pod) { l.Sandboxes[0].IPs = nil })}, sandbox, "False PodSandboxNotReady: " + plan.SandboxNoIP},

		{"without init containers a pod is initialized", Input{Pod: app}, inited, "True"},
		{"init containers to come, in order", Input{Pod: pod(always, "i-a", "s-b", "i-c", "app"), Seen: seen(exited("i-a", 0, 0))}, inited, "False ContainersNotInitialized: containers with incomplete status: [s-b i-c]"},
		{"a failed init container is incomplete", Input{Pod: pod(always, "i-a", "app"), Seen: seen(exited("i-a", 0, 1))}, inited, "False ContainersNotInitialized: containers with incomplete status: [i-a]"},
		{"a sidecar counts once it has started", Input{Pod: pod(always, "s-a", "app"), Seen: seen(running("s-a", 0))}, inited, "True"},
		{"a sidecar whose startup probe has not passed is incomplete", Input{Pod: with(pod(always, "s-a", "app"), on("s-a", startup)), Seen: seen(running("s-a", 0))}, inited, "False ContainersNotInitialized: containers with incomplete status: [s-a]"},
		{"a regular container that ran proves it", Input{Pod: pod(always, "s-a", "app"), Seen: seen(exited("s-a", 0, 1), running("app", 0))}, inited, "True"},
		{"once initialized always initialized", Input{Pod: pod(always, "i-a", "app"), Last: wasInit, Seen: seen()}, inited, "True"},
		{"initialized and completed", Input{Pod: pod(never, "i-a", "app"), Seen: seen(exited("app", 0, 0), exited("i-a", 0, 0))}, inited, "True PodCompleted"},

		{"all ready", Input{Pod: app, Seen: up}, cready, "True"},
		{"names of what is not ready: sidecars first, regular ones as in the spec", Input{Pod: pod(always, "s-a", "i-b", "web", "app"), Seen: seen()}, cready, "False ContainersNotReady: containers with unready status: [s-a web app]"},
		{"Ready says the same", Input{Pod: pod(always, "web", "app"), Seen: seen(running("app", 0))}, ready, "False ContainersNotReady: containers with unready status: [web]"},
		{"an init container is not asked", Input{Pod: pod(always, "i-b", "app"), Seen: up}, cready, "True"},
		{"completed", Input{Pod: pod(never, "app"), Seen: seen(exited("app", 0, 0))}, ready, "False PodCompleted"},
		{"failed", Input{Pod: pod(never, "app"), Seen: seen(exited("app", 0, 1))}, cready, "False PodFailed"},
		{"failed while it still runs is not ready", Input{Pod: app, Seen: up, Termination: evict}, ready, "False PodFailed"},
		{"no containers known", Input{Pod: pod(always)}, ready, "False UnknownContainerStatuses"},

		{"a readiness gate nobody set", Input{Pod: gated, Seen: up}, ready, `False ReadinessGatesNotReady: corresponding condition of pod readiness gate "a/b" does not exist., corresponding condition of pod readiness gate "c/d" does not exist.`},
		{"a readiness gate that is False", Input{Pod: gate(v1.ConditionFalse), Seen: up}, ready, `False ReadinessGatesNotReady: the status of pod readiness gate "c/d" is not "True", but False`},
		{"all readiness gates True", Input{Pod: gate(v1.ConditionTrue), Seen: up}, ready, "True"},
		{"readiness gates do not touch ContainersReady", Input{Pod: gated, Seen: up}, cready, "True"},
		{"c078: Ready=False written by somebody else is computed anew", Input{Pod: with(pod(always, "app"), func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: ready, Status: v1.ConditionFalse, Reason: "NodeNotReady"}}
		}), Seen: up}, ready, "True"},

		{"PodScheduled always", Input{Pod: app}, v1.PodScheduled, "True"},
		{"no rule restarts all: no such condition", Input{Pod: app}, v1.AllContainersRestarting, "absent"},
		{"DisruptionTarget only when asked for", Input{Pod: app, Seen: up, Termination: &runtime.Termination{Reason: "DeadlineExceeded"}}, target, "absent"},
		{"c057: DisruptionTarget of an evicted pod", Input{Pod: app, Seen: up, Termination: evict}, target, "True TerminationByKubelet: disk"},
		{"DisruptionTarget with words of its own", Input{Pod: app, Seen: up, Termination: &runtime.Termination{Reason: "Preempting", Message: "room", Disruption: true, Disrupted: "critical"}}, target, "True TerminationByKubelet: critical"},
		{"DisruptionTarget stays", Input{Pod: app, Last: Compute(Input{Pod: app, Seen: up, Termination: evict, Now: now}), Seen: up}, target, "True TerminationByKubelet: disk"},
		{"a pod that succeeded is not disrupted", Input{Pod: app, Last: v1.PodStatus{Phase: v1.PodSucceeded}, Termination: evict}, target, "absent"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			tt.in.Now = now
			if got := conditionLine(Compute(tt.in), tt.of); got != tt.want {
				t.Errorf("%s\ngot  %s\nwant %s", tt.of, got, tt.want)
			}
		})
	}
}

func TestConditionsComeInTheKubeletsOrder(t *testing.T) {
	p := with(pod(always, "app"), on("app", rule(v1.ContainerRestartRuleActionRestartAllContainers, 1)), func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionTrue},
			{Type: "example.com/gate", Status: v1.ConditionTrue},
			{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "PreemptionByScheduler"},
		}
	})
	s := Compute(Input{
		Pod: p, Seen: seen(), Now: now,
		Extra:       []v1.PodCondition{{Type: v1.PodResizePending}, {Type: v1.PodResizeInProgress, ObservedGeneration: 2}},
		Termination: &runtime.Termination{Reason: "Evicted", Disruption: true},
	})
	var got []string
	for _, c := range s.Conditions {
		got = append(got, fmt.Sprintf("%s@%d", c.Type, c.ObservedGeneration))
	}
	want := "example.com/gate@0 PodResizePending@0 PodResizeInProgress@2 DisruptionTarget@3 PodReadyToStartContainers@3 " +
		"Initialized@3 Ready@3 ContainersReady@3 PodScheduled@3 AllContainersRestarting@0"
	if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestLastTransitionTimeChangesWithTheStatusOnly(t *testing.T) {
	p := pod(always, "app", "log")
	at := func(minute int) time.Time { return now.Add(time.Duration(minute)*time.Minute + 700*time.Millisecond) }
	var last v1.PodStatus
	for i, step := range []struct {
		seen  runtime.Pod
		since int // minute since which Ready has its status
	}{
		{seen(), 0},
		{seen(running("app", 0)), 0}, // another message, same status
		{seen(running("app", 0), running("log", 0)), 2},
		{seen(running("app", 0), running("log", 0)), 2},
		{seen(exited("app", 0, 1), running("log", 0)), 4},
	} {
		last = Compute(Input{Pod: p, Last: last, Seen: step.seen, Now: at(i)})
		want := stamp(at(step.since))
		if got := condition(last.Conditions, v1.PodReady).LastTransitionTime; !got.Equal(&want) {
			t.Errorf("minute %d: Ready since %s, want %s", i, got, want)
		}
	}

	foreign := metav1.NewTime(now.Add(-time.Hour))
	p.Status.Conditions = []v1.PodCondition{{Type: "x", Status: v1.ConditionTrue, LastTransitionTime: foreign, LastProbeTime: foreign}, {Type: "y"}}
	s := Compute(Input{Pod: p, Last: last, Now: at(9)})
	if diff := cmp.Diff(p.Status.Conditions, s.Conditions[:2]); diff != "" {
		t.Errorf("conditions of others changed: %s", diff)
	}
}
