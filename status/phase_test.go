package status

import (
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

// states makes container statuses of a line such as "i-a:0 s-b:run app:wait log:crash2": an exit code, run, up (a sidecar
// that has started), wait, oom, or crash and the exit code it waits after.
func states(line string) (s v1.PodStatus) {
	for word := range strings.FieldsSeq(line) {
		name, state, _ := strings.Cut(word, ":")
		cs := v1.ContainerStatus{Name: name}
		end := func(code string) v1.ContainerState {
			n, err := strconv.Atoi(code)
			if err != nil {
				panic(err)
			}
			return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: int32(n)}}
		}
		switch {
		case state == "run", state == "up":
			cs.State.Running = &v1.ContainerStateRunning{}
			cs.Started = new(state == "up")
		case state == "wait":
			cs.State.Waiting = &v1.ContainerStateWaiting{}
		case strings.HasPrefix(state, "crash"):
			cs.State.Waiting = &v1.ContainerStateWaiting{}
			cs.LastTerminationState = end(strings.TrimPrefix(state, "crash"))
		case state == "none":
		case state == "oom":
			cs.State = end("0")
			cs.State.Terminated.Reason = "OOMKilled"
		case state == "all":
			cs.State = end("137")
			cs.State.Terminated.Reason = reasonRestartingAll
		default:
			cs.State = end(state)
		}
		if strings.HasPrefix(name, "i-") || strings.HasPrefix(name, "s-") {
			s.InitContainerStatuses = append(s.InitContainerStatuses, cs)
		} else {
			s.ContainerStatuses = append(s.ContainerStatuses, cs)
		}
	}
	return s
}

func TestPhase(t *testing.T) {
	const pending, run, ok, failed = v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed
	for _, tt := range []struct {
		rule   string
		policy v1.RestartPolicy
		states string
		want   v1.PodPhase
	}{
		{"nothing known is Pending", always, "app:none", pending},
		{"one container waits for its first start", always, "app:run log:wait", pending},
		{"all run", always, "app:run log:run", run},
		{"one of two unknown", always, "app:run log:none", pending},
		{"one runs, one ended well for good", onFailure, "app:run log:0", run},
		{"one runs, one failed for good", never, "app:run log:1", run},

		{"all ended and restart", always, "app:0 log:1", run},
		{"crash loop is Running", always, "app:crash1", run},
		{"OnFailure: a failed one restarts", onFailure, "app:1", run},
		{"OnFailure: all ended well", onFailure, "app:0 log:0", ok},
		{"Never: all ended well", never, "app:0 log:0", ok},
		{"Never: one failed", never, "app:0 log:3", failed},
		{"waiting after exit 0 has not succeeded", never, "app:crash0", failed},
		{"one of two restarts", onFailure, "app:0 log:crash1", run},

		{"init container runs", always, "i-a:run app:wait", pending},
		{"init container waits", always, "i-a:wait app:wait", pending},
		{"init container missing", always, "app:wait", pending},
		{"second init container not started", always, "i-a:0 i-b:wait app:wait", pending},
		{"init container failed and restarts", always, "i-a:1 app:wait", pending},
		{"init container in a crash loop", always, "i-a:crash1 app:wait", pending},
		{"Never: init container failed", never, "i-a:1 app:wait", failed},
		{"Never: init container killed for memory, whatever its exit code", never, "i-a:oom app:wait", failed}, // kubernetes/kubernetes#116676
		{"OnFailure: init container killed for memory", onFailure, "i-a:oom app:wait", pending},
		{"Never: init container waits after a failure", never, "i-a:crash1 app:wait", failed},
		{"OnFailure: init container failed and restarts", onFailure, "i-a:1 app:wait", pending},
		{"init containers done, app not created", always, "i-a:0 app:wait", pending},
		{"init containers done, app runs", always, "i-a:0 app:run", run},

		{"sidecar not started holds the pod back", always, "s-a:run app:run", pending},
		{"sidecar started", always, "s-a:up app:run", run},
		{"sidecar waits for its first start", always, "s-a:wait app:wait", pending},
		{"a sidecar of which nothing is known does not keep a finished pod", never, "s-a:wait app:0", ok},
		{"nor one without a state", onFailure, "s-a:none app:0 log:0", ok},
		{"it does keep one that is not", never, "s-a:wait app:0 log:wait", pending},
		{"sidecar missing", always, "app:run s-a:none", pending},
		{"sidecar in a crash loop does not count", always, "s-a:crash1 app:run", run},
		{"sidecar ended does not count", always, "s-a:1 app:run", run},
		{"running sidecar keeps a finished pod Running", never, "s-a:up app:0", run},
		{"sidecar ended last, its exit code does not count", never, "s-a:137 app:0", ok},

		{"restarting in place counts as restartable", never, "app:all", run},
		{"init container restarting in place", never, "i-a:all app:wait", pending},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			var names []string
			for word := range strings.FieldsSeq(tt.states) {
				name, _, _ := strings.Cut(word, ":")
				names = append(names, name)
			}
			if tt.rule == "init container missing" {
				names = append(names, "i-a")
			}
			s := states(tt.states)
			if got := phaseOf(pod(tt.policy, names...), &s, false, false); got != tt.want {
				t.Errorf("phase %s, want %s", got, tt.want)
			}
		})
	}
}

