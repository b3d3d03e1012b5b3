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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// runs are the uids of the pods of which containers run.
func (n *node) runs() (uids []string) {
	synctest.Wait()
	_, all := n.engine.Truth()
	for _, c := range all {
		if uid := string(c.Pod.UID); c.State == runtime.Running && !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// stands compares what runs, and how some pods are for the server.
func (n *node) stands(when, want string, names ...string) {
	n.t.Helper()
	got := fmt.Sprint(n.runs())
	for _, name := range names {
		got += ", " + name + " " + strings.TrimSpace(n.api.phaseOf(name))
	}
	if got != want {
		n.t.Errorf("%s: %s, want %s", when, got, want)
	}
}

// liar is a Runtime that says of a pod that it has stopped it before it did anything.
type liar struct {
	syncloop.Runtime

	mu   sync.Mutex // guards the rest
	lies int        // still to be told
}

func (l *liar) Stop(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
	l.mu.Lock()
	lies := l.lies > 0
	if lies {
		l.lies--
	}
	l.mu.Unlock()
	if lies {
		return nil
	}
	return l.Runtime.Stop(ctx, pod, seen, how)
}

func TestWhatIsSaidToBeStoppedIsLookedAt(t *testing.T) {
	tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
		cfg.Runtime = &liar{Runtime: cfg.Runtime, lies: 2}
	}
	onNode(t, tune, func(n *node) {
		n.do("add web app=trap_'exit_0'_TERM;_sleep_100000 source=api")
		synctest.Wait()
		n.do("delete web grace=5")
		time.Sleep(500 * time.Millisecond)
		n.stands("after a lie", "[web-1], web Running", "web")
		time.Sleep(10 * time.Second)
		n.stands("in the end", "[], web gone", "web")
	})
}

// holding is Volumes that cannot be taken away.
type holding struct{ busy chan struct{} }

func (holding) Mount(context.Context, *v1.Pod) (map[string]runtime.Volume, error) { return nil, nil }

func (h holding) Unmount(context.Context, types.UID) error {
	select {
	case <-h.busy:
		return nil
	default:
		return errors.New("the volume is in use")
	}
}

func TestAnObjectStaysUntilTheNodeHasEverythingBack(t *testing.T) {
	volumes := holding{make(chan struct{})}
	tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) { cfg.Volumes = volumes }
	onNode(t, tune, func(n *node) {
		n.do("add web app=exit_0 source=api policy=Never")
		synctest.Wait()
		n.do("delete web grace=5")
		time.Sleep(time.Minute)
		if got := n.api.phaseOf("web"); got != "Succeeded " {
			t.Errorf("while a volume is held: %s", got)
		}
		close(volumes.busy)
		time.Sleep(20 * time.Second)
		if got := n.api.phaseOf("web"); got != "gone" {
			t.Errorf("in the end: %s", got)
		}
	})
}

// kills has a pod ended by several, a second one after the other, and returns when the last of them has heard that nothing
// of it runs.
func (n *node) kills(uid types.UID, all ...runtime.Termination) {
	var wg sync.WaitGroup
	for _, how := range all {
		wg.Go(func() {
			if err := n.roster.Kill(n.t.Context(), uid, how); err != nil {
				n.t.Error(err)
			}
		})
		time.Sleep(time.Second)
	}
	wg.Wait()
}

func TestWhoeverHasTheLeastPatienceDecides(t *testing.T) {
	for _, tt := range []struct{ first, second, want time.Duration }{
		{20 * time.Second, 5 * time.Second, 6 * time.Second},
		{5 * time.Second, 20 * time.Second, 5 * time.Second},
		{5 * time.Second, 0, 5 * time.Second},
	} {
		onNode(t, nil, func(n *node) {
			n.do("add web app=sleep_100000 grace=600") // deaf to the stop signal
			synctest.Wait()
			start := time.Now()
			n.kills("web-1", runtime.Termination{Grace: tt.first}, runtime.Termination{Grace: tt.second})
			if took := time.Since(start); took < tt.want || took > tt.want+time.Second/2 {
				t.Errorf("killed within %v, then within %v: ended after %v", tt.first, tt.second, took)
			}
		})
	}
}

