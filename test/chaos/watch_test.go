package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pollEvery is the time between two looks at the runtime.
const pollEvery = 25 * time.Millisecond

// watcher looks at the runtime all the time.
type watcher struct {
	view     func(context.Context) (view, error)
	report   func(format string, args ...any) // gets what is wrong
	tolerant bool                             // a runtime that cannot be asked is no news
	stop     func()                           // ends it and waits

	mu         sync.Mutex // guards the rest
	rules      rules
	looks      int
	longest    time.Duration // between the beginnings of two looks
	pods       map[string]bool
	containers map[string]bool
	context    string // what happens, for the message
}

// watch begins to look. The test fails as soon as a rule is broken.
func (n *node) watch(t *testing.T, firm ...*cri.Container) *watcher {
	t.Helper()
	w := &watcher{view: n.view, report: t.Errorf}
	w.start(t.Context(), firm...)
	t.Cleanup(w.stop)
	return w
}

// start begins to look until stop is called.
func (w *watcher) start(ctx context.Context, firm ...*cri.Container) {
	ctx, cancel := context.WithCancel(ctx)
	w.pods, w.containers = map[string]bool{}, map[string]bool{}
	for _, c := range firm {
		w.rules.stay(c)
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.run(ctx) })
	w.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
}

func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		begun := time.Now()
		v, err := w.view(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			w.take(v, begun.Sub(last))
			last = begun
		case !w.tolerant:
			w.report("watch: %v", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *watcher) take(v view, gap time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	w.longest = max(w.longest, gap)
	for _, c := range v.containers {
		w.pods[name(c).uid] = true
		w.containers[c.GetId()] = true
	}
	for _, broken := range w.rules.look(v) {
		if len(w.rules.broken) <= 20 { // one cause breaks a rule in every look
			w.report("at %s: %s", w.context, broken)
		}
	}
}

// during says what happens now.
func (w *watcher) during(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.context = fmt.Sprintf(format, args...)
}

// release lets containers end that nobody touched so far.
func (w *watcher) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules.firm = nil
}

// ok says that no rule was broken so far.
func (w *watcher) ok() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.rules.broken) == 0
}

// String tells what was seen.
func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var most uint32
	for _, a := range w.rules.attempts {
		most = max(most, a)
	}
	return fmt.Sprintf("%d looks, at most %v apart, at %d pods and %d containers; highest restart count %d",
		w.looks, round(w.longest), len(w.pods), len(w.containers), most)
}
