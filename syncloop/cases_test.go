package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
)

// onNode plays on a node whose agents are tuned.
func onNode(t *testing.T, tune func(context.Context, *sync.WaitGroup, *syncloop.Config), script func(n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.tune = tune
		n.start()
		defer func() { n.stop() }()
		script(n)
	})
}

// fits admits by the room of a node.
func fits(pods string, more ...func(*syncloop.Config)) func(context.Context, *sync.WaitGroup, *syncloop.Config) {
	node := &v1.Node{}
	node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse(pods)}
	return func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
		cfg.Admit = []syncloop.Admitter{admit.Fit{Node: func() *v1.Node { return node }}}
		for _, tune := range more {
			tune(cfg)
		}
	}
}

// phaseOf is what the server has of a pod.
func (s *server) phaseOf(name string) string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.objects[name]; p != nil {
		return string(p.Status.Phase) + " " + p.Status.Reason
	}
	return "gone"
}

func TestAPodThatRunsDoesNotLoseItsPlaceToAnOlderOne(t *testing.T) {
	onNode(t, fits("10"), func(n *node) {
		big := func(name string) *v1.Pod {
			p := n.pod(name, []string{"app=sleep_100000", "source=api"})
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")}
			n.pods[name] = p
			return p
		}
		n.api.put(big("runs"))
		synctest.Wait()
		n.do("halt")
		n.api.put(big("waited"))
		n.api.change("waited", func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) })
		n.do("start")
		if got := n.api.phaseOf("runs") + "," + n.api.phaseOf("waited"); got != "Running ,Failed OutOfcpu" {
			t.Error(got)
		}
	})
}

func TestAPodThatIsOverHasEndedUnlessOnlyItsContainersTellOfIt(t *testing.T) {
	onNode(t, nil, func(n *node) {
		ended := func() (all []bool) {
			synctest.Wait()
			for _, name := range []string{"job", "file"} {
				all = append(all, n.roster.Ended(n.pods[name].UID))
			}
			return all
		}
		n.pods["job"] = n.pod("job", []string{"work=sleep_5", "policy=Never", "source=api"})
		n.api.put(n.pods["job"])
		n.do("add file work=sleep_5 policy=Never")
		if got := ended(); got[0] || got[1] {
			t.Error("they run, and have ended", got)
		}
		n.do("advance 10s")
		if got := ended(); !got[0] || got[1] {
			t.Error("they are over: of the server, from a file", got)
		}
		if n.roster.Ended("nobody") {
			t.Error("a stranger has ended")
		}
	})
}

// Field report kubernetes/kubernetes#110755: a node went down with pods that had ended, and nobody was told of that.
func TestWhoWaitsForTheLastStatusWaitsForTheSink(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("add web app=sleep_1000 source=api policy=Never")
		synctest.Wait()
		n.do("server away")
		n.do("kill web Terminated")
		waits := func(wait func(context.Context, types.UID) error, uid types.UID) bool {
			ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
			defer cancel()
			return wait(ctx, uid) != nil
		}
		if waits(n.roster.Settled, "web-1") || !waits(n.roster.Told, "web-1") {
			t.Error("the server is away: the pod is not settled, or its last status was told")
		}
		n.do("server back")
		if waits(n.roster.Told, "web-1") || n.api.phaseOf("web") != "Failed Terminated" {
			t.Error("the server is back, and was told:", n.api.phaseOf("web"))
		}
		if waits(n.roster.Told, "nobody") {
			t.Error("there is something to tell of a pod that is none")
		}
	})
}

func TestCase_c018_a_refused_pod_holds_nothing(t *testing.T) {
	onNode(t, fits("10"), func(n *node) {
		asks := func(name, cpu string) {
			p := n.pod(name, []string{"app=sleep_1000", "source=api"})
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
			n.pods[name] = p
			n.api.put(p)
		}
		asks("huge", "1000000")
		asks("tiny", "10m")
		if got := n.api.phaseOf("huge") + "," + n.api.phaseOf("tiny"); got != "Failed OutOfcpu,Running " {
			t.Error(got)
		}
		n.do("write huge Failed OutOfcpu") // what was told comes back
		asks("other", "1900m")
		if got := n.api.phaseOf("other"); got != "Running " {
			t.Error(got)
		}
	})
}

