package looptest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func hearRules() []rule {
	return []rule{
		{name: "what happens is heard by listing", check: heardByListing},
		{name: "what happens is told by the notifier", needs: "Notifier", check: toldByNotifier},
		{name: "a loop takes a pod through its life", check: takenThroughLife},
	}
}

// own shows of a runtime the pods of one scene only: nobody else's are to be ended.
type own struct {
	syncloop.Runtime
	made  map[types.UID]*v1.Pod
	steps *atomic.Int64 // how often Sync was called
}

func (o own) Sync(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
	o.steps.Add(1)
	return o.Runtime.Sync(ctx, pod, in)
}

func (o own) Pods(ctx context.Context) ([]runtime.Pod, error) {
	all, err := o.Runtime.Pods(ctx)
	return slices.DeleteFunc(slices.Clone(all), func(p runtime.Pod) bool { return o.made[p.UID] == nil }), err
}

// poll asks until the answer is yes, at most so long.
func (s *scene) poll(long time.Duration, holds func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(long)
	defer late.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late.C:
			return false
		case <-s.ctx.Done():
			return false
		}
	}
	return true
}

// ears remember what was told.
type ears[T any] struct {
	mu   sync.Mutex // guards told
	told []T
}

func (e *ears[T]) tell(t T) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, t)
}

func (e *ears[T]) heard(which func(T) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.told, which)
}

func heardByListing(s *scene) {
	pod := s.pod(s.Container)
	if s.Ends != nil {
		pod = s.pod(s.Container, s.Ends(0))
	}
	ends := len(pod.Spec.Containers) > 1 // not where the fixture keeps one
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	var told ears[pleg.Event]
	g, err := pleg.New(pleg.Config{Source: own{s.Runtime, s.made, new(atomic.Int64)}, Tell: told.tell, Period: s.Patience / 100})
	s.keeps(err)
	ctx, cancel := context.WithCancel(s.ctx)
	var running errgroup.Group
	running.Go(func() error { return g.Run(ctx) })
	defer func() { cancel(); _ = running.Wait() }()

	seen, err := s.bring(pod, func(seen runtime.Pod) string {
		a, b := seen.Newest("a"), seen.Newest("b")
		if a == nil || a.State != runtime.Running || ends && (b == nil || b.State != runtime.Exited) {
			return "container a does not run, or b has not ended"
		}
		return ""
	}, nil)
	s.keeps(err)
	hears := func(kind pleg.Kind, id string) {
		heard := s.poll(s.Patience, func() bool {
			return told.heard(func(e pleg.Event) bool { return e.Kind == kind && e.Pod == ref(pod) && e.Container == id })
		})
		if !heard {
			told.mu.Lock()
			defer told.mu.Unlock()
			s.keeps(broken("let Pods show each container and sandbox with its ID and its state as it is now: it is listed each second, and what it does not show nobody sees before the next resync",
				"pleg listed for %v and did not tell that %s of pod %v has %v; it told %v", s.Patience, id, ref(pod), kind, told.told))
		}
	}
	hears(pleg.Started, seen.Newest("a").ID)
	if ends {
		hears(pleg.Died, seen.Newest("b").ID)
	}
	_, err = s.end(pod.UID, pod, runtime.Termination{})
	s.keeps(err)
	hears(pleg.Died, seen.Newest("a").ID)
}

func toldByNotifier(s *scene) {
	var told ears[runtime.Event]
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Notifier.Events(ctx, told.tell) }()
	defer cancel()
	const remedy = "tell of each container that starts or ends, with its pod's uid or an ID that looks show, without waiting for whoever listens; or give pleg no notifier"
	// It may not listen yet when the first of them starts.
	begun := s.poll(s.Patience, func() bool {
		pod := s.pod(s.Container)
		seen, err := s.start(pod)
		s.keeps(err)
		return s.poll(s.Patience/10, func() bool {
			return told.heard(func(e runtime.Event) bool { return e.Pod.UID == pod.UID || e.Container == seen.Newest("a").ID })
		})
	})
	if !begun {
		s.keeps(broken(remedy, "pods were started for %v, and the notifier told of none", s.Patience))
	}
	pod := s.pod(s.Container)
	seen, err := s.start(pod)
	s.keeps(err)
	about := func(e runtime.Event) bool { return e.Pod.UID == pod.UID || e.Container == seen.Newest("a").ID }
	s.poll(s.Patience, func() bool { return told.heard(about) })
	told.mu.Lock()
	before := len(told.told)
	told.mu.Unlock()
	_, err = s.end(pod.UID, pod, runtime.Termination{})
	s.keeps(err)
	if !s.poll(s.Patience, func() bool {
		told.mu.Lock()
		defer told.mu.Unlock()
		return slices.ContainsFunc(told.told[before:], about)
	}) {
		s.keeps(broken(remedy, "pod %v was stopped, and the notifier told nothing of it within %v", ref(pod), s.Patience))
	}
	cancel()
	late := time.NewTimer(s.soon())
	defer late.Stop()
	select {
	case err := <-ended:
		if err != nil {
			s.keeps(broken("return nil when the context has ended", "Events answered the error %v", err))
		}
	case <-late.C:
		s.keeps(broken("heed the context", "Events had not returned %v after its context had ended", s.soon()))
	}
}

