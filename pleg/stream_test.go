package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// stream is a notifier whose streams a test opens, feeds and breaks.
type stream struct {
	note   func(string, ...any)
	events chan string // uids, "/" and an ID for an event without a pod; with "gone" and an ID behind, for a removal
	breaks chan error  // ends the open stream
}

func newStream() *stream { return &stream{events: make(chan string), breaks: make(chan error)} }

func (s *stream) Events(ctx context.Context, tell func(runtime.Event)) error {
	s.note("open")
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.breaks:
			return err
		case uid := <-s.events:
			e := runtime.Event{}
			uid, e.Container, e.Gone = strings.Cut(uid, " gone ")
			if id, anonymous := strings.CutPrefix(uid, "/"); anonymous {
				e.Container = id
			} else if uid != "" {
				e.Pod = parsePod([]string{uid}).PodRef
			}
			tell(e)
		}
	}
}

func onNodeWithStream(t *testing.T, f func(n *node, s *stream)) {
	t.Helper()
	onNodeWithStreamAnd(t, pleg.Config{}, f)
}

func onNodeWithStreamAnd(t *testing.T, cfg pleg.Config, f func(n *node, s *stream)) {
	t.Helper()
	var s *stream
	lazy := &lazyNotifier{}
	cfg.Notifier = lazy
	onNode(t, cfg, func(n *node) {
		s = newStream()
		s.note = n.note
		lazy.Notifier = s
		f(n, s)
	})
}

// lazyNotifier lets the channels of a stream be made within the bubble.
type lazyNotifier struct{ runtime.Notifier }

// Case c042, while nobody has time: two hundred pods die and none can be looked at. All deaths are told by the looks that
// come then, long before a relist; what was merged is counted.
func TestCase_c042_EventsAreMergedAndCounted(t *testing.T) {
	figs := &figures{values: map[string][]float64{}}
	onNodeWithStreamAnd(t, pleg.Config{Inspect: 1, Observe: observe.To{Metrics: figs}}, func(n *node, s *stream) {
		n.has(crowd("p# c#+ d#+"))
		defer n.run()()
		calm(n)
		resume := make(chan struct{})
		n.does(func(context.Context, string) error { <-resume; return nil })
		n.has(crowd("p# c#- d#+"))
		for range 3 { // of each container its stop, its exit, and once more
			for i := range 200 {
				s.events <- fmt.Sprint("p", i)
			}
		}
		close(resume)
		if died := deaths(n.take()); died != 200 {
			t.Errorf("%d of 200 deaths told at once", died)
		}
		if merged := len(figs.values["kubeletkit_pleg_merged_events_total "]); merged != 400 {
			t.Errorf("%d events counted as merged, want 400", merged)
		}
	})
}

// calm is a node whose stream has stood long enough for relists to be rare.
func calm(n *node) {
	n.t.Helper()
	time.Sleep(11 * time.Second)
	n.take()
}

// onCalmNode runs a test on a node with these pods that has run for 11 s.
func onCalmNode(t *testing.T, pods string, f func(n *node, s *stream)) {
	t.Helper()
	onNodeWithStream(t, func(n *node, s *stream) {
		n.has(pods)
		defer n.run()()
		calm(n)
		f(n, s)
	})
}

func TestAnEventLeadsToALookAtOnce(t *testing.T) {
	onCalmNode(t, "a c1+", func(n *node, s *stream) {
		n.has("a c1-")
		s.events <- "a"
		n.after(500*time.Millisecond, "11s look a", "11s a c1 died")
		n.has("") // gone: the look shows nothing
		s.events <- "a"
		n.after(500*time.Millisecond, "11.5s look a", "11.5s a c1 removed")
		n.has("b c1+") // never heard of
		s.events <- "b"
		n.after(500*time.Millisecond, "12s look b", "12s b c1 started")
	})
}