// forget removes all that the engine has of a pod.
func (n *node) forget(name string) {
	n.t.Helper()
	sandboxes, containers := n.engine.Truth()
	for _, c := range containers {
		if c.Pod.Name == name {
			if err := n.engine.RemoveContainer(n.t.Context(), c.ID); err != nil {
				n.t.Fatal(err)
			}
		}
	}
	for _, s := range sandboxes {
		if s.Name == name {
			if err := n.engine.RemoveSandbox(n.t.Context(), s.ID); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

func TestCase_c071_pods_that_are_over_take_no_room_after_a_restart(t *testing.T) {
	onNode(t, fits("10"), func(n *node) {
		for i := range 20 {
			n.do(fmt.Sprintf("add over%d app=exit_%d policy=Never source=api", i, i%2))
			time.Sleep(time.Minute)
		}
		for i := range 5 {
			n.do(fmt.Sprintf("add live%d app=sleep_100000 source=api", i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		n.take()
		for i := range 5 { // of some nothing is left but what the server knows
			n.forget(fmt.Sprint("over", i))
		}
		_, before := n.engine.Truth()
		n.api.watch(func(p *v1.Pod) { // of one that the engine forgot only the sandbox is news
			if len(p.Name) != len("over0") || p.Name[4] > '4' || len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].State.Terminated.ContainerID == "" {
				t.Errorf("%s was written: %+v", p.Name, p.Status)
			}
		})
		n.engine.Inject("ListContainers", runtimetest.Delay(time.Second)) // those that are over take their time to be looked after
		n.do("restart")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		_, after := n.engine.Truth()
		if len(before) != len(after) {
			t.Errorf("%d containers became %d", len(before), len(after))
		}
		for i := range 5 {
			if got := n.api.phaseOf(fmt.Sprint("live", i)); got != "Running " {
				t.Errorf("live%d is %s", i, got)
			}
		}
	})
}

// An agent that starts again finds everything as it was told: it starts nothing, and writes nothing.
func TestARestartWithManyPodsChangesNothing(t *testing.T) {
	ready := func(name string) bool { return len(name)%2 == 0 }
	tune := func(ctx context.Context, wg *sync.WaitGroup, cfg *syncloop.Config) {
		m, err := manager.New(manager.Config{
			Changed: cfg.Roster.Wake,
			Check: func(_ context.Context, target manager.Target, _ *v1.Probe) (probe.Result, string, error) {
				if ready(target.Pod.Name) {
					return probe.Success, "", nil
				}
				return probe.Failure, "not yet", nil
			},
		})
		if err != nil {
			t.Error(err)
		}
		cfg.Probes = m
		wg.Go(func() { _ = m.Run(ctx) })
	}
	onNode(t, tune, func(n *node) {
		for i := range 110 {
			p := n.pod(fmt.Sprint("web", i), []string{"app=sleep_100000", "source=api"})
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 10, FailureThreshold: 1, SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}
			n.pods[p.Name] = p
			n.api.put(p)
		}
		time.Sleep(15 * time.Second)
		for i := range 110 {
			name := fmt.Sprint("web", i)
			p := n.api.get(name)
			if got := isReady(p.Status); got != ready(name) {
				t.Fatalf("%s is ready %v", name, got)
			}
		}
		_, before := n.engine.Truth()
		writes := n.api.written()
		n.api.watch(func(p *v1.Pod) { t.Errorf("%s was written: %v", p.Name, p.Status.Conditions) })
		n.do("restart")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if _, after := n.engine.Truth(); len(after) != len(before) {
			t.Errorf("%d containers became %d", len(before), len(after))
		}
		if got := n.api.written() - writes; got != 0 {
			t.Errorf("%d writes", got)
		}
	})
}

func isReady(s v1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

func TestCase_c180_a_deletion_before_the_creation_completes(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("add web app=sleep_1 policy=Never source=api")
		time.Sleep(time.Minute)
		n.do("halt")
		n.api.change("web", func(p *v1.Pod) {
			p.DeletionTimestamp = new(metav1.NewTime(p.CreationTimestamp.Add(-48 * time.Hour)))
			p.DeletionGracePeriodSeconds = new(int64(30))
		})
		n.do("start")
		time.Sleep(3 * time.Second)
		if got := n.api.phaseOf("web"); got != "gone" {
			t.Errorf("it is %s", got)
		}
		if _, left := n.engine.Truth(); len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// fromMemory is a source that first shows what was remembered.
type fromMemory struct {
	syncloop.PodSource
	pods *[]*v1.Pod
}

func (r fromMemory) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	if *r.pods != nil {
		set(*r.pods, false)
	}
	return r.PodSource.Run(ctx, set)
}

func TestCase_c180_a_pod_from_memory_is_given_what_is_left_of_a_grace(t *testing.T) {
	var remembered []*v1.Pod
	tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
		cfg.Sources["api"] = fromMemory{cfg.Sources["api"], &remembered}
	}
	onNode(t, tune, func(n *node) {
		n.do("add web app=sleep_100000 source=api") // deaf to the stop signal
		synctest.Wait()
		n.do("halt")
		n.api.mu.Lock()
		remembered = []*v1.Pod{n.api.objects["web"]}
		n.api.mu.Unlock()
		n.do("delete web grace=60")
		n.do("server away")
		time.Sleep(20 * time.Second)
		n.do("start")
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(n.runs()); got != "[web-1]" {
			t.Errorf("without the server these run: %s", got)
		}
		begun := time.Now()
		n.do("server back")
		for len(n.runs()) > 0 && time.Since(begun) < time.Hour {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begun); took < 29*time.Second || took > 31*time.Second {
			t.Errorf("it took %v to end, want 30s", took)
		}
		n.do("add db app=sleep_100000 source=api")
		synctest.Wait()
		n.ahead = -time.Hour // the server's clock is of no account for what is deleted now
		n.do("delete db grace=20")
		begun = time.Now()
		for len(n.runs()) > 0 && time.Since(begun) < time.Hour {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begun); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("the other one took %v to end, want 20s", took)
		}
	})
}

func TestCase_c180_another_agent_gives_what_is_left_of_a_grace(t *testing.T) {
	for _, tt := range []struct {
		rule                    string
		grace, skew, away, want time.Duration // skew: how far ahead the server's clock is
	}{
		{"the rest", 60 * time.Second, 0, 20 * time.Second, 40 * time.Second},
		{"it is over", 60 * time.Second, 0, 90 * time.Second, 2 * time.Second},
		{"a server that is ahead makes it no longer", 60 * time.Second, time.Hour, 20 * time.Second, 60 * time.Second},
		{"a server that is behind leaves the least there is", 60 * time.Second, -time.Hour, 20 * time.Second, 2 * time.Second},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onNode(t, nil, func(n *node) {
				n.do("add web app=sleep_100000 source=api") // deaf to the stop signal
				synctest.Wait()
				n.api.change("web", func(p *v1.Pod) {
					p.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(tt.skew + tt.grace)))
					p.DeletionGracePeriodSeconds = new(int64(tt.grace.Seconds()))
				})
				n.do("halt")
				time.Sleep(tt.away)
				begun := time.Now()
				n.do("start")
				for len(n.runs()) > 0 && time.Since(begun) < time.Hour {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(begun); took < tt.want || took > tt.want+time.Second {
					t.Errorf("it took %v to end, want %v", took, tt.want)
				}
			})
		})
	}
}

