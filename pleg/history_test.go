package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestRandomHistories lets pods come and go in a runtime that is slow, fails, hangs, and loses, delays, doubles and reorders
// events, and checks
// what is told and answered against the runtime's own record of the truth. A failure names its seed; SEED=n replays.
func TestRandomHistories(t *testing.T) {
	first, n := rand.Uint64N(1<<32), 100
	if s := os.Getenv("SEED"); s != "" {
		var err error
		if first, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
		n = 1
	}
	for i := range n {
		seed := first + uint64(i)
		ok := t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playHistory(t, rand.New(rand.NewPCG(seed, 3))) })
		})
		if !ok {
			return
		}
	}
}

// FuzzHistory is the same with histories that are searched for.
func FuzzHistory(f *testing.F) {
	f.Add([]byte("events come late, twice, and in any order"))
	f.Add([]byte{0, 255, 0, 255, 1, 1, 1, 1, 128, 64})
	f.Fuzz(func(t *testing.T, course []byte) {
		synctest.Test(t, func(t *testing.T) {
			playHistory(t, rand.New(&courses{next: course, then: rand.New(rand.NewPCG(uint64(len(course)), 3))}))
		})
	})
}

// courses decide by bytes as long as there are any.
type courses struct {
	next []byte
	then *rand.Rand
}

func (c *courses) Uint64() uint64 {
	n := c.then.Uint64()
	if len(c.next) > 0 {
		n = uint64(c.next[0])<<56 | n>>8
		c.next = c.next[1:]
	}
	return n
}

// version is how a pod was, from a moment until the next version.
type version struct {
	from time.Time
	pod  runtime.Pod
}

// truth is a runtime that remembers all it ever was.
type truth struct {
	t *testing.T
	g *pleg.Generator

	mu       sync.Mutex
	rng      *rand.Rand
	calm     bool
	versions map[types.UID][]version
	serial   int
	shown    map[string]bool            // IDs that a call which succeeded has shown
	told     map[string][]pleg.Kind     // by ID
	newest   map[types.UID]int          // version that was answered last
	watcher  func(runtime.Event)        // of the open stream
	events   []runtime.Event            // all that ever were
	snap     chan error                 // breaks it
	seenAs   map[string][]runtime.State // of an ID, all states it ever had
}