func TestARemovalIsBelievedWithoutALook(t *testing.T) {
	onNodeWithStream(t, func(n *node, s *stream) {
		n.has("a c1- c2+ s1+")
		defer n.run()()
		calm(n)
		n.has("a c2+ s1+")
		s.events <- "a gone c1"
		s.events <- "a gone c1" // once more
		n.after(500*time.Millisecond, "11s a c1 removed")
		if got := n.pod("a", time.Time{}); got != "a s1+ c2+" {
			t.Errorf("known is %q", got)
		}
		n.has("")
		s.events <- "a gone c2"
		s.events <- "/s1 gone s1"
		n.after(500*time.Millisecond, "11.5s a c2 died", "11.5s a c2 removed", "11.5s a s1 died", "11.5s a s1 removed")
		if got := n.pod("a", time.Time{}); got != "a" {
			t.Errorf("of a pod that is gone %q is known", got)
		}
		s.events <- "stranger gone c9"
		n.after(500*time.Millisecond, "12s look stranger")
	})
}

func TestARemovalWhileSomebodyLooksIsLookedAt(t *testing.T) {
	onNodeWithStream(t, func(n *node, s *stream) {
		n.has("a c1- c2+")
		defer n.run()()
		calm(n)
		n.does(func(context.Context, string) error { time.Sleep(time.Second); return nil })
		n.has("a c1-")
		s.events <- "a"
		time.Sleep(500 * time.Millisecond)
		n.has("a")
		s.events <- "a gone c1" // the look under way may show it
		n.after(5*time.Second, "11s look a", "12s a c1 removed", "12s a c2 died", "12s a c2 removed", "12s look a")
	})
}

func TestAListingFromBeforeARemovalBringsNothingBack(t *testing.T) {
	onNodeWithStream(t, func(n *node, s *stream) {
		n.has("a c1- c2+")
		defer n.run()()
		calm(n)
		n.does(func(_ context.Context, what string) error {
			if what == "list" {
				time.Sleep(time.Second)
			}
			return nil
		})
		go n.relist()
		time.Sleep(500 * time.Millisecond)
		s.events <- "a gone c1"
		n.after(5*time.Second, "11s list", "11.5s a c1 removed")
	})
}

func TestManyEventsOfOnePodAreFewLooks(t *testing.T) {
	onCalmNode(t, "a c1+", func(n *node, s *stream) {
		n.does(func(context.Context, string) error { time.Sleep(time.Second); return nil })
		s.events <- "a"
		time.Sleep(500 * time.Millisecond)
		for range 50 {
			s.events <- "a"
		}
		n.after(5*time.Second, "11s look a", "12s look a")
	})
}

// work is what is told of who works on which pod.
type work struct {
	mu   sync.Mutex // guards done
	done map[types.UID]chan struct{}
}

func (w *work) busy(uid types.UID) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done[uid]
}

func (w *work) on(uid types.UID) (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan struct{})
	w.done = map[types.UID]chan struct{}{uid: c}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done = nil
		close(c)
	}
}

func TestEventsOfAPodThatIsWorkedOnWaitForThat(t *testing.T) {
	w := new(work)
	onNodeWithStreamAnd(t, pleg.Config{Busy: w.busy}, func(n *node, s *stream) {
		n.has("a c1+|b c2+")
		defer n.run()()
		calm(n)
		done := w.on("a")
		n.has("a c1- c3+|b c2-")
		for range 4 {
			s.events <- "a"
			s.events <- "b"
			time.Sleep(100 * time.Millisecond)
		}
		n.after(0, "11s look b", "11s b c2 died", "11.1s look b", "11.2s look b", "11.3s look b")
		if n.pod("a", time.Now().Add(-time.Nanosecond)) != "a c1- c3+" { // the look with which the work ends
			t.Error("an old picture")
		}
		n.after(0, "11.4s look a", "11.4s a c1 died", "11.4s a c3 started")
		done()
		n.after(time.Second)
	})
}

func TestWorkThatTakesLongHidesNothing(t *testing.T) {
	w := new(work)
	onNodeWithStreamAnd(t, pleg.Config{Busy: w.busy}, func(n *node, s *stream) {
		n.has("a c1+ c2+")
		defer n.run()()
		calm(n)
		done := w.on("a")
		n.has("a c1- c2+")
		s.events <- "a"
		n.after(1500*time.Millisecond, "12s look a", "12s a c1 died")
		n.has("a c1- c2-")
		s.events <- "a"
		time.Sleep(300 * time.Millisecond)
		done() // without a look
		n.after(5*time.Millisecond, "12.8s look a", "12.8s a c2 died")
		n.has("a c1- c2- c3+")
		w.on("a")
		s.events <- "a"
		time.Sleep(100 * time.Millisecond) // the agent ends meanwhile
	})
}

