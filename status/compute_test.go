package status

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestRejectedPod(t *testing.T) {
	p := pod(always, "app")
	p.Status.Phase = v1.PodPending
	p.Status.QOSClass = v1.PodQOSBurstable
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}
	in := Input{Pod: p, Rejection: &runtime.Rejection{Reason: "OutOfcpu", Message: "not enough cpu"}, Now: now}
	want := v1.PodStatus{
		Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: not enough cpu",
		QOSClass: v1.PodQOSBurstable, StartTime: new(stamp(now)),
		ObservedGeneration: 3, // c083
	}
	s := Compute(in)
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	in.Last, in.Ended, in.Now = s, true, now.Add(time.Hour)
	if diff := cmp.Diff(want, Compute(in)); diff != "" {
		t.Errorf("once ended it differs: %s", diff)
	}
	in.Last = v1.PodStatus{Phase: v1.PodSucceeded, Reason: "Done"}
	if got := phaseLine(Compute(in)); got != "Succeeded Done" {
		t.Errorf("a pod that had succeeded: %s", got)
	}
}

func TestStartTimeIsTheFirst(t *testing.T) {
	p := pod(always, "app")
	first := Compute(Input{Pod: p, Now: now.Add(300 * time.Millisecond)})
	if want := stamp(now); !first.StartTime.Equal(&want) {
		t.Errorf("start %s, want %s", first.StartTime, want)
	}
	if s := Compute(Input{Pod: p, Last: first, Now: now.Add(time.Hour)}); !s.StartTime.Equal(first.StartTime) {
		t.Errorf("start moved to %s", s.StartTime)
	}
	p.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: new(metav1.NewTime(now.Add(-time.Hour)))}
	if s := Compute(Input{Pod: p, Now: now}); !s.StartTime.Equal(p.Status.StartTime) {
		t.Errorf("what the API shows was not kept: %s", s.StartTime)
	}
}

func TestC083ObservedGenerationFollowsAndNeverFalls(t *testing.T) {
	p := pod(always, "app")
	s := Compute(Input{Pod: p, Now: now})
	if s.ObservedGeneration != 3 {
		t.Errorf("generation %d, want 3", s.ObservedGeneration)
	}
	p.Generation = 2
	if s = Compute(Input{Pod: p, Last: s, Now: now}); s.ObservedGeneration != 3 {
		t.Errorf("generation fell to %d", s.ObservedGeneration)
	}
}

