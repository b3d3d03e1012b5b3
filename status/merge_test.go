package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// st is a status with a phase, a reason (and a message of it), and conditions written as "Type=Status/Reason".
func st(phase v1.PodPhase, reason string, conditions ...string) v1.PodStatus {
	s := v1.PodStatus{Phase: phase, Reason: reason}
	if reason != "" {
		s.Message = "message of " + reason
	}
	for _, c := range conditions {
		name, value, _ := strings.Cut(c, "=")
		value, why, _ := strings.Cut(value, "/")
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.PodConditionType(name), Status: v1.ConditionStatus(value), Reason: why})
	}
	return s
}

// where adds a container status in that state.
func where(s v1.PodStatus, state v1.ContainerState) v1.PodStatus {
	s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{Name: "app", State: state})
	return s
}

func runs(s v1.PodStatus) v1.PodStatus {
	return where(s, v1.ContainerState{Running: &v1.ContainerStateRunning{}})
}

func ends(s v1.PodStatus) v1.PodStatus {
	return where(s, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}})
}

// has is a pod of which a server has that status.
func has(s v1.PodStatus) *v1.Pod { return &v1.Pod{Status: s} }

// line writes a status as st takes it.
func line(s v1.PodStatus) string {
	words := []string{string(s.Phase), s.Reason}
	if s.Message != "" && s.Message != "message of "+s.Reason {
		words = append(words, s.Message)
	}
	for _, c := range s.Conditions {
		words = append(words, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

func TestMerge(t *testing.T) {
	tests := []struct {
		rule         string
		server, ours v1.PodStatus
		want         string
	}{
		{
			rule: "an empty server takes all",
			ours: st(v1.PodRunning, "", "Ready=True"),
			want: "Running  Ready=True/",
		},
		{
			rule:   "conditions of others stay and come first, those of ours are as we say",
			server: st(v1.PodPending, "", "Ready=False/Old", "gate=True/Theirs", "PodScheduled=True"),
			ours:   st(v1.PodRunning, "", "gate=False/Stale", "Ready=True", "PodScheduled=True"),
			want:   "Running  gate=True/Theirs Ready=True/ PodScheduled=True/",
		},
		{
			rule:   "a condition of others that the server has no more does not come back",
			server: st(v1.PodRunning, ""),
			ours:   st(v1.PodRunning, "", "gate=True"),
			want:   "Running",
		},
		{
			rule:   "a condition of ours that we have no more goes",
			server: st(v1.PodRunning, "", "PodResizePending=True/Deferred"),
			ours:   st(v1.PodRunning, ""),
			want:   "Running",
		},
		{
			rule:   "a terminal phase waits while a container runs",
			server: st(v1.PodRunning, "", "DisruptionTarget=True/Preempted"),
			ours:   runs(st(v1.PodFailed, "Evicted", "DisruptionTarget=True/TerminationByKubelet", "Ready=False/PodFailed")),
			want:   "Running  DisruptionTarget=True/Preempted Ready=False/PodFailed",
		},
		{
			rule:   "DisruptionTarget is not told while it waits",
			server: st(v1.PodRunning, ""),
			ours:   runs(st(v1.PodFailed, "Evicted", "DisruptionTarget=True/TerminationByKubelet")),
			want:   "Running",
		},
		{
			rule:   "a terminal phase is told once nothing runs, together with DisruptionTarget",
			server: st(v1.PodRunning, "", "DisruptionTarget=True/Preempted", "gate=True"),
			ours:   ends(st(v1.PodFailed, "Evicted", "DisruptionTarget=True/TerminationByKubelet", "Ready=False/PodFailed")),
			want:   "Failed Evicted DisruptionTarget=True/TerminationByKubelet gate=True/ Ready=False/PodFailed",
		},
		{
			rule:   "DisruptionTarget that the server lacks is appended",
			server: st(v1.PodRunning, "", "gate=True"),
			ours:   ends(st(v1.PodFailed, "Evicted", "DisruptionTarget=True/TerminationByKubelet")),
			want:   "Failed Evicted gate=True/ DisruptionTarget=True/TerminationByKubelet",
		},
		{
			rule:   "DisruptionTarget is not told of a pod that does not end",
			server: st(v1.PodRunning, ""),
			ours:   runs(st(v1.PodRunning, "", "DisruptionTarget=True/TerminationByKubelet")),
			want:   "Running",
		},
		{
			rule:   "DisruptionTarget of a pod that was over before is the server's",
			server: st(v1.PodFailed, "Evicted", "DisruptionTarget=True/Theirs"),
			ours:   ends(st(v1.PodFailed, "Evicted", "DisruptionTarget=True/Ours")),
			want:   "Failed Evicted DisruptionTarget=True/Theirs",
		},
		{
			rule:   "a terminal phase of the server is never left, and such a pod is not ready",
			server: st(v1.PodFailed, "Evicted"),
			ours:   runs(st(v1.PodRunning, "", "Ready=True", "ContainersReady=True", "PodScheduled=True")),
			want:   "Failed Evicted Ready=False/PodFailed ContainersReady=False/PodFailed PodScheduled=True/",
		},
		{
			rule:   "nor does one become the other",
			server: st(v1.PodSucceeded, ""),
			ours:   ends(st(v1.PodFailed, "Other", "Ready=False/PodFailed")),
			want:   "Succeeded  Ready=False/PodFailed",
		},
		{
			rule:   "reason and message of the same terminal phase are ours",
			server: st(v1.PodFailed, ""),
			ours:   ends(st(v1.PodFailed, "DeadlineExceeded")),
			want:   "Failed DeadlineExceeded",
		},
		{
			rule:   "a terminal phase with ready conditions makes them say that it completed",
			server: st(v1.PodRunning, "", "Ready=True"),
			ours:   ends(st(v1.PodSucceeded, "", "Ready=True")),
			want:   "Succeeded  Ready=False/PodCompleted",
		},
		{
			rule:   "a refused pod has no conditions of ours",
			server: st(v1.PodPending, "", "PodScheduled=True", "gate=True"),
			ours:   st(v1.PodFailed, "OutOfcpu"),
			want:   "Failed OutOfcpu gate=True/",
		},
		{
			rule:   "a running phase goes back to pending if we say so",
			server: st(v1.PodRunning, ""),
			ours:   st(v1.PodPending, ""),
			want:   "Pending",
		},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			server, ours := *tt.server.DeepCopy(), *tt.ours.DeepCopy()
			got := Merge(has(tt.server), tt.ours)
			if line(got) != tt.want {
				t.Errorf("merged\n  %q\nwant\n  %q", line(got), tt.want)
			}
			if !equality.Semantic.DeepEqual(server, tt.server) || !equality.Semantic.DeepEqual(ours, tt.ours) {
				t.Error("an argument was changed")
			}
			if again := Merge(has(got), tt.ours); line(again) != line(got) {
				t.Errorf("merged into its own answer, it changes\n  %q\nto\n  %q", line(got), line(again))
			}
		})
	}
}

func TestMergeKeepsWhatTheServerKnowsBetter(t *testing.T) {
	before := metav1.NewTime(now.Add(-time.Hour))
	server := v1.PodStatus{
		ObservedGeneration: 7, NominatedNodeName: "other", QOSClass: v1.PodQOSGuaranteed, StartTime: &before,
		ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "gpu"}},
	}
	ours := v1.PodStatus{
		ObservedGeneration: 3, QOSClass: v1.PodQOSBurstable, StartTime: new(metav1.NewTime(now)),
		ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "stale"}}, PodIP: "10.0.0.7",
	}
	got := Merge(has(server), ours)
	want := *server.DeepCopy()
	want.PodIP = "10.0.0.7"
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("merged\n  %+v\nwant\n  %+v", got, want)
	}
	got.ResourceClaimStatuses[0].Name, got.StartTime.Time = "changed", now
	if server.ResourceClaimStatuses[0].Name != "gpu" || !server.StartTime.Equal(&before) {
		t.Error("the answer shares memory with the server's status")
	}
}