// A pod that was deleted before anybody let it in is promised nothing: no other is refused for it.
func TestAPodThatCameToEndTakesNoRoom(t *testing.T) {
	onNode(t, fits("10"), func(n *node) {
		asks := func(name, cpu string) *v1.Pod {
			p := n.pod(name, []string{"app=sleep_1000", "source=api"})
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
			n.pods[name] = p
			return p
		}
		n.do("halt")
		deleted := asks("deleted", "1900m")
		n.api.put(deleted)
		n.do("delete deleted grace=30")
		n.api.put(asks("runs", "1900m"))
		n.engine.Inject("ListSandboxes", runtimetest.Delay(time.Second)) // it takes its time to be looked after
		n.do("start")
		time.Sleep(10 * time.Second)
		if got := n.api.phaseOf("deleted") + "," + n.api.phaseOf("runs"); got != "gone,Running " {
			t.Error(got)
		}
	})
}

// slow is a status.Sink that takes its time for each call.
type slow struct {
	*node
	takes time.Duration

	mu      sync.Mutex // guards the rest
	running map[types.UID]time.Duration
	calls   int
	began   time.Time
}

func (s *slow) UpdateStatus(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	s.calls++
	if _, known := s.running[pod.UID]; !known && st.Phase == v1.PodRunning {
		s.running[pod.UID] = time.Since(s.began)
	}
	s.mu.Unlock()
	return s.node.UpdateStatus(ctx, pod, st)
}