func TestPhaseOfSpecialPods(t *testing.T) {
	for _, tt := range []struct {
		rule        string
		pod         *v1.Pod
		states      string
		stopping    bool
		initialized bool
		want        v1.PodPhase
	}{
		{"a stopping pod restarts nothing: failed", pod(always, "app"), "app:crash1", true, true, v1.PodFailed},
		{"a stopping pod restarts nothing: succeeded", pod(always, "app"), "app:0", true, true, v1.PodSucceeded},
		{"a stopping pod that still runs is Running", pod(always, "app"), "app:run", true, true, v1.PodRunning},
		{"a stopping static pod stays as its exit codes say", with(pod(always, "app"), fromFile), "app:0", true, true, v1.PodRunning},
		{"a finished static pod that is not restarted ends", with(pod(never, "app"), fromFile), "app:1", true, true, v1.PodFailed},
		{"a restarting sidecar does not take an initialized pod back", pod(always, "s-a", "app"), "s-a:run app:run", false, true, v1.PodRunning},
		{
			"the container's own policy Never beats the pod's", with(pod(always, "app"), on("app", ownPolicy(v1.ContainerRestartPolicyNever))),
			"app:1", false, true, v1.PodFailed,
		},
		{
			"a matching rule restarts what the policy would not",
			with(pod(never, "app"), on("app", rule(v1.ContainerRestartRuleActionRestart, 42))), "app:42", false, true, v1.PodRunning,
		},
		{
			"a rule that does not match changes nothing",
			with(pod(never, "app"), on("app", rule(v1.ContainerRestartRuleActionRestart, 42))), "app:1", false, true, v1.PodFailed,
		},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := states(tt.states)
			if got := phaseOf(tt.pod, &s, tt.stopping, tt.initialized); got != tt.want {
				t.Errorf("phase %s, want %s", got, tt.want)
			}
		})
	}
}

func TestInitializedLooksAtTheCurrentSandboxOnly(t *testing.T) {
	p := pod(always, "i-a", "app")
	now := seen(exited("i-a", 0, 0), running("app", 0))
	if !initialized(p, now) {
		t.Error("a regular container in the ready sandbox: not initialized")
	}
	older := seen(exited("app", 0, 1))
	older.Containers[0].SandboxID = "before"
	if initialized(p, older) {
		t.Error("a leftover of an older sandbox: initialized")
	}
	dead := seen(running("app", 0))
	dead.Sandboxes[0].Ready = false
	if initialized(p, dead) || initialized(p, runtime.Pod{}) || initialized(p, seen(running("i-a", 0))) {
		t.Error("no ready sandbox, or only an init container: initialized")
	}
}

// phaseLine writes what a test of phases looks at.
func phaseLine(s v1.PodStatus) string {
	return strings.TrimRight(string(s.Phase)+" "+s.Reason+" "+s.Message, " ")
}