func TestTheFirstReasonGivenIsTheOneShown(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("add web app=sleep_100000 source=api grace=5")
		synctest.Wait()
		n.kills("web-1", runtime.Termination{Reason: "Evicted"}, runtime.Termination{Reason: "Preempting"})
		time.Sleep(time.Second)
		if got := n.api.phaseOf("web"); got != "Failed Evicted" {
			t.Error(got)
		}

		n.do("add other app=sleep_100000 source=api grace=5")
		synctest.Wait()
		hurried, cancel := context.WithCancel(n.t.Context())
		cancel()
		for _, why := range []string{"Evicted", "Preempting"} { // at once, before anybody was told of the first one
			if err := n.roster.Kill(hurried, n.pods["other"].UID, runtime.Termination{Reason: why}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		time.Sleep(10 * time.Second)
		if got := n.api.phaseOf("other"); got != "Failed Evicted" {
			t.Errorf("killed twice at once: %s", got)
		}
	})
}

func TestWhatIsMissingFromAnIncompleteSetGoesOn(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("add web app=sleep_100000")
		n.do("add other app=sleep_100000")
		synctest.Wait()
		n.do("early on")
		n.do("remove web")
		time.Sleep(5 * time.Minute)
		if got := fmt.Sprint(n.runs()); got != "[other-1 web-1]" {
			t.Errorf("while the source is not sure, these run: %s", got)
		}
		n.do("early off")
		time.Sleep(5 * time.Minute)
		if got := fmt.Sprint(n.runs()); got != "[other-1]" {
			t.Errorf("once it is, these run: %s", got)
		}
	})
}

// hoarder is States that remembers every look and shows the oldest that will do.
type hoarder struct {
	looks syncloop.Runtime

	mu   sync.Mutex // guards the rest
	kept map[types.UID][]runtime.Pod
}

func (h *hoarder) Pod(ctx context.Context, uid types.UID, after time.Time) (runtime.Pod, error) {
	h.mu.Lock()
	i := slices.IndexFunc(h.kept[uid], func(p runtime.Pod) bool { return !p.At.Before(after) })
	if i >= 0 {
		defer h.mu.Unlock()
		return h.kept[uid][i], nil
	}
	h.mu.Unlock()
	p, err := h.looks.Pod(ctx, uid)
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.kept[uid] = append(h.kept[uid], p)
	}
	return p, err
}

func TestAStepSeesWhatTheOneBeforeItDid(t *testing.T) {
	tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
		cfg.States = &hoarder{looks: cfg.Runtime, kept: map[types.UID][]runtime.Pod{}}
	}
	onNode(t, tune, func(n *node) {
		for _, method := range []string{"RunSandbox", "StartContainer"} { // so that looks are of different moments
			n.do("slow " + method + " 100ms")
		}
		n.do("add web app=sleep_100000 source=api")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(n.engine.Calls("RunSandbox"), n.engine.Calls("CreateContainer"), n.api.phaseOf("web")); got != "1 1Running " {
			t.Errorf("sandboxes and containers made, and what is told: %s\n%s", got, strings.Join(n.take(), "\n"))
		}
	})
}

func TestABackOffOfAContainerDoesNotDelayTheEndOfItsPod(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("add web app=exit_1 other=sleep_100000 source=api")
		time.Sleep(15 * time.Minute) // app waits five minutes by now
		n.do("down StopContainer")
		n.do("delete web grace=1")
		time.Sleep(time.Second)
		n.do("up StopContainer")
		time.Sleep(10 * time.Second)
		if got := n.api.phaseOf("web"); got != "gone" {
			t.Errorf("ten seconds after the runtime answers again: %s", got)
		}
	})
}

func TestVolumesOfAPreemptedPodKeepNobodyWaiting(t *testing.T) {
	volumes := holding{make(chan struct{})}
	tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) { cfg.Volumes = volumes }
	onNode(t, tune, func(n *node) {
		defer close(volumes.busy)
		n.do("add cheap app=sleep_100000 source=api grace=2")
		synctest.Wait()
		n.do("refuse vital OutOfcpu instead of cheap")
		n.do("add vital app=sleep_100000 source=api")
		time.Sleep(30 * time.Second)
		if got := n.api.phaseOf("vital"); got != "Running " {
			t.Errorf("vital: %s", got)
		}
	})
}

// pensive takes its time to decide.
type pensive struct {
	syncloop.Admitter
	time.Duration
}

func (p pensive) Admit(ctx context.Context, pod *v1.Pod, others []*v1.Pod) error {
	time.Sleep(p.Duration)
	return p.Admitter.Admit(ctx, pod, others)
}

func TestAPodThatEndsWhileItIsToBePreemptedMakesRoom(t *testing.T) {
	tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
		cfg.Admit = []syncloop.Admitter{pensive{cfg.Admit[0], 5 * time.Second}}
	}
	onNode(t, tune, func(n *node) {
		n.do("add cheap app=sleep_100000 source=api grace=2")
		time.Sleep(6 * time.Second)
		n.do("delete cheap grace=2")
		synctest.Wait()
		n.do("refuse vital OutOfcpu instead of cheap")
		n.do("add vital app=sleep_100000 source=api")
		time.Sleep(30 * time.Second)
		if got := n.api.phaseOf("vital"); got != "Running " {
			t.Errorf("vital: %s", got)
		}
	})
}

