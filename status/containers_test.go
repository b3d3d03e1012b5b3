package status

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// lines writes all container statuses, one a line.
func lines(s v1.PodStatus) string {
	var out []string
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for _, cs := range list {
			out = append(out, cs.Name+": "+short(cs))
		}
	}
	return strings.Join(out, "\n")
}

func TestContainers(t *testing.T) {
	app, once := pod(always, "app"), pod(never, "app")
	withInit := pod(always, "i-a", "app")
	withSidecar := pod(always, "s-a", "app")
	debugged := pod(always, "app", "e-d")
	unknown := instance("app", 0, runtime.Unknown)
	oom := exited("i-a", 0, 0)
	oom.Reason = "OOMKilled"
	for _, tt := range []struct {
		rule string
		in   Input
		want string
	}{
		{"nothing exists: created next", Input{Pod: app}, "app: wait=ContainerCreating #0"},
		{
			"nothing exists and there are init containers: everything waits for them, ephemeral ones too",
			Input{Pod: pod(always, "i-a", "app", "e-d")},
			"i-a: wait=PodInitializing #0\napp: wait=PodInitializing #0\ne-d: wait=PodInitializing #0",
		},
		{
			"init containers in the order of the spec, others by name",
			Input{Pod: pod(always, "i-z", "s-a", "log", "app")},
			"i-z: wait=PodInitializing #0\ns-a: wait=PodInitializing #0\napp: wait=PodInitializing #0\nlog: wait=PodInitializing #0",
		},
		{"created is still being created", Input{Pod: app, Seen: seen(instance("app", 0, runtime.Created))}, "app: wait=ContainerCreating #0"},
		{"runs", Input{Pod: app, Seen: seen(running("app", 0))}, "app: run #0 R S"},
		{"an ephemeral container is neither ready nor started", Input{Pod: pod(always, "app", "e-d"), Seen: seen(running("app", 0), running("e-d", 0))}, "app: run #0 R S\ne-d: run #0"},
		{"ended", Input{Pod: app, Seen: seen(exited("app", 0, 3))}, "app: exit=3/Error #0"},
		{"an init container that succeeded is ready", Input{Pod: withInit, Seen: seen(exited("i-a", 0, 0))}, "i-a: exit=0/Completed #0 R\napp: wait=PodInitializing #0"},
		{"an init container killed for memory is not, whatever its exit code", Input{Pod: pod(never, "i-a", "app"), Seen: seen(oom)}, "i-a: exit=0/OOMKilled #0\napp: wait=PodInitializing #0"},
		{"it waits for its next start", Input{Pod: pod(onFailure, "i-a", "app"), Seen: waits(seen(oom), "i-a", "CrashLoopBackOff")}, "i-a: wait=CrashLoopBackOff last:exit=0/OOMKilled #0\napp: wait=PodInitializing #0"},
		{"the newest is the state, the one before the last state, older ones count for nothing", Input{Pod: app, Seen: seen(running("app", 2), exited("app", 1, 1), exited("app", 0, 2))}, "app: run last:exit=1/Error #2 R S"},

		{"waiting for the next start: how it ended moves to the last state", Input{Pod: app, Seen: waits(seen(exited("app", 1, 1)), "app", "CrashLoopBackOff")}, "app: wait=CrashLoopBackOff last:exit=1/Error #1"},
		{"c082: a pull that fails is a waiting reason", Input{Pod: app, Seen: waits(seen(), "app", "ErrImagePull")}, "app: wait=ErrImagePull #0"},
		{"a reason for what is not restarted counts for nothing", Input{Pod: once, Seen: waits(seen(exited("app", 0, 1)), "app", "CrashLoopBackOff")}, "app: exit=1/Error #0"},
		{"a reason for what runs counts for nothing", Input{Pod: app, Seen: waits(seen(running("app", 0)), "app", "CrashLoopBackOff")}, "app: run #0 R S"},
		{"a pod being deleted restarts nothing", Input{Pod: with(pod(always, "app"), deleted), Seen: waits(seen(exited("app", 0, 1)), "app", "CrashLoopBackOff")}, "app: exit=1/Error #0"},
		{"an init container that succeeded does not wait", Input{Pod: withInit, Seen: waits(seen(exited("i-a", 0, 0)), "i-a", "CrashLoopBackOff")}, "i-a: exit=0/Completed #0 R\napp: wait=PodInitializing #0"},
		{
			"c005: the record behind a crash loop is collected: count and last state stay",
			Input{Pod: app, Last: told(app, waits(seen(exited("app", 4, 1)), "app", "CrashLoopBackOff")), Seen: waits(seen(), "app", "CrashLoopBackOff")},
			"app: wait=CrashLoopBackOff last:exit=1/Error #4",
		},
		{"the last state is another instance than the state", Input{Pod: app, Last: told(app, waits(seen(exited("app", 0, 1)), "app", "CrashLoopBackOff")), Seen: seen(exited("app", 0, 1))}, "app: exit=1/Error #0"},

		{"c001: an init container removed while a regular one exists has succeeded", Input{Pod: withInit, Seen: seen(running("app", 0))}, "i-a: exit=0/Completed #0 R\napp: run #0 R S"},
		{"one that is known to have ended keeps what is known", Input{Pod: withInit, Last: told(withInit, seen(exited("i-a", 2, 0))), Seen: seen(running("app", 0))}, "i-a: exit=0/Completed #2 R\napp: run #0 R S"},
		{"a missing sidecar waits", Input{Pod: withSidecar, Seen: seen(running("app", 0))}, "s-a: wait=PodInitializing #0\napp: run #0 R S"},
		{"an unknown regular container proves nothing about init containers", Input{Pod: withInit, Seen: seen(unknown)}, "i-a: wait=PodInitializing #0\napp: wait=PodInitializing #0"},

		{"it ran and is gone: stopped, restarted once more", Input{Pod: app, Last: told(app, seen(running("app", 0))), Seen: seen()}, "app: wait=ContainerCreating last:exit=137/ContainerStatusUnknown #1"},
		{"it ran and is gone from a pod being deleted: not restarted", Input{Pod: with(pod(always, "app"), deleted), Last: told(app, seen(running("app", 0))), Seen: seen()}, "app: wait=ContainerCreating last:exit=137/ContainerStatusUnknown #0"},
		{"it ran, is gone, and had ended before: the last state stays", Input{Pod: app, Last: told(app, seen(running("app", 1), exited("app", 0, 2))), Seen: seen()}, "app: wait=ContainerCreating last:exit=2/Error #1"},
		{"it waited and is still not there", Input{Pod: app, Last: told(app, seen()), Seen: seen()}, "app: wait=ContainerCreating #0"},
		{"it ran and the engine cannot tell: ended, restarted once more", Input{Pod: once, Last: told(once, seen(running("app", 0))), Seen: seen(unknown)}, "app: exit=137/ContainerStatusUnknown #1"},
		{"that is still so at the next look", Input{Pod: once, Last: told(once, seen(running("app", 0)), seen(unknown)), Seen: seen(unknown)}, "app: exit=137/ContainerStatusUnknown #1"},
		{"its next instance is not counted twice", Input{Pod: app, Last: told(app, seen(running("app", 0)), seen(unknown)), Seen: seen(running("app", 1), unknown)}, "app: run last:exit=137/ContainerStatusUnknown #1 R S"},
		{"never seen running and the engine cannot tell: waits", Input{Pod: app, Seen: seen(unknown)}, "app: wait=ContainerCreating #0"},

		{"c070: a zeroed record does not replace a termination", Input{Pod: once, Last: told(once, seen(exited("app", 0, 1))), Seen: seen(instance("app", 0, runtime.Exited))}, "app: exit=1/Error #0"},
		{"c070: a missing record does not replace a termination", Input{Pod: once, Last: told(once, seen(exited("app", 0, 1))), Seen: seen()}, "app: exit=1/Error #0"},
		{"c013: a sidecar that was restarted runs again", Input{Pod: with(pod(onFailure, "s-a", "app")), Last: told(withSidecar, seen(running("app", 0), exited("s-a", 0, 1))), Seen: seen(running("s-a", 1), running("app", 0), exited("s-a", 0, 1))}, "s-a: run last:exit=1/Error #1 R S\napp: run #0 R S"},

		{"the count never falls below what was told", Input{Pod: app, Last: told(app, seen(running("app", 5))), Seen: seen(running("app", 2))}, "app: run #5 R S"},
		{"running again with a count that did not move counts one more", Input{Pod: app, Last: told(app, seen(exited("app", 1, 1))), Seen: seen(running("app", 0))}, "app: run last:exit=1/Error #2 R S"},
		{"running again with a higher count counts as the engine says", Input{Pod: app, Last: told(app, seen(exited("app", 0, 1))), Seen: seen(running("app", 1), exited("app", 0, 1))}, "app: run last:exit=1/Error #1 R S"},
		{"the same instance running after all is no restart", Input{Pod: app, Last: told(app, seen(exited("app", 1, 1))), Seen: seen(running("app", 1))}, "app: run #1 R S"},
		{"an ephemeral one that ran and is gone has ended", Input{Pod: debugged, Last: told(debugged, seen(running("app", 0), running("e-d", 0))), Seen: seen(running("app", 0))}, "app: run #0 R S\ne-d: exit=137/ContainerStatusUnknown #0"},
		{"that is still so when it has not come back", Input{Pod: debugged, Last: told(debugged, seen(running("app", 0), running("e-d", 0)), seen(running("app", 0))), Seen: seen(running("app", 0))}, "app: run #0 R S\ne-d: exit=137/ContainerStatusUnknown #0"},
		{"c003: a container found exited is reported as it ended", Input{Pod: once, Seen: seen(exited("app", 0, 0))}, "app: exit=0/Completed #0"},
		{"a stranger among the containers is ignored", Input{Pod: app, Seen: seen(running("pause", 0))}, "app: wait=ContainerCreating #0"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			tt.in.Now, tt.in.RuntimeName = now, "rt"
			if diff := cmp.Diff(tt.want, lines(Compute(tt.in))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadyAndStarted(t *testing.T) {
	const pass, fail = runtime.Passing, runtime.Failing
	ready := with(pod(always, "s-a", "app"), on("app", readiness))
	slow := with(pod(always, "app"), on("app", startup))
	both := with(pod(always, "app"), on("app", startup), on("app", readiness))
	up := seen(running("s-a", 0), running("app", 0))
	started := Compute(Input{Pod: slow, Seen: up, RuntimeName: "rt", Now: now, ProbeResults: runtime.ProbeResults{"app-0": {Startup: pass}}})
	for _, tt := range []struct {
		rule    string
		pod     *v1.Pod
		last    v1.PodStatus
		seen    runtime.Pod
		results runtime.ProbeResults
		want    string
	}{
		{"readiness undecided is not ready", ready, v1.PodStatus{}, up, nil, "run #0 S"},
		{"readiness failing is not ready", ready, v1.PodStatus{}, up, runtime.ProbeResults{"app-0": {Readiness: fail}}, "run #0 S"},
		{"readiness passing is ready", ready, v1.PodStatus{}, up, runtime.ProbeResults{"app-0": {Readiness: pass}}, "run #0 R S"},
		{"what another instance passed does not count", ready, v1.PodStatus{}, seen(running("app", 1)), runtime.ProbeResults{"app-0": {Readiness: pass}}, "run #1 S"},
		{"ended is not ready, whatever the probe said", ready, v1.PodStatus{}, seen(exited("app", 0, 0)), runtime.ProbeResults{"app-0": {Readiness: pass}}, "exit=0/Completed #0"},
		{"startup undecided is not started, hence not ready", slow, v1.PodStatus{}, up, nil, "run #0"},
		{"startup failing is not started", slow, started, up, runtime.ProbeResults{"app-0": {Startup: fail}}, "run #0"},
		{"startup passing is started and, without a readiness probe, ready", slow, v1.PodStatus{}, up, runtime.ProbeResults{"app-0": {Startup: pass}}, "run #0 R S"},
		{"not started is not ready, whatever readiness said", both, v1.PodStatus{}, up, runtime.ProbeResults{"app-0": {Readiness: pass}}, "run #0"},
		{"c035: started is kept for the same container while nothing has decided", slow, started, up, nil, "run #0 R S"},
		{"started is not kept for the next instance", slow, started, seen(running("app", 1)), nil, "run #1"},
		{"c034: not started stays not started", slow, told(slow, up), up, nil, "run #0"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := Compute(Input{Pod: tt.pod, Last: tt.last, Seen: tt.seen, ProbeResults: tt.results, RuntimeName: "rt", Now: now})
			if got := short(find(s.ContainerStatuses, "app")); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestContainersOfAnEndedPod(t *testing.T) {
	p := pod(always, "i-a", "i-b", "i-c", "app")
	for _, tt := range []struct {
		rule string
		pod  *v1.Pod
		last v1.PodStatus
		seen runtime.Pod
		want string
	}{
		{"what still shows as running ended unseen", pod(always, "app"), v1.PodStatus{}, seen(running("app", 0)), "app: exit=137/ContainerStatusUnknown #0"},
		{"what ended stays as it ended", pod(always, "app"), v1.PodStatus{}, seen(exited("app", 0, 2)), "app: exit=2/Error #0"},
		{"without init containers a container that never ran is marked too", pod(always, "app"), v1.PodStatus{}, seen(), "app: exit=137/ContainerStatusUnknown #0"},
		{
			"the first init container is always marked, what never started is not", p,
			v1.PodStatus{},
			seen(),
			"i-a: exit=137/ContainerStatusUnknown #0\ni-b: wait=PodInitializing #0\ni-c: wait=PodInitializing #0\napp: wait=PodInitializing #0",
		},
		{
			"init containers are marked up to the last that started", p,
			v1.PodStatus{},
			seen(running("i-b", 0), exited("i-a", 0, 0)),
			"i-a: exit=0/Completed #0 R\ni-b: exit=137/ContainerStatusUnknown #0\ni-c: wait=PodInitializing #0\napp: wait=PodInitializing #0",
		},
		{
			"with all init containers done the regular ones may have run", p, told(p, seen(exited("i-c", 0, 0), exited("i-b", 0, 0), exited("i-a", 0, 0))), seen(),
			"i-a: exit=0/Completed #0 R\ni-b: exit=0/Completed #0 R\ni-c: exit=0/Completed #0 R\napp: exit=137/ContainerStatusUnknown #0",
		},
		{
			"the last init container ended with 0 after the pod was deleted: nothing came of it", with(pod(always, "i-a", "app"), deletedAt(now.Add(-time.Second))),
			v1.PodStatus{},
			seen(exited("i-a", 0, 0)), "i-a: exit=0/Completed #0 R\napp: wait=PodInitializing #0",
		},
		{
			"it ended before", with(pod(always, "i-a", "app"), deletedAt(now)),
			v1.PodStatus{},
			seen(exited("i-a", 0, 0)), "i-a: exit=0/Completed #0 R\napp: exit=137/ContainerStatusUnknown #0",
		},
		{"c014: with a sidecar that has not started the regular ones never ran", with(pod(always, "s-a", "app"), on("s-a", startup)), v1.PodStatus{}, seen(exited("s-a", 0, 137)), "s-a: exit=137/Error #0\napp: wait=PodInitializing #0"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			in := Input{Pod: tt.pod, Last: tt.last, Seen: tt.seen, Termination: &runtime.Termination{}, Ended: true, RuntimeName: "rt", Now: now}
			s := Compute(in)
			if diff := cmp.Diff(tt.want, lines(s)); diff != "" {
				t.Error(diff)
			}
			in.Last = s
			if diff := cmp.Diff(s, Compute(in)); diff != "" {
				t.Errorf("computed again it differs: %s", diff)
			}
		})
	}
}

// A pod restarts as a whole: a rule fires, the instances are taken away, and it starts from its first init container.
func TestRestartAllContainers(t *testing.T) {
	p := with(pod(never, "i-a", "app", "log"), on("app", rule(v1.ContainerRestartRuleActionRestartAllContainers, 42)))
	var last v1.PodStatus
	for _, step := range []struct{ what, want string }{
		{"runs", "Running False | i-a: exit=0/Completed #0 R\napp: run #0 R S\nlog: run #0 R S"},
		{"rule fires", "Running True | i-a: exit=0/Completed #0 R\napp: exit=42/Error #0\nlog: run #0 R S"},
		{"app removed", "Running True | i-a: exit=0/Completed #0 R\napp: wait=RestartingAllContainers last:exit=137/RestartingAllContainers #1\nlog: run #0 R S"},
		{"all removed", "Running False | i-a: wait=RestartingAllContainers last:exit=137/RestartingAllContainers #1\napp: wait=PodInitializing last:exit=137/RestartingAllContainers #1\nlog: wait=RestartingAllContainers last:exit=137/RestartingAllContainers #1"},
		{"init runs", "Pending False | i-a: run last:exit=137/RestartingAllContainers #1 S\napp: wait=PodInitializing last:exit=137/RestartingAllContainers #1\nlog: wait=PodInitializing last:exit=137/RestartingAllContainers #1"},
		{"all run", "Running False | i-a: exit=0/Completed last:exit=137/RestartingAllContainers #1 R\napp: run last:exit=137/RestartingAllContainers #1 R S\nlog: run last:exit=137/RestartingAllContainers #1 R S"},
	} {
		look := map[string]runtime.Pod{
			"runs":        seen(running("app", 0), running("log", 0), exited("i-a", 0, 0)),
			"rule fires":  seen(exited("app", 0, 42), running("log", 0), exited("i-a", 0, 0)),
			"app removed": seen(running("log", 0), exited("i-a", 0, 0)),
			"all removed": seen(),
			"init runs":   seen(running("i-a", 1)),
			"all run":     seen(running("app", 1), running("log", 1), exited("i-a", 1, 0)),
		}[step.what]
		last = Compute(Input{Pod: p, Last: last, Seen: look, RuntimeName: "rt", Now: now})
		c := condition(last.Conditions, v1.AllContainersRestarting)
		if diff := cmp.Diff(step.want, string(last.Phase)+" "+string(c.Status)+" | "+lines(last)); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
		if init := condition(last.Conditions, v1.PodInitialized); init.Status != v1.ConditionTrue {
			t.Errorf("%s: no longer Initialized", step.what)
		}
	}
}

func TestContainerFields(t *testing.T) {
	p := with(pod(always, "app"), on("app", func(c *v1.Container) {
		yes, maybe := v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible
		c.VolumeMounts = []v1.VolumeMount{
			{Name: "data", MountPath: "/data"},
			{Name: "conf", MountPath: "/conf", ReadOnly: true},
			{Name: "deep", MountPath: "/deep", ReadOnly: true, RecursiveReadOnly: &yes},
			{Name: "hope", MountPath: "/hope", ReadOnly: true, RecursiveReadOnly: &maybe},
			{Name: "vain", MountPath: "/vain", ReadOnly: true, RecursiveReadOnly: &maybe},
		}
	}))
	c := running("app", 2)
	c.Mounts = []runtime.Mount{{ContainerPath: "/hope", ReadOnly: true, Recursive: true}, {ContainerPath: "/vain", ReadOnly: true}}
	c.Devices = []runtime.DeviceHealth{{Resource: "x/gpu", ID: "0", Health: "Healthy"}, {Resource: "x/nic", ID: "n", Health: "Unknown"}, {Resource: "x/gpu", ID: "1", Health: "Unhealthy"}}
	c.Started = now.Add(-1500 * time.Millisecond)

	got := Compute(Input{Pod: p, Seen: seen(c), RuntimeName: "containerd", Now: now}).ContainerStatuses[0]
	off, deep := v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyEnabled
	want := v1.ContainerStatus{
		Name: "app", Image: "seen/app", ImageID: "seen/app@sha256:2", ContainerID: "containerd://app-2",
		State:        v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: stamp(now.Add(-2 * time.Second))}},
		Ready:        true,
		Started:      new(true),
		RestartCount: 2,
		Resources:    &v1.ResourceRequirements{},
		VolumeMounts: []v1.VolumeMountStatus{
			{Name: "data", MountPath: "/data"},
			{Name: "conf", MountPath: "/conf", ReadOnly: true, RecursiveReadOnly: &off},
			{Name: "deep", MountPath: "/deep", ReadOnly: true, RecursiveReadOnly: &deep},
			{Name: "hope", MountPath: "/hope", ReadOnly: true, RecursiveReadOnly: &deep},
			{Name: "vain", MountPath: "/vain", ReadOnly: true, RecursiveReadOnly: &off},
		},
		AllocatedResourcesStatus: []v1.ResourceStatus{
			{Name: "x/gpu", Resources: []v1.ResourceHealth{{ResourceID: "0", Health: "Healthy"}, {ResourceID: "1", Health: "Unhealthy"}}},
			{Name: "x/nic", Resources: []v1.ResourceHealth{{ResourceID: "n", Health: "Unknown"}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if s := Compute(Input{Pod: p, Now: now}).ContainerStatuses[0]; s.Image != "spec/app" || len(s.VolumeMounts) != 5 || s.ContainerID != "" {
		t.Errorf("before it exists: %+v", s)
	}
	// An old termination is reused as it is, its image and ID included.
	last := told(p, seen(exited("app", 0, 1)))
	if diff := cmp.Diff(last.ContainerStatuses[0], Compute(Input{Pod: p, Last: last, Now: now}).ContainerStatuses[0]); diff != "" {
		t.Errorf("a termination whose record is gone changed: %s", diff)
	}
}

// kubernetes/kubernetes#51142: somebody removed the newest record of what had ended for good, and left an older one.
func TestAnEndThatWasToldIsNotThatOfAnOlderRecord(t *testing.T) {
	p := pod(onFailure, "app", "log")
	last := told(p, seen(running("log", 0), exited("app", 1, 0), exited("app", 0, 1)))
	got := Compute(Input{Pod: p, Last: last, Seen: seen(running("log", 0), exited("app", 0, 1)), RuntimeName: "rt", Now: now})
	if diff := cmp.Diff(last, got); diff != "" {
		t.Errorf("(-told before +now)\n%s", diff)
	}
}

func TestC077TerminationIsPassedThrough(t *testing.T) {
	for _, tt := range []struct {
		reason string
		code   int32
	}{{"OOMKilled", 137}, {"OOMKilled", 143}, {"OOMKilled", 0}, {"Error", 137}} {
		c := exited("app", 0, tt.code)
		c.Reason, c.Message = tt.reason, "said last"
		s := Compute(Input{Pod: pod(never, "app"), Seen: seen(c), RuntimeName: "rt", Now: now})
		want := v1.ContainerStateTerminated{
			ExitCode: tt.code, Reason: tt.reason, Message: "said last", ContainerID: "rt://app-0",
			StartedAt: stamp(c.Started), FinishedAt: stamp(c.Finished),
		}
		if diff := cmp.Diff(&want, s.ContainerStatuses[0].State.Terminated); diff != "" {
			t.Errorf("%s %d: %s", tt.reason, tt.code, diff)
		}
	}
}

// What ends in the middle of a letter, and what is no text at all, is told as a server keeps it.
func TestTerminationMessagesAreText(t *testing.T) {
	for said, want := range map[string]string{"ende \xe3\x81\x82": "ende \u3042", "\x81\x82 ende": "\uFFFD\uFFFD ende", "caf\xe9": "caf\uFFFD", "": ""} {
		c := exited("app", 0, 1)
		c.Message = said
		s := Compute(Input{Pod: pod(always, "app"), Seen: seen(c), Now: now})
		if got := s.ContainerStatuses[0].State.Terminated.Message; got != want {
			t.Errorf("%q is told as %q, want %q", said, got, want)
		}
		b, err := json.Marshal(s.ContainerStatuses[0].State.Terminated)
		var kept v1.ContainerStateTerminated
		if err := errors.Join(err, json.Unmarshal(b, &kept)); err != nil || kept.Message != want {
			t.Errorf("a server keeps %q, %v", kept.Message, err)
		}
	}
}

func TestTerminationMessagesShareTwelveKiB(t *testing.T) {
	a, b := exited("app", 0, 1), exited("log", 0, 1)
	a.Message, b.Message = strings.Repeat("a", 20<<10), "short"
	s := Compute(Input{Pod: pod(never, "app", "log"), Seen: seen(a, b), Now: now})
	if n := len(s.ContainerStatuses[0].State.Terminated.Message); n != 6<<10 {
		t.Errorf("message of %d bytes, want %d", n, 6<<10)
	}
	if m := s.ContainerStatuses[1].State.Terminated.Message; m != "short" {
		t.Errorf("message %q", m)
	}
}

// A pod that is sized as a whole has what it had until it was given more or less.
func TestPodResources(t *testing.T) {
	sizes := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	p := pod(always, "app")
	p.Spec.Resources = &v1.ResourceRequirements{Requests: sizes("1", "1Gi"), Limits: sizes("2", "2Gi")}
	p.Spec.Overhead = sizes("250m", "64Mi")
	had := runtime.Sizes{CPURequest: 500, CPULimit: 2000, MemoryRequest: 1 << 30, MemoryLimit: 3 << 30}
	for _, tt := range []struct {
		rule             string
		phase            v1.PodPhase
		applied          *runtime.Sizes
		requests, limits v1.ResourceList
	}{
		{"nothing is known", v1.PodRunning, nil, sizes("1250m", "1088Mi"), sizes("2250m", "2112Mi")},
		{"a resize is under way", v1.PodRunning, &had, sizes("750m", "1088Mi"), sizes("2250m", "3136Mi")},
		{"what does not run has what it will get", v1.PodPending, &had, sizes("1250m", "1088Mi"), sizes("2250m", "2112Mi")},
	} {
		s := v1.PodStatus{Phase: tt.phase}
		setResources(&s, p, tt.applied)
		want := v1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}
		if diff := cmp.Diff(want, *s.Resources); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.rule, diff)
		}
		if diff := cmp.Diff(sizes("1250m", "1088Mi"), s.AllocatedResources); diff != "" {
			t.Errorf("%s, promised (-want +got)\n%s", tt.rule, diff)
		}
	}
}

func TestContainerResources(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	for _, tt := range []struct {
		rule            string
		requests, limit v1.ResourceList
		kernel          *runtime.Resources
		applied         *runtime.Sizes
		want            string // cpu request, cpu limit, memory request, memory limit
	}{
		{"not known: as allocated", list("100m", "1Mi"), list("1", "2Mi"), nil, nil, "100m 1 1Mi 2Mi"},
		{"as allocated", list("100m", "1Mi"), list("1", "2Mi"), &runtime.Resources{CPUShares: 102, CPUQuota: 100000, CPUPeriod: 100000, Memory: 2 << 20}, nil, "100m 1 1Mi 2Mi"},
		{"a resize under way shows what the kernel has", list("200m", "1Mi"), list("2", "4Mi"), &runtime.Resources{CPUShares: 102, CPUQuota: 100000, CPUPeriod: 100000, Memory: 2 << 20}, nil, "100m 1 1Mi 2Mi"},
		{"below what the kernel can do the spec stays", list("1m", "1Mi"), list("5m", "2Mi"), &runtime.Resources{CPUShares: 2, CPUQuota: 1000, CPUPeriod: 100000}, nil, "1m 5m 1Mi 2Mi"},
		{"unlimited in the kernel says nothing", list("100m", "1Mi"), list("1", "2Mi"), &runtime.Resources{CPUQuota: -1, CPUPeriod: 100000}, nil, "100m 1 1Mi 2Mi"},
		{"no limits in the spec: none shown", list("100m", "1Mi"), nil, &runtime.Resources{CPUShares: 204, Memory: 2 << 20}, nil, "200m 0 1Mi 0"},
		{"what the kernel does not know is as it was applied", list("200m", "4Mi"), list("2", "8Mi"), nil, &runtime.Sizes{CPURequest: 100, CPULimit: 1000, MemoryRequest: 1 << 20, MemoryLimit: 2 << 20}, "100m 1 1Mi 2Mi"},
		{"the kernel knows better", list("200m", "4Mi"), list("2", "8Mi"), &runtime.Resources{CPUShares: 153, CPUQuota: 150000, CPUPeriod: 100000, Memory: 3 << 20}, &runtime.Sizes{CPURequest: 100, CPULimit: 1000, MemoryRequest: 1 << 20, MemoryLimit: 2 << 20}, "150m 1500m 1Mi 3Mi"},
		{"what was applied is as little as what the spec says, to the kernel", list("0", "4Mi"), list("0", "8Mi"), nil, &runtime.Sizes{CPURequest: 2, CPULimit: 10}, "0 0 4Mi 8Mi"},
		{"what was applied is more than the least", list("0", "4Mi"), list("0", "8Mi"), nil, &runtime.Sizes{CPURequest: 3, CPULimit: 11}, "3m 11m 4Mi 8Mi"},
		{"a limit of the pod as a whole is none of the container", list("200m", "4Mi"), nil, nil, &runtime.Sizes{CPULimit: 1000, MemoryLimit: 2 << 20}, "200m 0 4Mi 0"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			p := with(pod(always, "app"), on("app", func(c *v1.Container) { c.Resources.Requests, c.Resources.Limits = tt.requests, tt.limit }))
			c := running("app", 0)
			c.Resources = tt.kernel
			look := seen(c)
			if tt.applied != nil {
				look.Applied = map[string]runtime.Sizes{"app": *tt.applied}
			}
			s := Compute(Input{Pod: p, Seen: look, Now: now}).ContainerStatuses[0]
			r := s.Resources
			if got := r.Requests.Cpu().String() + " " + r.Limits.Cpu().String() + " " + r.Requests.Memory().String() + " " + r.Limits.Memory().String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if diff := cmp.Diff(tt.requests, s.AllocatedResources); diff != "" {
				t.Errorf("allocated: %s", diff)
			}
		})
	}
}