func TestPhaseOverTime(t *testing.T) {
	app := pod(always, "app")
	once := pod(never, "app")
	succeeded := v1.PodStatus{Phase: v1.PodSucceeded, Reason: "Done", Message: "all done"}
	failed := v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "too big"}
	shown := func(p *v1.Pod, s v1.PodStatus) *v1.Pod { p = p.DeepCopy(); p.Status = s; return p }
	evict := &runtime.Termination{Reason: "Evicted", Message: "disk", Disruption: true}
	for _, tt := range []struct {
		rule string
		in   Input
		want string
	}{
		{"c070: Failed stays when the engine forgot the container", Input{Pod: once, Last: failed, Seen: seen()}, "Failed Evicted too big"},
		{"c070: Failed stays when the engine shows exit 0", Input{Pod: once, Last: failed, Seen: seen(exited("app", 0, 0))}, "Failed Evicted too big"},
		{"c071: what the API shows as ended has ended", Input{Pod: shown(once, succeeded)}, "Succeeded Done all done"},
		{"what the API shows beats what was told", Input{Pod: shown(once, succeeded), Last: failed}, "Succeeded Done all done"},
		{"c087: a stale pod object does not revert Failed", Input{Pod: shown(app, v1.PodStatus{Phase: v1.PodRunning}), Last: failed, Seen: seen(running("app", 0))}, "Failed Evicted too big"},
		{"a terminal phase survives a running container", Input{Pod: app, Last: succeeded, Seen: seen(running("app", 0))}, "Succeeded Done all done"},
		{"Running goes back to Pending", Input{Pod: app, Last: v1.PodStatus{Phase: v1.PodRunning}, Seen: seen()}, "Pending"},
		{"reason and message stay with the phase", Input{Pod: app, Last: v1.PodStatus{Phase: v1.PodRunning, Reason: "r", Message: "m"}, Seen: seen(running("app", 0))}, "Running r m"},
		{"reason and message go with the phase", Input{Pod: app, Last: v1.PodStatus{Phase: v1.PodPending, Reason: "r", Message: "m"}, Seen: seen(running("app", 0))}, "Running"},
		{"the API fills blanks", Input{Pod: shown(app, v1.PodStatus{Phase: v1.PodRunning, Reason: "NodeLost"}), Last: v1.PodStatus{Phase: v1.PodRunning}, Seen: seen(running("app", 0))}, "Running NodeLost"},

		{"a termination with a reason fails a running pod", Input{Pod: app, Seen: seen(running("app", 0)), Termination: evict}, "Failed Evicted disk"},
		{"c173: it fails a pod whose containers exited well", Input{Pod: app, Seen: seen(exited("app", 0, 0)), Termination: evict}, "Failed Evicted disk"},
		{"it does not touch Succeeded", Input{Pod: once, Last: succeeded, Seen: seen(exited("app", 0, 0)), Termination: evict}, "Succeeded Done all done"},
		{"the last termination counts", Input{Pod: app, Last: v1.PodStatus{Phase: v1.PodFailed, Reason: "Preempting"}, Termination: evict}, "Failed Evicted disk"},
		{"the deadline is a termination with a reason", Input{Pod: app, Seen: seen(running("app", 0)), Termination: &runtime.Termination{Reason: "DeadlineExceeded", Message: "late"}}, "Failed DeadlineExceeded late"},
		{"a deletion leaves the phase to the exit codes", Input{Pod: app, Seen: seen(exited("app", 0, 0)), Termination: &runtime.Termination{}}, "Succeeded"},
		{"a deletion of what still runs is Running", Input{Pod: app, Seen: seen(running("app", 0)), Termination: &runtime.Termination{}}, "Running"},

		{"never started and over is Failed", Input{Pod: app, Termination: &runtime.Termination{}, Ended: true}, "Failed"},
		{"never initialized and over is Failed", Input{Pod: pod(always, "i-a", "app"), Termination: &runtime.Termination{}, Ended: true}, "Failed"},
		{"over with exit 0 is Succeeded", Input{Pod: app, Seen: seen(exited("app", 0, 0)), Termination: &runtime.Termination{}, Ended: true}, "Succeeded"},
		{"over with exit 1 is Failed", Input{Pod: app, Seen: seen(exited("app", 0, 1)), Ended: true}, "Failed"},
		{"an ended static pod is not forced", Input{Pod: with(pod(always, "app"), fromFile), Seen: seen(exited("app", 0, 0)), Termination: &runtime.Termination{}, Ended: true}, "Running"},
		{"an ended static pod with policy Never ends by exit codes", Input{Pod: with(pod(never, "app"), fromFile), Seen: seen(exited("app", 0, 0)), Termination: &runtime.Termination{}, Ended: true}, "Succeeded"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			tt.in.Now = now
			if got := phaseLine(Compute(tt.in)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