func TestWhatOthersWriteIsKept(t *testing.T) {
	p := pod(always, "app")
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}}
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}
	last := v1.PodStatus{Phase: v1.PodRunning, VolumeHealth: []v1.PodVolumeHealth{{}}}
	s := Compute(Input{Pod: p, Last: last, Now: now})
	if len(s.ResourceClaimStatuses) != 1 || s.ExtendedResourceClaimStatus == nil || len(s.VolumeHealth) != 1 {
		t.Errorf("lost: %+v", s)
	}
	s.ResourceClaimStatuses[0].Name = "scribbled"
	if p.Status.ResourceClaimStatuses[0].Name != "gpu" {
		t.Error("the answer shares memory with the pod")
	}
}

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		host    bool     // network of the host
		hostIPs []string // of the node
		before  string   // pod addresses told before
		seen    []string // of the sandbox
		ended   bool
		want    string // host addresses | pod addresses
	}{
		{"nothing known", false, nil, "", nil, false, "|"},
		{"one of each", false, []string{"192.0.2.1"}, "", []string{"10.0.0.7"}, false, "192.0.2.1|10.0.0.7"},
		{"c085: the node's primary family first", false, []string{"192.0.2.1", "2001:db8::1"}, "", []string{"fd00::7", "10.0.0.7"}, false, "192.0.2.1 2001:db8::1|10.0.0.7 fd00::7"},
		{"on a node that prefers IPv6", false, []string{"2001:db8::1", "192.0.2.1"}, "", []string{"10.0.0.7", "fd00::7"}, false, "2001:db8::1 192.0.2.1|fd00::7 10.0.0.7"},
		{"IPv4 first while the node's family is not known", false, nil, "", []string{"fd00::7", "10.0.0.7"}, false, "|10.0.0.7 fd00::7"},
		{"the first of each family, in canonical text, nonsense left out", false, []string{"192.0.2.1"}, "", []string{"bogus", "fd00:0::7", "fd00::8", "10.0.0.7", "10.0.0.8"}, false, "192.0.2.1|10.0.0.7 fd00::7"},
		{"a family the node has not", false, []string{"192.0.2.1"}, "", []string{"fd00::7"}, false, "192.0.2.1|fd00::7"},
		{"a pod that lost its sandbox has none", false, nil, "10.0.0.7", nil, false, "|"},
		{"an ended pod keeps them", false, nil, "10.0.0.7 fd00::7", nil, true, "|10.0.0.7 fd00::7"},

		{"c084: [v4]", true, []string{"192.0.2.1"}, "", nil, false, "192.0.2.1|192.0.2.1"},
		{"c084: [v4, v6]", true, []string{"192.0.2.1", "2001:db8::1"}, "", nil, false, "192.0.2.1 2001:db8::1|192.0.2.1 2001:db8::1"},
		{"c084: [v6, v4] and the primary is v4 already", true, []string{"2001:db8::1", "192.0.2.1"}, "192.0.2.1", nil, false, "2001:db8::1 192.0.2.1|192.0.2.1 2001:db8::1"},
		{"c084: two v4", true, []string{"192.0.2.1", "192.0.2.2"}, "", nil, false, "192.0.2.1|192.0.2.1"},
		{"on the host's network they stay when the node's change", true, []string{"192.0.2.9"}, "192.0.2.1", nil, false, "192.0.2.9|192.0.2.1"},
		{"on the host's network a second family is added", true, []string{"192.0.2.9", "2001:db8::1"}, "192.0.2.1", nil, false, "192.0.2.9 2001:db8::1|192.0.2.1 2001:db8::1"},
		{"on the host's network an engine may know the address", true, nil, "", []string{"192.0.2.1"}, false, "|192.0.2.1"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			p := pod(always, "app")
			p.Spec.HostNetwork = tt.host
			last := v1.PodStatus{Phase: v1.PodRunning}
			for ip := range strings.FieldsSeq(tt.before) {
				last.PodIPs = append(last.PodIPs, v1.PodIP{IP: ip})
			}
			s := Compute(Input{Pod: p, Last: last, Seen: runtime.Pod{IPs: tt.seen}, HostIPs: tt.hostIPs, Ended: tt.ended, Now: now})
			var hosts, pods []string
			for _, ip := range s.HostIPs {
				hosts = append(hosts, ip.IP)
			}
			for _, ip := range s.PodIPs {
				pods = append(pods, ip.IP)
			}
			if got := strings.Join(hosts, " ") + "|" + strings.Join(pods, " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if len(pods) > 0 && s.PodIP != pods[0] || len(hosts) > 0 && s.HostIP != hosts[0] {
				t.Errorf("singular addresses %s, %s are not the first", s.HostIP, s.PodIP)
			}
		})
	}
	last := v1.PodStatus{Phase: v1.PodRunning, HostIP: "192.0.2.1", HostIPs: []v1.HostIP{{IP: "192.0.2.1"}}}
	if s := Compute(Input{Pod: pod(always, "app"), Last: last, Now: now}); s.HostIP != "192.0.2.1" || len(s.HostIPs) != 1 {
		t.Errorf("host addresses forgotten while they are not known: %v", s.HostIPs)
	}
}

// A world is a pod whose containers live at random, as an engine with a bad memory would show them.
type world struct {
	*rand.Rand
	pod   *v1.Pod
	seen  runtime.Pod
	ids   int
	count map[string]int
}