func TestRelistsAreRareWhileTheStreamStands(t *testing.T) {
	onNodeWithStream(t, func(n *node, s *stream) {
		defer n.run()()
		time.Sleep(10 * time.Second) // each second until then: whether the stream stands is not known yet
		if got := len(n.take()); got != 12 {
			t.Errorf("%d lines in the first ten seconds", got)
		}
		n.after(3*time.Minute, "70s list", "130s list", "190s list")
	})
}

func TestRelistsAreOftenUntilNothingIsLeftToFindOut(t *testing.T) {
	onCalmNode(t, "", func(n *node, s *stream) {
		n.has("a c1+") // no event of it
		n.does(func(_ context.Context, what string) error {
			if what == "look a" && time.Since(n.begin) < 72*time.Second {
				return errBroken
			}
			return nil
		})
		n.after(60*time.Second, "70s list", "70s look a", "71s list", "71s look a")
		n.after(60*time.Second, "72s list", "72s look a", "72s a c1 started", "73s list")
	})
}

func TestAnEventWhoseLookFailsIsNotLost(t *testing.T) {
	onCalmNode(t, "a c1+", func(n *node, s *stream) {
		n.has("a c1-")
		fail := true
		n.does(func(_ context.Context, what string) error {
			if what == "look a" && fail {
				fail = false
				return errBroken
			}
			return nil
		})
		s.events <- "a"
		n.after(500*time.Millisecond, "11s look a", "11s list", "11s look a", "11s a c1 died")
	})
}

func TestAnEventOfNobodyKnownLeadsToARelist(t *testing.T) {
	onCalmNode(t, "", func(n *node, s *stream) {
		s.events <- ""
		n.after(time.Second, "11s list")
	})
}

// containerd sends events without a pod when its own lookup failed.
func TestAnEventWithoutAPodIsOfThePodThatHadTheContainer(t *testing.T) {
	onCalmNode(t, "a s1+ c1+ | b c2+", func(n *node, s *stream) {
		n.has("a s1+ c1+")
		s.events <- "/c2"
		n.after(100*time.Millisecond, "11s look b", "11s b c2 died", "11s b c2 removed")
		n.has("a s1- c1+")
		s.events <- "/s1"
		n.after(100*time.Millisecond, "11.1s look a", "11.1s a s1 died")
		s.events <- "/c7" // never seen
		n.after(time.Second, "11.2s list")
	})
}

// containerd publishes events one after the other to readers that take them: one that stops stalls the starts of all pods.
func TestTheStreamIsReadWhateverHangs(t *testing.T) {
	onCalmNode(t, "a c1+", func(n *node, s *stream) {
		n.does(func(ctx context.Context, _ string) error { return hang(ctx) })
		begun := time.Now()
		for i := range 1000 {
			s.events <- fmt.Sprint("p", i%300)
			s.events <- "/unknown"
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("2000 events were taken in %v while all calls hung", took)
		}
		n.does(func(context.Context, string) error { return nil })
		time.Sleep(5 * time.Minute)
		n.take()
	})
}

