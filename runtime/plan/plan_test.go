package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// look builds what is seen from words such as "sandbox#1:notready" and "app#2:exited=1@30s": name, attempt, state with exit
// code, and how long ago it ended. The newest comes first. Containers are in the newest sandbox unless "/old" follows.
func look(words ...string) runtime.Pod {
	var p runtime.Pod
	for _, w := range words {
		w, old := strings.CutSuffix(w, "/old")
		head, state, _ := strings.Cut(w, ":")
		name, number, _ := strings.Cut(head, "#")
		var attempt int
		if number != "" {
			fmt.Sscan(number, &attempt)
		}
		state, ago, _ := strings.Cut(state, "@")
		state, code, _ := strings.Cut(state, "=")
		if name == "sandbox" {
			s := runtime.Sandbox{ID: "s" + fmt.Sprint(attempt), Attempt: uint32(attempt), Ready: state == "ready" || state == "noip" || state == "host", NetworkKnown: true, IPs: []string{"10.0.0.1"}}
			if state == "noip" {
				s.IPs = nil
			}
			s.HostNetwork = state == "host"
			p.Sandboxes = append(p.Sandboxes, s)
			continue
		}
		c := runtime.Container{ID: fmt.Sprintf("%s.%d", name, attempt), Name: name, Restarts: attempt, SandboxID: "old"}
		if !old && len(p.Sandboxes) > 0 {
			c.SandboxID = p.Sandboxes[0].ID
		}
		c.State = map[string]runtime.State{"running": runtime.Running, "exited": runtime.Exited, "oom": runtime.Exited, "created": runtime.Created, "unknown": runtime.Unknown}[state]
		if state == "oom" {
			c.Reason = "OOMKilled"
		}
		if code != "" {
			fmt.Sscan(code, &c.ExitCode)
		}
		if c.State == runtime.Exited {
			d, err := time.ParseDuration(ago)
			if err != nil {
				d = time.Hour
			}
			c.Finished = t0.Add(-d)
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

func (p Plan) words() (out []string) {
	say := func(a Action) string {
		switch a.Verb {
		case RunSandbox:
			return fmt.Sprintf("run sandbox#%d", a.Attempt)
		case StartContainer:
			in := ""
			if len(a.Unstarted) > 0 {
				in = " for " + strings.Join(a.Unstarted, ", ")
			}
			return fmt.Sprintf("start %s#%d%s", a.Container, a.Attempt, in)
		default:
			return a.Verb.String() + " " + a.ID
		}
	}
	for _, a := range p.Stops {
		out = append(out, say(a))
	}
	for _, a := range p.Actions {
		out = append(out, say(a))
	}
	for name, w := range p.Waiting {
		out = append(out, fmt.Sprintf("wait %s %v", name, w.Until.Sub(t0)))
	}
	return out
}

func podOf(policy v1.RestartPolicy, names ...string) *v1.Pod {
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "p", "ns", "u"
	pod.Spec.RestartPolicy = policy
	for _, n := range names {
		c := v1.Container{Name: n, Image: "img"}
		switch {
		case strings.HasPrefix(n, "init"):
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case strings.HasPrefix(n, "side"):
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			if strings.HasSuffix(n, "-probed") {
				c.StartupProbe = &v1.Probe{}
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case strings.HasPrefix(n, "debug"):
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: n, Image: "img"}})
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

func TestSync(t *testing.T) {
	abc := []string{"a", "b", "c"}
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		spec   []string
		seen   []string
		want   []string
	}{
		{"nothing exists: sandbox, then all in order", always, abc, nil, []string{"run sandbox#0", "start a#0", "start b#0", "start c#0"}},
		{"all run: nothing to do", always, abc, []string{"sandbox:ready", "a:running", "b:running", "c:running"}, nil},
		{"always restarts whatever the exit code", always, abc, []string{"sandbox:ready", "a:exited", "b:exited=111", "c:running"}, []string{"start a#1", "start b#1"}},
		{"on failure restarts what failed", onFailure, abc, []string{"sandbox:ready", "a:exited", "b:exited=111", "c:running"}, []string{"start b#1"}},
		{"a created container makes way for the next instance", onFailure, abc, []string{"sandbox:ready", "a:exited", "b:created", "c:running"}, []string{"start b#1 for b.0"}},
		{"never restarts nothing", never, abc, []string{"sandbox:ready", "a:exited", "b:exited=1", "c:running"}, nil},
		{"a dead sandbox is replaced and all begin again", always, abc, []string{"sandbox:notready", "a:running", "b:exited", "c:exited"}, []string{"stop a.0", "stop sandbox s0", "run sandbox#1", "start a#1", "start b#1", "start c#1"}},
		{"on failure, what succeeded does not run again in a new sandbox", onFailure, abc, []string{"sandbox:notready", "a:exited=1", "b:exited", "c:exited=1"}, []string{"stop sandbox s0", "run sandbox#1", "start a#1", "start c#1"}},
		{"a sandbox without an address is replaced", always, []string{"a"}, []string{"sandbox:noip", "a:running"}, []string{"stop a.0", "stop sandbox s0", "run sandbox#1", "start a#1"}},
		{"a sandbox of the wrong network is replaced", always, []string{"a"}, []string{"sandbox:host", "a:running"}, []string{"stop a.0", "stop sandbox s0", "run sandbox#1", "start a#1"}},
		{"two ready sandboxes make way for a third", always, []string{"a"}, []string{"sandbox#1:ready", "sandbox#0:ready", "a:running"}, []string{"stop a.0", "stop sandbox s1", "stop sandbox s0", "run sandbox#2", "start a#1"}},
		{"never, all ended, second sandbox dead: no new one", never, abc, []string{"sandbox#1:notready", "a:exited", "b:exited", "c:exited"}, nil},
		{"never, sandbox dead but a container left running: it is stopped", never, []string{"a"}, []string{"sandbox#1:notready", "a:running"}, []string{"stop a.0", "stop sandbox s1"}},
		{"on failure, all succeeded, sandbox dead: no new one", onFailure, abc, []string{"sandbox:notready", "a:exited", "b:exited", "c:exited"}, nil},
		{"of several that were made and not started each goes", always, abc, []string{"sandbox:ready", "a:running", "b#2:created", "b#1:created", "b#0:exited=1", "c:running"}, []string{"start b#3 for b.2, b.1"}},
		{"never, sandbox dead before the start of its container: begins again", never, []string{"a"}, []string{"sandbox:notready", "a:created"}, []string{"stop sandbox s0", "run sandbox#1", "start a#1 for a.0"}},
		{"never, sandbox dead before the start of one: only that one", never, abc, []string{"sandbox:notready", "a:exited", "b:exited=1", "c:created"}, []string{"stop sandbox s0", "run sandbox#1", "start c#1 for c.0"}},
		{"on failure, sandbox dead before the start of the next instance", onFailure, []string{"a"}, []string{"sandbox:notready", "a#1:created", "a#0:exited=1"}, []string{"stop sandbox s0", "run sandbox#1", "start a#2 for a.1"}},
		{"never, sandbox dead between init and the rest: begins again", never, []string{"init", "a"}, []string{"sandbox:notready", "init:exited"}, []string{"stop sandbox s0", "remove init.0", "run sandbox#1", "start init#1"}},
		{"never, sandbox dead in the first init container: the pod has failed", never, []string{"init", "a"}, []string{"sandbox:notready", "init:exited=137"}, nil},
		{"never, sandbox dead and no container seen: begins again", never, abc, []string{"sandbox#2:notready"}, []string{"stop sandbox s2", "run sandbox#3", "start a#0", "start b#0", "start c#0"}},
		{"what runs in an older sandbox is stopped before anything starts", always, abc, []string{"sandbox#1:ready", "a:running/old", "b:running", "c:exited"}, []string{"stop a.0"}},
		{"an unknown state is stopped, then restarted", always, abc, []string{"sandbox:ready", "a:running", "b:unknown", "c:running"}, []string{"stop b.0", "start b#1"}},
		{"only a debug container left: the pod ends", never, []string{"a", "debug"}, []string{"sandbox:ready", "debug:running", "a:exited"}, []string{"stop debug.0", "stop sandbox s0"}},
		{"only a sidecar left: the pod ends, the sidecar is not restarted", never, []string{"side", "a"}, []string{"sandbox:ready", "a:exited", "side:running"}, []string{"stop side.0", "stop sandbox s0"}},
		{"debug containers start without waiting for init", always, []string{"init", "a", "debug"}, []string{"sandbox:ready", "init:running"}, []string{"start debug#0"}},
		{"debug containers are never restarted", always, []string{"a", "debug"}, []string{"sandbox:ready", "debug:exited=1", "a:running"}, nil},

		{"init containers come first", always, []string{"init1", "init2", "a"}, nil, []string{"run sandbox#0", "start init1#0"}},
		{"one init container at a time", always, []string{"init1", "init2", "a"}, []string{"sandbox:ready", "init1:running"}, nil},
		{"the next init container follows a success", always, []string{"init1", "init2", "a"}, []string{"sandbox:ready", "init1:exited"}, []string{"start init2#0"}},
		{"after the last init container the rest", always, []string{"init1", "init2", "a"}, []string{"sandbox:ready", "init2:exited", "init1:exited"}, []string{"start a#0"}},
		{"an init container that was made and not started makes way for the next instance", always, []string{"init1", "a"}, []string{"sandbox:ready", "init1:created"}, []string{"start init1#1 for init1.0"}}, // kubernetes/kubernetes#126543
		{"a sidecar likewise", always, []string{"side", "a"}, []string{"sandbox:ready", "side:created"}, []string{"start side#1 for side.0"}},
		{"a failed init container runs again", onFailure, []string{"init1", "a"}, []string{"sandbox:ready", "init1:exited=1"}, []string{"start init1#1"}},
		{"with never, a failed init container ends the pod", never, []string{"init1", "a"}, []string{"sandbox:ready", "init1:exited=1"}, []string{"stop sandbox s0"}},
		{"an init container killed for memory has failed although it exited 0", never, []string{"init1", "a"}, []string{"sandbox:ready", "init1:oom=0"}, []string{"stop sandbox s0"}},
		{"c001: a collected init container does not run again", always, []string{"init", "a"}, []string{"sandbox:ready", "a:running"}, nil},
		{"c001: nor when the app container has ended", always, []string{"init", "a"}, []string{"sandbox:ready", "a:exited=1"}, []string{"start a#1"}},
		{"only the serving sandbox counts: init runs again in a new one", always, []string{"init", "a"}, []string{"sandbox#1:ready", "a:exited/old", "init:exited/old"}, []string{"start init#1"}},
		{"a new sandbox forgets the init containers", always, []string{"init", "a"}, []string{"sandbox:notready", "a:exited", "init:exited"}, []string{"stop sandbox s0", "remove init.0", "run sandbox#1", "start init#1"}},
		{"older instances of an init container are removed", always, []string{"init", "a"}, []string{"sandbox:ready", "init#2:exited=1", "init#1:exited=1", "init#0:exited=1"}, []string{"remove init.1", "remove init.0", "start init#3"}},
		{"of a sidecar that runs again the instance before stays to be read", always, []string{"side", "a"}, []string{"sandbox:ready", "side#2:running", "side#1:exited=1", "side#0:exited=1", "a:exited=1"}, []string{"remove side.0", "start a#1"}},

		{"a sidecar comes first and does not end", always, []string{"side", "init", "a"}, []string{"sandbox:ready", "side:running"}, []string{"start init#0"}},
		{"what comes behind a sidecar is started once", always, []string{"side", "init", "a"}, []string{"sandbox:ready", "side:running", "init:running"}, nil},
		{"what failed behind a sidecar is started once", always, []string{"side", "init", "a"}, []string{"sandbox:ready", "side:running", "init:exited=1@1h"}, []string{"start init#1"}},
		{"sidecars start one after the other, each once", always, []string{"side1", "side2", "init", "a"}, []string{"sandbox:ready", "side1:running", "side2:running"}, []string{"start init#0"}},
		{"a sidecar with a startup probe is waited for", always, []string{"side-probed", "a"}, []string{"sandbox:ready", "side-probed:running"}, nil},
		{"a sidecar that ended is restarted", always, []string{"side", "a"}, []string{"sandbox:ready", "a:running", "side:exited=0"}, []string{"start side#1"}},
		{"a missing sidecar is started again once init is over", always, []string{"side", "init", "a"}, []string{"sandbox:ready", "a:running", "init:exited"}, []string{"start side#0"}},
		{"sidecars keep alive while init goes on", always, []string{"side1", "init", "side2", "a"}, []string{"sandbox:ready", "init:running", "side1:exited=1"}, []string{"start side1#1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Sync(Input{Pod: podOf(tt.policy, tt.spec...), Seen: look(tt.seen...), Now: t0}).words()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A restart policy of a container's own (KEP-5307) holds after a reboot, too.
func TestAPolicyOfItsOwnHoldsInANewSandbox(t *testing.T) {
	for _, tt := range []struct {
		name, b string
		policy  v1.ContainerRestartPolicy
		rule    *v1.ContainerRestartRule
		again   bool
	}{
		{"never: it ended well", "b:exited", v1.ContainerRestartPolicyNever, nil, false},
		{"never: it failed", "b:exited=255", v1.ContainerRestartPolicyNever, nil, false},
		{"never: it is only about to end", "b:running", v1.ContainerRestartPolicyNever, nil, false},
		{"never: it has not run yet", "b:created", v1.ContainerRestartPolicyNever, nil, true},
		{"never, with a rule that says otherwise", "b:exited=255", v1.ContainerRestartPolicyNever, &v1.ContainerRestartRule{
			Action:    v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{255}},
		}, true},
		{"on failure: it ended well", "b:exited", v1.ContainerRestartPolicyOnFailure, nil, false},
		{"on failure: it failed", "b:exited=255", v1.ContainerRestartPolicyOnFailure, nil, true},
		{"always: it ended well", "b:exited", v1.ContainerRestartPolicyAlways, nil, true},
	} {
		for _, policy := range []v1.RestartPolicy{always, onFailure} {
			pod := podOf(policy, "a", "b")
			pod.Spec.Containers[1].RestartPolicy = &tt.policy
			if tt.rule != nil {
				pod.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{*tt.rule}
			}
			got := Sync(Input{Pod: pod, Seen: look("sandbox:notready", "a:exited=255", tt.b), Now: t0}).words()
			if again := slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "start b#1") }); again != tt.again || !slices.Contains(got, "start a#1") {
				t.Errorf("%s, in a pod with %s: %q", tt.name, policy, got)
			}
		}
	}
}

// kubernetes/kubernetes#51142, #124176: somebody removed the record of a container, whose end the pod's status tells.
func TestWhatHasEndedForGoodNeedsNoRecord(t *testing.T) {
	told := func(name string, exit int32) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: exit}}}}
	}
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		status v1.PodStatus
		change func(*v1.Pod)
		want   []string
	}{
		{"never: it does not run again", never, v1.PodStatus{ContainerStatuses: told("b", 1)}, nil, nil},
		{"on failure: neither, having succeeded", onFailure, v1.PodStatus{ContainerStatuses: told("b", 0)}, nil, nil},
		{"on failure: it does, having failed", onFailure, v1.PodStatus{ContainerStatuses: told("b", 1)}, nil, []string{"start b#0"}},
		{"always: it does", always, v1.PodStatus{ContainerStatuses: told("b", 0)}, nil, []string{"start b#0"}},
		{"it runs when all are made to begin again", never, v1.PodStatus{ContainerStatuses: told("b", 0)}, func(p *v1.Pod) {
			p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
			p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
		}, []string{"start b#0"}},
		{"a debug container never runs again", always, v1.PodStatus{ContainerStatuses: told("b", 0), EphemeralContainerStatuses: told("debug", 0)}, func(p *v1.Pod) {
			p.Spec.EphemeralContainers = podOf(always, "debug").Spec.EphemeralContainers
		}, []string{"start b#0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := podOf(tt.policy, "a", "b")
			pod.Status = tt.status
			if tt.change != nil {
				tt.change(pod)
			}
			if diff := cmp.Diff(tt.want, Sync(Input{Pod: pod, Seen: look("sandbox:ready", "a:running"), Now: t0}).words()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// As above, while a record of an instance before is still there.
func TestWhatHasEndedForGoodIsNotJudgedByAnOlderRecord(t *testing.T) {
	for _, tt := range []struct {
		name, seen string
		policy     v1.RestartPolicy
		id         string
		exit       int32
		count      int32
		created    time.Duration // after the end that is told
		sandbox    string
		want       []string
	}{
		{"it failed before and then succeeded", "b#0:exited=1", onFailure, "rt://b.1", 0, 1, -time.Minute, "ready", nil},
		{"also for a new sandbox", "b#0:exited=1", onFailure, "rt://b.1", 0, 1, -time.Minute, "notready", []string{"stop sandbox s0", "run sandbox#1", "start a#1"}},
		{"the one before was never started", "b#0:created", never, "rt://b.1", 1, 1, -time.Minute, "ready", nil},
		{"the one before is unknown", "b#0:unknown", onFailure, "rt://b.1", 0, 1, -time.Minute, "notready", []string{"stop b.0", "stop sandbox s0", "run sandbox#1", "start a#1"}},
		{"the end told is not for good", "b#0:exited=1", onFailure, "rt://b.1", 2, 1, -time.Minute, "ready", []string{"start b#1"}},
		{"the end told is of the one seen", "b#0:exited=1", onFailure, "rt://b.0", 0, 1, -time.Minute, "ready", []string{"start b#1"}},
		{"what is seen is not older", "b#1:exited=1", onFailure, "rt://b.x", 0, 1, -time.Minute, "ready", []string{"start b#2"}},
		{"all records went, and numbers began anew", "b#0:exited=1", onFailure, "rt://b.x", 0, 3, time.Minute, "ready", []string{"start b#1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := podOf(tt.policy, "a", "b")
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{
				Name: "b", ContainerID: tt.id, RestartCount: tt.count,
				State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: tt.exit, FinishedAt: metav1.NewTime(t0)}},
			}}
			a := "a:running"
			if tt.sandbox == "notready" {
				a = "a:exited=255"
			}
			seen := look("sandbox:"+tt.sandbox, a, tt.seen)
			for i := range seen.Containers {
				seen.Containers[i].Created = t0.Add(tt.created)
			}
			if diff := cmp.Diff(tt.want, Sync(Input{Pod: pod, Seen: seen, Now: t0.Add(time.Hour)}).words()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestProbesRestart(t *testing.T) {
	seen := look("sandbox:ready", "a:running")
	failing := runtime.ProbeResults{"a.0": {Liveness: runtime.Failing}}
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		probes runtime.ProbeResults
		want   []string
	}{
		{"undecided changes nothing", always, nil, nil},
		{"failing liveness stops and starts", always, failing, []string{"stop a.0", "start a#1"}},
		{"failing startup stops and starts", onFailure, runtime.ProbeResults{"a.0": {Startup: runtime.Failing}}, []string{"stop a.0", "start a#1"}},
		{"with never it only stops", never, failing, []string{"stop a.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Sync(Input{Pod: podOf(tt.policy, "a"), Seen: seen, ProbeResults: tt.probes, Now: t0}).words()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	t.Run("c027: the probe's own grace holds", func(t *testing.T) {
		pod := podOf(always, "a")
		pod.Spec.Containers[0].LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(7))}
		got := Sync(Input{Pod: pod, Seen: seen, ProbeResults: failing, Now: t0})
		if got.Stops[0].Grace != 7*time.Second {
			t.Error(got.Stops[0].Grace)
		}
	})
}

func TestChangedImageRestarts(t *testing.T) {
	pod := podOf(never, "a")
	seen := look("sandbox:ready", "a:running")
	seen.Containers[0].Annotations = map[string]string{runtime.AnnotationHash: Hash(&pod.Spec.Containers[0])}
	if got := Sync(Input{Pod: pod, Seen: seen, Now: t0}).words(); got != nil {
		t.Errorf("unchanged: %v", got)
	}
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", Value: "y"}}
	if got := Sync(Input{Pod: pod, Seen: seen, Now: t0}).words(); got != nil {
		t.Errorf("other env: %v", got)
	}
	pod.Spec.Containers[0].Image = "img:2"
	if diff := cmp.Diff([]string{"stop a.0", "start a#1"}, Sync(Input{Pod: pod, Seen: seen, Now: t0}).words()); diff != "" {
		t.Errorf("other image: %s", diff)
	}
}

func TestHashEqualsTheKubelets(t *testing.T) {
	if got := Hash(&v1.Container{Name: "test_container", Image: "foo/image:v1"}); got != "8e45cbd0" {
		t.Error(got)
	}
}

// crashes has a container crash nine times as soon as it runs, and says how many seconds it waits each time, and when the last
// instance begins.
func crashes(t *testing.T, pod *v1.Pod, remembered map[string]Backoff, most time.Duration) (waits []time.Duration, now time.Time) {
	t.Helper()
	now = t0
	for attempt := range 9 {
		seen := look("sandbox:ready", fmt.Sprintf("a#%d:exited=1", attempt))
		ended := now
		seen.Containers[0].Finished = ended
		for {
			p := Sync(Input{Pod: pod, Seen: seen, Backoff: remembered, BackoffMax: most, Now: now})
			if len(p.Actions) == 1 {
				remembered["a"] = p.Actions[0].Backoff
				break
			}
			if w := p.Waiting["a"]; w.Reason != "CrashLoopBackOff" || !strings.HasPrefix(w.Message, "back-off ") || p.RetryAt != w.Until {
				t.Fatalf("%+v", p)
			}
			now = p.RetryAt
		}
		waits = append(waits, now.Sub(ended)/time.Second)
	}
	return waits, now
}

func TestCrashBackoff(t *testing.T) {
	pod := podOf(always, "a")
	remembered := map[string]Backoff{}
	waits, now := crashes(t, pod, remembered, 0)
	if diff := cmp.Diff([]time.Duration{0, 10, 20, 40, 80, 160, 300, 300, 300}, waits); diff != "" {
		t.Errorf("seconds waited (-want +got)\n%s", diff)
	}
	for most, want := range map[time.Duration][]time.Duration{ // KEP-4603
		time.Minute: {0, 10, 20, 40, 60, 60, 60, 60, 60}, 3 * time.Second: {0, 3, 3, 3, 3, 3, 3, 3, 3},
	} {
		if waits, _ := crashes(t, pod, map[string]Backoff{}, most); !cmp.Equal(want, waits) {
			t.Errorf("%v at most: seconds waited (-want +got)\n%s", most, cmp.Diff(want, waits))
		}
	}

	seen := look("sandbox:ready", "a#9:exited=1")
	seen.Containers[0].Finished = remembered["a"].Updated.Add(BackoffReset + time.Second)
	p := Sync(Input{Pod: pod, Seen: seen, Backoff: remembered, Now: seen.Containers[0].Finished})
	if len(p.Actions) != 1 || p.Actions[0].Backoff.Delay != BackoffFirst {
		t.Errorf("after a long life: %+v", p)
	}

	pod.Spec.Containers[0].Image = "mended"
	seen.Containers[0].Finished = now
	if p := Sync(Input{Pod: pod, Seen: seen, Backoff: remembered, Now: now}); len(p.Actions) != 1 {
		t.Errorf("another image does not wait: %+v", p)
	}
}

// Clocks of an engine that are wrong, or were set between an end and a look, make no wait longer and none shorter.
func TestAnEndThatCannotBeTrueIsTakenForWhenItWasSeen(t *testing.T) {
	for _, wrong := range []time.Duration{-3 * time.Hour, -time.Minute, -5 * time.Second, 5 * time.Second, time.Minute, 3 * time.Hour} {
		pod := podOf(always, "a")
		remembered := map[string]Backoff{}
		now := t0
		var waits []time.Duration
		for attempt := range 9 {
			seen := look("sandbox:ready", fmt.Sprintf("a#%d:exited=1", attempt))
			ended := now.Add(30 * time.Second)
			seen.Containers[0].Started, seen.Containers[0].Finished = now.Add(wrong), ended.Add(wrong)
			now = ended
			noticed := map[string]time.Time{seen.Containers[0].ID: ended}
			for range 2 {
				p := Sync(Input{Pod: pod, Seen: seen, Backoff: remembered, Now: now, Noticed: noticed})
				if len(p.Actions) == 1 {
					remembered["a"] = p.Actions[0].Backoff
					break
				}
				now = p.RetryAt
			}
			waits = append(waits, now.Sub(ended)/time.Second)
		}
		if diff := cmp.Diff([]time.Duration{0, 10, 20, 40, 80, 160, 300, 300, 300}, waits); diff != "" {
			t.Errorf("wrong by %v: seconds waited (-want +got)\n%s", wrong, diff)
		}
	}
}

func TestBackoffMessage(t *testing.T) {
	pod := podOf(always, "a")
	seen := look("sandbox:ready", "a:exited=1@3s")
	b := Backoff{Delay: 10 * time.Second, Updated: t0.Add(-4 * time.Second), Key: backoffKey(&pod.Spec.Containers[0])}
	w := Sync(Input{Pod: pod, Seen: seen, Backoff: map[string]Backoff{"a": b}, Now: t0}).Waiting["a"]
	if w.Message != "back-off 10s restarting failed container=a pod=p_ns(u)" {
		t.Error(w.Message)
	}
}

func TestStopOrder(t *testing.T) {
	pod := podOf(always, "init", "side1", "side2", "a", "b")
	got := Stop(pod, look("sandbox:ready", "a:running", "b:running", "side2:running", "side1:running", "init:exited"), 30*time.Second)
	after := map[string][]int{}
	for _, a := range got {
		after[a.Verb.String()+" "+a.ID] = a.After
	}
	want := map[string][]int{"stop a.0": nil, "stop b.0": nil, "stop side2.0": {0, 1}, "stop side1.0": {0, 1, 2}, "stop sandbox s0": {0, 1, 2, 3}}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestGrace(t *testing.T) {
	for _, tt := range []struct {
		name           string
		spec, deletion *int64
		kill, want     time.Duration
	}{
		{"the spec's", new(int64(30)), nil, 0, 30 * time.Second},
		{"the deletion's when shorter", new(int64(30)), new(int64(5)), 0, 5 * time.Second},
		{"the deletion's when longer", new(int64(30)), new(int64(60)), 0, 60 * time.Second},
		{"the killer's when shorter", new(int64(30)), nil, 3 * time.Second, 3 * time.Second},
		{"the killer never lengthens", new(int64(30)), nil, time.Minute, 30 * time.Second},
		{"never less than two seconds", new(int64(0)), nil, 0, 2 * time.Second},
		{"a forced deletion too", new(int64(30)), new(int64(0)), 0, 2 * time.Second},
		{"as long as it takes", new(int64(math.MaxInt64)), nil, 0, math.MaxInt32 * time.Second},
		{"a deletion that takes as long", new(int64(30)), new(int64(math.MaxInt64 / 2)), 0, math.MaxInt32 * time.Second},
		{"a killer shortens that, too", new(int64(math.MaxInt64)), nil, time.Minute, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := podOf(always, "a")
			pod.Spec.TerminationGracePeriodSeconds, pod.DeletionGracePeriodSeconds = tt.spec, tt.deletion
			if got := Grace(pod, runtime.Termination{Grace: tt.kill}); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRestartAllContainers(t *testing.T) {
	pod := podOf(never, "init", "a", "b")
	pod.Spec.Containers[1].RestartPolicy = new(v1.ContainerRestartPolicyNever)
	pod.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
	}}
	got := Sync(Input{Pod: pod, Seen: look("sandbox:ready", "b:exited=88", "a:running", "init:exited"), Now: t0}).words()
	if diff := cmp.Diff([]string{"stop a.0", "remove a.0", "remove init.0", "remove b.0"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	got = Sync(Input{Pod: pod, Seen: look("sandbox:ready"), Now: t0}).words()
	if diff := cmp.Diff([]string{"start init#0"}, got); diff != "" {
		t.Errorf("afterwards (-want +got)\n%s", diff)
	}

	got = Sync(Input{Pod: pod, Seen: look("sandbox:notready", "b:exited=88", "a:exited=137", "init:exited"), Now: t0}).words()
	if diff := cmp.Diff([]string{"remove a.0", "remove init.0", "remove b.0"}, got); diff != "" {
		t.Errorf("its machine went down before that (-want +got)\n%s", diff)
	}

	got = Sync(Input{Pod: pod, Seen: look("sandbox:ready", "b#1:exited=88", "a#1:running", "b#0:exited=7", "a#0:exited"), Now: t0}).words()
	if diff := cmp.Diff([]string{"stop a.1", "remove a.0", "remove a.1", "remove b.0", "remove b.1"}, got); diff != "" {
		t.Errorf("cut short, what is left would not ask any more (-want +got)\n%s", diff)
	}

	seen := look("sandbox:ready", "b#1:exited=88@3s", "a#1:running", "init#1:exited")
	first := Sync(Input{Pod: pod, Seen: seen, Now: t0})
	if !first.Stops[0].Hookless {
		t.Errorf("a hook would run: %+v", first.Stops)
	}
	last := first.Actions[len(first.Actions)-1]
	if last.Backoff.Delay != BackoffFirst {
		t.Errorf("nothing to be remembered: %+v", last)
	}
	last.Backoff.Updated = t0.Add(-time.Minute) // and it ended again 3 s ago
	again := Input{Pod: pod, Seen: seen, Now: t0, Backoff: map[string]Backoff{"b": last.Backoff}}
	if diff := cmp.Diff([]string{"wait b 7s"}, Sync(again).words()); diff != "" {
		t.Errorf("again and again it waits, and a goes on (-want +got)\n%s", diff)
	}
	again.Seen = look("sandbox:notready", "b#1:exited=88@3s", "a#1:exited=137", "init#1:exited")
	if diff := cmp.Diff([]string{"wait b 7s"}, Sync(again).words()); diff != "" {
		t.Errorf("its sandbox ends meanwhile: b does not begin without the others (-want +got)\n%s", diff)
	}
	again.Seen, again.Now = seen, t0.Add(7*time.Second)
	if diff := cmp.Diff([]string{"stop a.1", "remove a.1", "remove init.1", "remove b.1"}, Sync(again).words()); diff != "" {
		t.Errorf("when its time is over (-want +got)\n%s", diff)
	}
}