func newWorld(r *rand.Rand) *world {
	policy := []v1.RestartPolicy{always, onFailure, never}[r.IntN(3)]
	names := [][]string{{"app"}, {"app", "log"}, {"i-a", "app"}, {"i-a", "s-b", "i-c", "app", "log", "e-d"}}[r.IntN(4)]
	p := pod(policy, names...)
	switch r.IntN(4) {
	case 0:
		with(p, on("app", readiness))
	case 1:
		with(p, on("app", startup))
	case 2:
		with(p, on("app", rule(v1.ContainerRestartRuleActionRestartAllContainers, 2)))
	}
	if r.IntN(5) == 0 {
		fromFile(p)
	}
	return &world{Rand: r, pod: p, seen: seen(), count: map[string]int{}}
}

func (w *world) names() (out []string) {
	for c := range restartables(w.pod) {
		out = append(out, c.Name)
	}
	for _, c := range w.pod.Spec.EphemeralContainers {
		out = append(out, c.Name)
	}
	return out
}

// step changes one thing. What was handed out before stays as it was.
func (w *world) step() {
	w.seen = w.seen.Clone()
	w.seen.Containers = slices.Clone(w.seen.Containers)
	w.seen.Sandboxes = slices.Clone(w.seen.Sandboxes)
	name := w.names()[w.IntN(len(w.names()))]
	switch n := len(w.seen.Containers); w.IntN(8) {
	case 0, 1:
		c := running(name, w.count[name])
		w.ids++
		c.ID, c.SandboxID = fmt.Sprint(name, "-", w.ids), "sb"
		w.count[name]++
		w.seen.Containers = append([]runtime.Container{c}, w.seen.Containers...)
	case 2, 3:
		if c := w.seen.Newest(name); c != nil && c.State == runtime.Running {
			end := exited(name, c.Restarts, int32(w.IntN(3)))
			end.ID, end.SandboxID = c.ID, c.SandboxID
			*c = end
		}
	case 4:
		if n > 0 {
			i := w.IntN(n)
			w.seen.Containers = append(w.seen.Containers[:i], w.seen.Containers[i+1:]...)
		}
	case 5:
		if n > 0 {
			c := &w.seen.Containers[w.IntN(n)]
			c.State, c.ExitCode, c.Finished = []runtime.State{runtime.Unknown, runtime.Created, runtime.Exited}[w.IntN(3)], 0, time.Time{}
		}
	case 6:
		w.seen = waits(w.seen, name, "CrashLoopBackOff")
	case 7:
		if w.IntN(2) == 0 {
			delete(w.seen.Waiting, name)
		}
		w.seen.Sandboxes[0].Ready = w.IntN(3) > 0
	}
}

func (w *world) results() runtime.ProbeResults {
	out := runtime.ProbeResults{}
	for _, c := range w.seen.Containers {
		out[c.ID] = runtime.ProbeResult{Readiness: runtime.Outcome(w.IntN(3)), Startup: runtime.Outcome(w.IntN(3))}
	}
	return out
}

func TestComputeHoldsItsPromisesOverRandomHistories(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(rand.New(rand.NewPCG(seed, 1)))
		in := Input{Pod: w.pod, RuntimeName: "rt", HostIPs: []string{"192.0.2.1"}, Now: now}
		for i := range 40 {
			w.step()
			in.Seen, in.ProbeResults, in.Now = w.seen, w.results(), in.Now.Add(time.Second)
			switch {
			case i == 25 && seed%3 == 0:
				in.Termination = &runtime.Termination{Reason: "Evicted", Disruption: true}
			case i == 30 && seed%2 == 0:
				in.Termination = &runtime.Termination{}
			case i == 35 && in.Termination != nil:
				in.Ended = true
			}
			s := computeTwice(t, in)
			checkStep(t, in, s)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, i)
			}
			in.Last = s
		}
	}
}