func TestMergeKeepsTheTimeAtWhichReadyBecameFalse(t *testing.T) {
	server, ours := st(v1.PodFailed, "", "Ready=False/PodFailed"), st(v1.PodRunning, "", "Ready=True")
	server.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
	ours.Conditions[0].LastTransitionTime = metav1.NewTime(now)
	if at := Merge(has(server), ours).Conditions[0].LastTransitionTime; !at.Equal(&server.Conditions[0].LastTransitionTime) {
		t.Errorf("Ready is False since %v, want the server's %v", at, server.Conditions[0].LastTransitionTime)
	}
}

// Field reports: a comment in kubernetes/kubernetes#83705, and #140309: a machine went down, init containers ran once more, and the
// server took no status of the pod as long as they did.
func TestMergeKeepsTheEndOfAnInitContainerThatRunsOnceMore(t *testing.T) {
	again := with(pod(always, "i-a", "app"), on("i-a", rule(v1.ContainerRestartRuleActionRestartAllContainers, 7)))
	for _, tt := range []struct {
		rule    string
		pod     *v1.Pod
		was, is string
		want    string
	}{
		{"OnFailure: it ended well and runs", pod(onFailure, "i-a", "app"), "i-a:0 app:1", "i-a:run app:wait", "exit=0/"},
		{"OnFailure: it ended well and is in a crash loop", pod(onFailure, "i-a", "app"), "i-a:0 app:1", "i-a:crash1 app:wait", "exit=0/"},
		{"OnFailure: it ended well and fails now", pod(onFailure, "i-a", "app"), "i-a:0 app:1", "i-a:1 app:wait", "exit=1/"},
		{"OnFailure: it failed and runs", pod(onFailure, "i-a", "app"), "i-a:1 app:wait", "i-a:run app:wait", "run"},
		{"OnFailure: it was killed for memory and runs", pod(onFailure, "i-a", "app"), "i-a:oom app:wait", "i-a:run app:wait", "exit=0/OOMKilled"}, // a server looks at the code alone
		{"Never: what never ran behind it does", pod(never, "i-a", "app"), "i-a:0 app:wait", "i-a:run app:wait", "exit=0/"},
		{"Always: it may run as often as it likes", pod(always, "i-a", "app"), "i-a:0 app:1", "i-a:run app:wait", "run"},
		{"its own policy decides", with(pod(always, "i-a", "app"), on("i-a", ownPolicy(v1.ContainerRestartPolicyNever))), "i-a:0 app:1", "i-a:run app:wait", "exit=0/"},
		{"where all restart, all may", again, "i-a:0 app:1", "i-a:run app:wait", "run"},
		{"a sidecar restarts always", pod(never, "s-a", "app"), "s-a:0 app:run", "s-a:run app:run", "run"},
	} {
		tt.pod.Status = states(tt.was)
		ours := states(tt.is)
		ours.InitContainerStatuses[0].ContainerID = "rt://new"
		got := Merge(tt.pod, ours).InitContainerStatuses[0]
		if shortState(got.State) != tt.want || got.ContainerID != "rt://new" || got.Ready {
			t.Errorf("%s: %+v, want %s", tt.rule, got, tt.want)
		}
		if err := legal(tt.pod, &tt.pod.Status, &ours); err != nil {
			t.Errorf("%s: %v", tt.rule, err)
		}
	}
}

func BenchmarkMerge(b *testing.B) {
	p := pod(always, "i-a", "s-b", "app", "log")
	ours := told(p, seen(running("app", 0), running("log", 0), running("s-b", 0), exited("i-a", 0, 0)))
	p.Status = Merge(has(st(v1.PodPending, "", "PodScheduled=True", "gate=True")), ours)
	for b.Loop() {
		Merge(p, ours)
	}
}