func TestAPodThatAnotherSourceTakesOverRunsAgain(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("add web app=trap_''_TERM;_sleep_100000 grace=5")
		synctest.Wait()
		n.do("remove web")
		synctest.Wait()
		n.do("add web app=sleep_100000 source=api")
		synctest.Wait()
		n.send() // the first source says once more that it does not want it
		time.Sleep(20 * time.Second)
		if got := n.runs(); len(got) != 1 {
			t.Errorf("these run: %v", got)
		}
	})
}

func TestAReasonGivenToAPodThatHasEndedIsNotTold(t *testing.T) {
	volumes := holding{make(chan struct{})}
	tune := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) { cfg.Volumes = volumes }
	onNode(t, tune, func(n *node) {
		n.do("add web app=exit_0 source=api policy=Never")
		time.Sleep(10 * time.Second)
		if a, u := n.roster.Active(), n.roster.Unsettled(); len(a) != 0 || len(u) != 1 {
			t.Errorf("while a volume is held %d are active and %d unsettled", len(a), len(u))
		}
		n.do("kill web Evicted")
		close(volumes.busy)
		time.Sleep(20 * time.Second)
		if got := n.api.phaseOf("web"); got != "Succeeded " || len(n.roster.Unsettled()) > 0 {
			t.Errorf("in the end: %s, unsettled %v", got, n.roster.Unsettled())
		}
	})
}

func TestADeadlineIsKeptThoughAStepTakesLong(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("slow CreateContainer 20m")
		n.do("add web app=sleep_100000 source=api deadline=100")
		time.Sleep(110 * time.Second)
		if got := n.api.phaseOf("web"); got != "Failed DeadlineExceeded" {
			t.Errorf("after the deadline: %s", got)
		}
	})
}

// going admits nothing while the machine goes down.
type going struct{ down atomic.Bool }

func (g *going) Admit(context.Context, *v1.Pod, []*v1.Pod) error {
	if g.down.Load() {
		return &runtime.Rejection{Reason: "NodeShutdown", Message: "the machine goes down"}
	}
	return nil
}

// Nobody brings another in the place of a pod from a file: it comes back once nothing is in its way, and not before.
func TestAPodFromAFileThatAShutdownEndedComesBackIfTheMachineStaysUp(t *testing.T) {
	g := new(going)
	onNode(t, func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) { cfg.Admit = []syncloop.Admitter{g} }, func(n *node) {
		n.do("add static app=sleep_100000")
		n.do("add other app=sleep_100000 source=api")
		synctest.Wait()
		g.down.Store(true)
		for _, name := range []string{"static", "other"} {
			how := runtime.Termination{Reason: "Terminated", Disruption: true, Grace: time.Second}
			if err := n.roster.Kill(n.t.Context(), n.pods[name].UID, how); err != nil {
				n.t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s, asked := n.status["static"], n.engine.Calls("RunSandbox"); !strings.HasPrefix(s, "static is Failed Terminated") || asked != 2 {
			t.Errorf("while it goes down: %s; %d sandboxes", s, asked)
		}
		g.down.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := n.status["static"]; s != "static is Running, app#0 running" {
			t.Errorf("when it stays up: %s", s)
		}
		if s := n.status["other"]; !strings.HasPrefix(s, "other is Failed Terminated") {
			t.Errorf("a pod of a server, which others replace: %s", s)
		}
	})
}

func TestAPodFromAFileThatHasDoneItsWorkDoesNotComeBackForAShutdown(t *testing.T) {
	volumes := holding{make(chan struct{})}
	onNode(t, func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) { cfg.Volumes = volumes }, func(n *node) {
		n.do("add once app=exit_0 policy=Never")
		n.do("advance 10s")
		how := runtime.Termination{Reason: "Terminated", Disruption: true, Grace: time.Second}
		if err := n.roster.Kill(n.t.Context(), n.pods["once"].UID, how); err != nil { // it holds a volume still
			n.t.Fatal(err)
		}
		close(volumes.busy)
		n.do("advance 5m")
		synctest.Wait()
		if s, made := n.status["once"], n.engine.Calls("RunSandbox"); s != "once is Succeeded, app#0 ended 0" || made != 1 {
			t.Errorf("%s; %d sandboxes", s, made)
		}
	})
}