func playHistory(t *testing.T, rng *rand.Rand) {
	t.Helper()
	w := &truth{
		t: t, rng: rng, versions: map[types.UID][]version{}, shown: map[string]bool{}, told: map[string][]pleg.Kind{},
		newest: map[types.UID]int{}, snap: make(chan error, 1), seenAs: map[string][]runtime.State{},
	}
	cfg := pleg.Config{Source: w, Tell: w.tell, Inspect: 1 + rng.IntN(3), Timeout: 20 * time.Second}
	if rng.IntN(2) == 0 {
		cfg.Notifier = w
	}
	g, err := pleg.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.g = g
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for range 200 {
		time.Sleep(w.upTo(900 * time.Millisecond))
		w.change()
		if w.chance(3) {
			wg.Go(func() { w.ask(ctx) })
		}
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	w.checkEnd()
	cancel()
	wg.Wait()
}

// change does one thing to one pod.
func (w *truth) change() {
	w.mu.Lock()
	uid := types.UID(fmt.Sprint("p", w.rng.IntN(5)))
	p := w.now(uid)
	p.Containers, p.Sandboxes = slices.Clone(p.Containers), slices.Clone(p.Sandboxes)
	p.PodRef = runtime.PodRef{Namespace: "ns", Name: "pod-" + string(uid), UID: uid}
	w.serial++
	id := fmt.Sprint(w.serial)
	if len(p.Containers) > 0 {
		at := w.rng.IntN(len(p.Containers))
		c := &p.Containers[at]
		switch w.rng.IntN(3) {
		case 0:
			c.State = min(max(c.State, runtime.Created)+1, runtime.Exited)
		case 1:
			if c.State == runtime.Exited || w.rng.IntN(4) == 0 {
				p.Containers = slices.Delete(p.Containers, at, at+1)
			}
		}
	}
	switch w.rng.IntN(8) {
	case 0, 1, 2:
		state := []runtime.State{runtime.Created, runtime.Running, runtime.Exited}[w.rng.IntN(3)]
		p.Containers = slices.Insert(p.Containers, 0, runtime.Container{Pod: p.PodRef, ID: "c" + id, State: state})
	case 3:
		if len(p.Sandboxes) == 0 || !p.Sandboxes[0].Ready {
			p.Sandboxes = slices.Insert(p.Sandboxes, 0, runtime.Sandbox{PodRef: p.PodRef, ID: "s" + id, Ready: true})
		} else {
			p.Sandboxes[0].Ready = false
		}
	case 4:
		if w.rng.IntN(3) == 0 {
			p.Containers, p.Sandboxes = nil, nil
		}
	}
	// The number of the version, where only a complete look shows it.
	p.Waiting = map[string]runtime.Waiting{"version": {Message: strconv.Itoa(len(w.versions[uid]))}}
	w.versions[uid] = append(w.versions[uid], version{time.Now(), p})
	for _, c := range p.Containers {
		w.seenAs[c.ID] = append(w.seenAs[c.ID], c.State)
	}
	for _, s := range p.Sandboxes {
		w.seenAs[s.ID] = append(w.seenAs[s.ID], map[bool]runtime.State{true: runtime.Running, false: runtime.Exited}[s.Ready])
	}
	w.events = append(w.events, runtime.Event{Pod: p.PodRef, At: time.Now().Add(time.Duration(w.rng.IntN(7200)-3600) * time.Second)})
	watcher, lost, broken := w.watcher, w.rng.IntN(5) == 0, w.rng.IntN(30) == 0
	heard := w.hearsay()
	w.mu.Unlock()
	for _, e := range heard {
		if watcher != nil && !lost {
			watcher(e)
		}
	}
	if watcher != nil && broken {
		w.snap <- errBroken
	}
}

// hearsay is how the stream reports the newest event: late, twice, after older ones once more, without the pod.
func (w *truth) hearsay() []runtime.Event {
	last := len(w.events) - 1
	heard := []runtime.Event{w.events[last]}
	for w.rng.IntN(3) == 0 {
		heard = append(heard, w.events[w.rng.IntN(last+1)])
	}
	w.rng.Shuffle(len(heard), func(i, j int) { heard[i], heard[j] = heard[j], heard[i] })
	if p := w.now(heard[0].Pod.UID); len(p.Containers) > 0 && w.rng.IntN(4) == 0 {
		heard[0] = runtime.Event{Container: p.Containers[0].ID}
	}
	return heard
}

func (w *truth) now(uid types.UID) runtime.Pod {
	all := w.versions[uid]
	if len(all) == 0 {
		return runtime.Pod{}
	}
	return all[len(all)-1].pod
}

func (w *truth) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(d)))
}

func (w *truth) chance(oneIn int) bool { return w.upTo(time.Duration(oneIn)) == 0 }

// call takes its time around what it does, fails, or hangs.
func (w *truth) call(ctx context.Context, do func()) error {
	w.mu.Lock()
	calm := w.calm
	w.mu.Unlock()
	if calm {
		do()
		return nil
	}
	if w.chance(25) {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, step := range []func(){do, func() {}} {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(w.upTo(300 * time.Millisecond)):
		}
		step()
	}
	if w.chance(10) {
		return errBroken
	}
	return nil
}