func TestCase_c186_many_pods_at_once_are_told_soon(t *testing.T) {
	sink := &slow{takes: 80 * time.Millisecond, running: map[types.UID]time.Duration{}} // with four at once: 50 a second
	tune := func(ctx context.Context, wg *sync.WaitGroup, cfg *syncloop.Config) {
		m, err := status.New(status.Config{Sink: sink})
		if err != nil {
			t.Error(err)
		}
		cfg.Sink = m
		wg.Go(func() { _ = m.Run(ctx) })
	}
	const pods = 200
	onNode(t, tune, func(n *node) {
		sink.node, sink.began = n, time.Now()
		for i := range pods {
			p := n.pod(fmt.Sprint("web", i), []string{"app=sleep_100000", "source=api"})
			n.pods[p.Name] = p
			n.api.put(p)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		sink.mu.Lock()
		took, calls := slices.Sorted(maps.Values(sink.running)), sink.calls
		sink.mu.Unlock()
		if len(took) != pods || took[pods*99/100] > 5*time.Second {
			t.Errorf("%d told; p99 %v", len(took), took[len(took)*99/100])
		}
		if calls > 2*pods {
			t.Errorf("%d calls for %d pods", calls, pods)
		}
		t.Logf("%d calls, p50 %v, p99 %v", calls, took[pods/2], took[pods*99/100])

		// All are deleted at once.
		for i := range pods {
			n.do(fmt.Sprintf("delete web%d grace=1", i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(n.api.all()) > 0 {
			t.Errorf("%d objects are left", len(n.api.all()))
		}
	})
}

func TestCase_c188_a_slow_runtime_is_not_overrun(t *testing.T) {
	const pods, places, takes = 150, 4, 500 * time.Millisecond
	onNode(t, nil, func(n *node) {
		var mu sync.Mutex
		counts := map[string]int{}
		serving := make(chan struct{}, places)
		for _, method := range []string{"RunSandbox", "CreateContainer", "StartContainer"} {
			n.engine.Inject(method, func(ctx context.Context, _ runtimetest.Call) error {
				mu.Lock()
				counts[method]++
				mu.Unlock()
				ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
				defer cancel()
				select {
				case serving <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				time.Sleep(takes)
				<-serving
				return nil
			})
		}
		for i := range pods {
			p := n.pod(fmt.Sprint("web", i), []string{"app=sleep_100000", "source=api"})
			n.pods[p.Name] = p
			n.api.put(p)
		}
		best := pods * 3 * takes / places
		time.Sleep(best + best/10)
		synctest.Wait()
		for i := range pods {
			if got := n.api.phaseOf(fmt.Sprint("web", i)); got != "Running " {
				t.Errorf("web%d is %s", i, got)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for method, calls := range counts {
			if calls != pods {
				t.Errorf("%s was called %d times", method, calls)
			}
		}
	})
}

// Cases c006 and c008: a deletion keeps to its grace, whatever hooks do.
func TestCase_c006_c008_hooks_that_never_return(t *testing.T) {
	for _, hook := range []string{"postStart", "preStop"} {
		t.Run(hook, func(t *testing.T) {
			onNode(t, nil, func(n *node) {
				n.engine.Inject("Exec", runtimetest.Hang)
				p := n.pod("web", []string{"app=sleep_100000", "source=api", "grace=5"})
				h := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sleep", "3600"}}}
				p.Spec.Containers[0].Lifecycle = map[string]*v1.Lifecycle{"postStart": {PostStart: h}, "preStop": {PreStop: h}}[hook]
				n.pods["web"] = p
				n.api.put(p)
				time.Sleep(time.Second)
				n.do("delete web grace=5")
				begun := time.Now()
				for n.api.phaseOf("web") != "gone" && time.Since(begun) < time.Hour {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(begun); took > 9*time.Second {
					t.Errorf("gone after %v", took)
				}
				if hook == "preStop" && n.told("FailedPreStopHook") == "" {
					t.Error("nobody was told that the hook failed")
				}
			})
		})
	}
}

// Volumes may refuse a pod when it has long been let in.
func TestARefusalByVolumesIsTold(t *testing.T) {
	tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) { cfg.Volumes = full{} }
	onNode(t, tune, func(n *node) {
		n.do("add web app=sleep_1000 source=api")
		if got := n.api.phaseOf("web"); got != "Failed VolumeAttachmentLimitExceeded" || n.api.get("web").Status.Message != "Pod was rejected: too many" {
			t.Error(got, n.api.get("web").Status.Message)
		}
	})
}

// full is Volumes of a node to which no more can be attached.
type full struct{}

func (full) Mount(context.Context, *v1.Pod) (map[string]runtime.Volume, error) {
	return nil, errors.Join(errors.New("attach"), &runtime.Rejection{Reason: "VolumeAttachmentLimitExceeded", Message: "too many"})
}

func (full) Unmount(context.Context, types.UID) error { return nil }

// told has a status.Manager in front of the node's sink.
func told(ctx context.Context, wg *sync.WaitGroup, cfg *syncloop.Config) {
	m, err := status.New(status.Config{Sink: cfg.Sink})
	if err != nil {
		panic(err)
	}
	cfg.Sink = m
	wg.Go(func() { _ = m.Run(ctx) })
}

func TestCase_c078_what_others_write_over_is_written_again(t *testing.T) {
	for _, later := range []time.Duration{time.Second, time.Hour} { // soon after our own write, and long after it
		onNode(t, told, func(n *node) {
			n.do("add web app=sleep_100000 source=api")
			time.Sleep(later)
			n.api.change("web", func(p *v1.Pod) {
				for i := range p.Status.Conditions {
					if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
						c.Status, c.Reason = v1.ConditionFalse, "NodeNotReady"
					}
				}
			})
			time.Sleep(12 * time.Second)
			synctest.Wait()
			if !isReady(n.api.get("web").Status) {
				t.Errorf("written over after %v: not ready any more", later)
			}
		})
	}
}

func TestCase_c083_the_generation_told_is_the_one_that_was_taken(t *testing.T) {
	onNode(t, nil, func(n *node) {
		tells := func() int64 {
			synctest.Wait()
			return n.api.get("web").Status.ObservedGeneration
		}
		n.do("add web app=sleep_100000 source=api")
		if got := tells(); got != 1 {
			t.Errorf("generation %d is told, want 1", got)
		}
		n.engine.Inject("StartContainer", runtimetest.Delay(10*time.Second))
		n.do("exit web/app 1") // the next step takes long
		time.Sleep(time.Second)
		n.do("edit web app=sleep_100000 source=api deadline=1000")
		time.Sleep(time.Second)
		if got := tells(); got != 1 {
			t.Errorf("generation %d is told while a step takes the one before", got)
		}
		time.Sleep(10 * time.Second)
		if got := tells(); got != 2 {
			t.Errorf("generation %d is told, want 2", got)
		}
	})
}