// computeTwice checks that Compute answers the same again and leaves its input alone.
func computeTwice(t *testing.T, in Input) v1.PodStatus {
	t.Helper()
	pod, last := in.Pod.DeepCopy(), in.Last.DeepCopy()
	containers := slices.Clone(in.Seen.Containers)
	s := Compute(in)
	if again := Compute(in); !reflect.DeepEqual(s, again) {
		t.Errorf("not deterministic: %s", cmp.Diff(s, again))
	}
	kept := *s.DeepCopy()
	scribble(&s)
	if !reflect.DeepEqual(pod, in.Pod) || !reflect.DeepEqual(last, &in.Last) || !reflect.DeepEqual(containers, in.Seen.Containers) {
		t.Errorf("input changed: %s", cmp.Diff(pod, in.Pod)+cmp.Diff(last, &in.Last)+cmp.Diff(containers, in.Seen.Containers))
	}
	return kept
}

// scribble changes what a status points to.
func scribble(s *v1.PodStatus) {
	s.StartTime.Time = time.Time{}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			for _, st := range []*v1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
				if st.Terminated != nil {
					st.Terminated.Reason = "scribbled"
				}
			}
			if list[i].Started != nil {
				*list[i].Started = !*list[i].Started
			}
		}
	}
	for i := range s.Conditions {
		s.Conditions[i].Message = "scribbled"
	}
}

func checkStep(t *testing.T, in Input, s v1.PodStatus) {
	t.Helper()
	if terminal(in.Last.Phase) && s.Phase != in.Last.Phase {
		t.Errorf("phase went from %s to %s", in.Last.Phase, s.Phase)
	}
	if in.Ended && !static(in.Pod) && !terminal(s.Phase) {
		t.Errorf("ended in phase %s", s.Phase)
	}
	if terminal(s.Phase) && condition(s.Conditions, v1.PodReady).Status == v1.ConditionTrue {
		t.Errorf("ready in phase %s", s.Phase)
	}
	for _, l := range [][2][]v1.ContainerStatus{
		{in.Last.InitContainerStatuses, s.InitContainerStatuses},
		{in.Last.ContainerStatuses, s.ContainerStatuses},
		{in.Last.EphemeralContainerStatuses, s.EphemeralContainerStatuses},
	} {
		for _, cs := range l[1] {
			checkContainer(t, in, find(l[0], cs.Name), cs)
		}
	}
}

func checkContainer(t *testing.T, in Input, was, is v1.ContainerStatus) {
	t.Helper()
	states := 0
	for _, set := range []bool{is.State.Running != nil, is.State.Waiting != nil, is.State.Terminated != nil} {
		if set {
			states++
		}
	}
	if states != 1 {
		t.Errorf("%s has %d states", is.Name, states)
	}
	if is.RestartCount < was.RestartCount {
		t.Errorf("%s: restart count fell from %d to %d", is.Name, was.RestartCount, is.RestartCount)
	}
	regularInit := strings.HasPrefix(is.Name, "i-")
	if is.Ready && !regularInit && (is.State.Running == nil || !*is.Started) {
		t.Errorf("%s is ready, but not running and started", is.Name)
	}
	if is.Ready && regularInit && (is.State.Terminated == nil || is.State.Terminated.ExitCode != 0) {
		t.Errorf("%s is ready, but has not succeeded", is.Name)
	}
	if is.Started != nil && *is.Started && is.State.Running == nil {
		t.Errorf("%s has started, but does not run", is.Name)
	}
	if in.Ended && is.State.Running != nil && !strings.HasPrefix(is.Name, "e-") {
		t.Errorf("%s runs in an ended pod", is.Name)
	}
	if last := is.LastTerminationState; last.Running != nil || last.Waiting != nil {
		t.Errorf("%s: last state is no termination", is.Name)
	}
}

func BenchmarkCompute(b *testing.B) {
	p := pod(always, "i-a", "s-b", "app", "log")
	with(p, on("app", func(c *v1.Container) {
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	}))
	in := Input{Pod: p, Seen: seen(running("app", 0), running("log", 0), running("s-b", 0), exited("i-a", 0, 0)), HostIPs: []string{"192.0.2.1"}, Now: now}
	in.Last = Compute(in)
	b.ReportAllocs()
	for b.Loop() {
		Compute(in)
	}
}