func (w *truth) Pods(ctx context.Context) (all []runtime.Pod, err error) {
	err = w.call(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for uid := range w.versions {
			if p := w.now(uid); len(p.Containers)+len(p.Sandboxes) > 0 {
				p.Waiting = nil
				all = append(all, p)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (w *truth) Pod(ctx context.Context, uid types.UID) (p runtime.Pod, err error) {
	err = w.call(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		p = w.now(uid)
	})
	if err != nil {
		return runtime.Pod{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range p.Containers {
		w.shown[c.ID] = w.shown[c.ID] || c.State != runtime.Created
	}
	for _, s := range p.Sandboxes {
		w.shown[s.ID] = true
	}
	return p, nil
}

func (w *truth) Events(ctx context.Context, tell func(runtime.Event)) error {
	if w.chance(3) {
		return errors.New("no connection")
	}
	w.mu.Lock()
	w.watcher = tell
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.watcher = nil
		w.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-w.snap:
		return err
	}
}

// tell checks that an event is true, new, and in order.
func (w *truth) tell(e pleg.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Pod.Name == "" || e.Pod.UID == "" {
		w.t.Errorf("%v of a pod without a name", e)
	}
	if e.Container == "" {
		return
	}
	if e.Kind == pleg.Changed {
		w.t.Errorf("told that %s changed", e.Container)
	}
	before := w.told[e.Container]
	if len(before) > 0 && before[len(before)-1] >= e.Kind { // started, died, removed: each once, in this order
		w.t.Errorf("told of %s: %v, then %v", e.Container, before, e.Kind)
	}
	states := w.seenAs[e.Container]
	gone := !slices.ContainsFunc(w.now(e.Pod.UID).Containers, func(c runtime.Container) bool { return c.ID == e.Container }) &&
		!slices.ContainsFunc(w.now(e.Pod.UID).Sandboxes, func(s runtime.Sandbox) bool { return s.ID == e.Container })
	holds := map[pleg.Kind]bool{
		pleg.Started: slices.Contains(states, runtime.Running),
		pleg.Died:    slices.Contains(states, runtime.Exited) || gone,
		pleg.Removed: gone,
	}
	if !holds[e.Kind] {
		w.t.Errorf("told that %s %v, which it has not: %v", e.Container, e.Kind, states)
	}
	w.told[e.Container] = append(before, e.Kind)
}

// ask checks an answer: a state that the pod had after the moment asked for, and no older one than answered before.
func (w *truth) ask(ctx context.Context) {
	uid := types.UID(fmt.Sprint("p", int(w.upTo(5))))
	after := time.Time{}
	if w.chance(2) {
		after = time.Now().Add(-w.upTo(3 * time.Second))
	}
	w.mu.Lock()
	oldest := w.newest[uid]
	w.mu.Unlock()
	p, err := w.g.Pod(ctx, uid, after)
	if err != nil {
		return // the runtime's failure, or it was hung
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.UID != uid || p.At.IsZero() || !after.IsZero() && !p.At.After(after) {
		w.t.Errorf("asked for %s after %v, got %s as of %v", uid, after, p.UID, p.At)
	}
	if !after.IsZero() && !w.was(p, after) {
		w.t.Errorf("%s was never %s after %v", uid, write(p), after)
	}
	if len(p.Waiting) > 0 {
		n, err := strconv.Atoi(p.Waiting["version"].Message)
		if err != nil || n < oldest {
			w.t.Errorf("version %d of %s after %d was answered, %v", n, uid, oldest, err)
		}
		w.newest[uid] = max(w.newest[uid], n)
	}
}

// was says that a pod was like that at some moment after another one.
func (w *truth) was(p runtime.Pod, after time.Time) bool {
	all := w.versions[p.UID]
	if len(all) == 0 || all[0].from.After(after) && write(p) == string(p.UID) {
		return write(p) == string(p.UID)
	}
	for i, v := range all {
		v.pod.UID = p.UID
		if (i+1 == len(all) || all[i+1].from.After(after)) && write(v.pod) == write(p) {
			return true
		}
	}
	return false
}

// checkEnd checks that all is known and told once the runtime has been calm for a while.
func (w *truth) checkEnd() {
	w.mu.Lock()
	uids := slices.Collect(maps.Keys(w.versions))
	w.mu.Unlock()
	exist := map[string]runtime.State{}
	for _, uid := range uids {
		got, err := w.g.Pod(w.t.Context(), uid, time.Time{})
		w.mu.Lock()
		want := w.now(uid)
		w.mu.Unlock()
		if err != nil || write(got) != write(want) {
			w.t.Errorf("in the end: %s, %v; want %s", write(got), err, write(want))
		}
		for _, c := range want.Containers {
			exist[c.ID] = c.State
		}
		for _, s := range want.Sandboxes {
			exist[s.ID] = map[bool]runtime.State{true: runtime.Running, false: runtime.Exited}[s.Ready]
		}
	}
	for id, told := range w.told {
		if _, there := exist[id]; !there && !slices.Equal(told[max(0, len(told)-1):], []pleg.Kind{pleg.Removed}) {
			w.t.Errorf("%s is gone, told was %v", id, told)
		}
	}
	for id := range w.shown {
		if _, there := exist[id]; !there && w.shown[id] && len(w.told[id]) == 0 {
			w.t.Errorf("%s came and went, was seen, and never told", id)
		}
	}
	for id, state := range exist {
		told := w.told[id]
		if state == runtime.Running && !slices.Equal(told, []pleg.Kind{pleg.Started}) {
			w.t.Errorf("%s runs, told was %v", id, told)
		}
		if state == runtime.Exited && (len(told) == 0 || told[len(told)-1] != pleg.Died) {
			w.t.Errorf("%s has ended, told was %v", id, told)
		}
	}
	if err := w.g.Healthy(); err != nil {
		w.t.Error(err)
	}
}