// containerd replays the events of up to five minutes to the first who listens.
func TestReplayedEventsTellNothingTwice(t *testing.T) {
	onNodeWithStream(t, func(n *node, s *stream) {
		n.has("a c1- c2+ | b c3+")
		defer n.run()()
		for range 100 {
			for _, uid := range []string{"a", "gone", "b", "/c1", "/c9"} {
				s.events <- uid
			}
		}
		time.Sleep(900 * time.Millisecond)
		var told []string
		for _, l := range n.take() {
			if !strings.Contains(l, " look ") && !strings.HasSuffix(l, " list") && !strings.HasSuffix(l, " open") {
				told = append(told, l)
			}
		}
		slices.Sort(told)
		if want := []string{"0s a c1 died", "0s a c2 started", "0s b c3 started"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// Nothing is sent on subscribing, so what happened just before is found by relists: one at once, and more after it.
func TestRelistsCloseTheGapBeforeAStream(t *testing.T) {
	onCalmNode(t, "a c1+", func(n *node, s *stream) {
		s.breaks <- errBroken
		time.Sleep(1100 * time.Millisecond)
		got := n.take()
		slices.Sort(got)
		if want := []string{"11s list", "12s list", "12s open"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		n.has("a c1-") // the runtime had not subscribed us yet
		n.after(time.Second, "13s list", "13s look a", "13s a c1 died")
	})
}

// Case c045: the stream is opened again without limit and with growing pauses, and relists take its place meanwhile.
func TestCase_c045_ABrokenStreamIsReplacedByRelists(t *testing.T) {
	onNodeWithStream(t, func(n *node, s *stream) {
		n.has("a c1+ c2+ c3+")
		n.does(func(_ context.Context, what string) error {
			if what == "list" {
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		defer n.run()()
		calm(n)
		n.after(29 * time.Second)
		n.has("a c1- c2+ c3+") // before the gap, and its event is lost
		s.breaks <- errBroken
		n.after(900*time.Millisecond, "40s list", "40.01s look a", "40.01s a c1 died") // at once
		n.has("a c1- c2- c3+")                                                         // during the gap
		n.after(200*time.Millisecond, "41s open", "41.01s list", "41.02s look a", "41.02s a c2 died")
		n.has("a c1- c2- c3-") // after it
		s.events <- "a"
		n.after(500*time.Millisecond, "41.1s look a", "41.1s a c3 died")
	})
}

func TestCase_c045_PausesGrowAndNeverEnd(t *testing.T) {
	onNodeWithStream(t, func(n *node, s *stream) {
		defer n.run()()
		go func() {
			for range 40 {
				s.breaks <- errBroken
			}
		}()
		time.Sleep(30 * time.Minute)
		var opened []string
		lists := 0
		for _, l := range n.take() {
			if l[len(l)-4:] == "open" {
				opened = append(opened, l)
			} else {
				lists++
			}
		}
		for i, want := range []string{"0s open", "1s open", "3s open", "7s open", "15s open", "31s open", "61s open", "91s open"} {
			if opened[i] != want {
				t.Errorf("%s, want %s", opened[i], want)
			}
		}
		if len(opened) != 41 || lists < 1000 {
			t.Errorf("opened %d times, listed %d times", len(opened), lists)
		}
		n.after(2*time.Minute, "1811s list", "1871s list") // it stands again
	})
}

func TestARuntimeWithoutStreamIsOnlyListed(t *testing.T) {
	onNodeWithStream(t, func(n *node, s *stream) {
		defer n.run()()
		s.breaks <- errors.ErrUnsupported
		n.take()
		time.Sleep(time.Minute)
		if got := n.take(); len(got) != 60 {
			t.Errorf("%d lines", len(got))
		}
	})
}

func TestHealthyWhileTheStreamStandsAndTheRuntimeAnswers(t *testing.T) {
	var answers error
	cfg := pleg.Config{Answers: func() error { return answers }}
	onNodeWithStreamAnd(t, cfg, func(n *node, s *stream) {
		healthy := func(when string, want bool) {
			t.Helper()
			if err := n.g.Healthy(); (err == nil) != want {
				t.Errorf("%s: %v", when, err)
			}
		}
		defer n.run()()
		calm(n)
		n.does(func(ctx context.Context, _ string) error { return hang(ctx) })
		time.Sleep(10 * time.Minute)
		healthy("listings hang", true)
		answers = errBroken
		healthy("the runtime does not answer either", false)
		answers = nil
		healthy("it answers again", true)
		s.breaks <- errBroken
		time.Sleep(time.Second / 2)
		healthy("there is no stream", false)
		n.does(func(context.Context, string) error { return nil })
		time.Sleep(3 * time.Minute)
		healthy("listings work", true)
	})
}

func TestNotHealthyBeforeTheFirstListing(t *testing.T) {
	onNodeWithStreamAnd(t, pleg.Config{Answers: func() error { return nil }}, func(n *node, _ *stream) {
		n.does(func(context.Context, string) error { return errBroken })
		defer n.run()()
		time.Sleep(time.Minute)
		if n.g.Healthy() == nil {
			t.Error("healthy without ever having seen a pod")
		}
	})
}