// node is a loop that runs.
type node struct {
	s     *scene
	sets  chan []*v1.Pod
	stop  func() error
	steps atomic.Int64

	mu       sync.Mutex // guards the rest
	last     map[types.UID]v1.PodStatus
	finished map[types.UID]int
	log      bytes.Buffer
}

// Run is its source: it wants what is sent to sets.
func (n *node) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case pods := <-n.sets:
			set(pods, true)
		}
	}
}

// UpdateStatus remembers what is told.
func (n *node) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last[pod.UID] = s
	return nil
}

// Finished remembers it.
func (n *node) Finished(_ context.Context, pod *v1.Pod) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.finished[pod.UID]++
	return nil
}

// Write is its log.
func (n *node) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(b)
}

// loop starts one over the runtime there is now.
func (s *scene) loop(want ...*v1.Pod) *node {
	s.Helper()
	n := &node{s: s, sets: make(chan []*v1.Pod, 4), last: map[types.UID]v1.PodStatus{}, finished: map[types.UID]int{}}
	n.sets <- want
	rt := own{s.Runtime, s.made, &n.steps}
	log := slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var roster syncloop.Roster
	states, err := pleg.New(pleg.Config{Source: rt, Tell: func(e pleg.Event) { roster.Wake(e.Pod.UID) }})
	s.keeps(err)
	loop, err := syncloop.New(syncloop.Config{
		Sources: map[string]syncloop.PodSource{"looptest": n}, Runtime: rt, Sink: n, States: states, Roster: &roster, Observe: observe.To{Log: log},
	})
	s.keeps(err)
	ctx, cancel := context.WithCancel(s.ctx)
	var running errgroup.Group
	running.Go(func() error { return states.Run(ctx) })
	running.Go(func() error { return loop.Run(ctx) })
	n.stop = sync.OnceValue(func() error {
		cancel()
		return running.Wait()
	})
	s.Cleanup(func() { _ = n.stop() })
	return n
}

// until waits for something the loop is to bring about.
func (n *node) until(what string, holds func() bool) {
	n.s.Helper()
	if !n.s.poll(2*n.s.Patience, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return holds()
	}) {
		n.mu.Lock()
		defer n.mu.Unlock()
		statuses, _ := json.Marshal(n.last) // plain values: cannot fail
		n.s.keeps(broken("mend what other rules found first; then look at the log of the loop, and at the statuses",
			"within %v it did not come about that %s. The log: %s\nthe statuses: %s", 2*n.s.Patience, what, cmp.Or(n.log.String(), "nothing was said"), statuses))
	}
}

// rests checks that the loop takes no step for a while, sooner or later.
func (n *node) rests() {
	n.s.Helper()
	before := n.steps.Load()
	if !n.s.poll(n.s.Patience, func() bool {
		last := n.steps.Load()
		return !n.s.poll(n.s.Patience/20, func() bool { return n.steps.Load() > last })
	}) {
		n.s.keeps(broken("set SyncResult.Acted only when the call has changed something, and RetryAt only when something is to be done then", "a loop with pods that are as they are to be took %d steps within %v",
			n.steps.Load()-before, n.s.Patience))
	}
}

func takenThroughLife(s *scene) {
	pod := s.pod(s.Container, s.Container)
	runs := func(n *node) func() bool {
		return func() bool {
			st := n.last[pod.UID]
			waits := slices.ContainsFunc(st.ContainerStatuses, func(c v1.ContainerStatus) bool { return !c.Ready })
			return st.Phase == v1.PodRunning && len(st.ContainerStatuses) == len(pod.Spec.Containers) && !waits
		}
	}
	first := s.loop(pod)
	first.until("the pod is told to run, with all containers ready", runs(first))
	first.rests()
	before, err := s.look(pod.UID)
	s.keeps(err)
	s.keeps(first.stop())
	if s.Next != nil {
		s.Runtime = s.Next()
	}
	second := s.loop(pod)
	second.until("a second loop tells that the pod runs", runs(second))
	after, err := s.look(pod.UID)
	s.keeps(err)
	s.keeps(unchanged(before, after))
	second.sets <- nil
	second.until("a pod that nobody wants has finished", func() bool { return second.finished[pod.UID] > 0 })
	second.until("it is gone", func() bool { return s.gone(pod.UID) == nil })
	s.keeps(second.stop())

	stranger := s.pod(s.Container)
	_, err = s.start(stranger)
	s.keeps(err)
	third := s.loop()
	third.until("a pod that no source knows is ended and removed", func() bool { return s.gone(stranger.UID) == nil })
	s.keeps(third.stop())
	for _, n := range []*node{first, second, third} {
		if log := n.log.String(); strings.Contains(log, "the runtime says") {
			s.keeps(broken("see what the loop complains of, and which other rule is about it", "all came about in the end, but the loop warned:\n%s", log))
		}
	}
}
