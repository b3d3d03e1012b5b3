package pleg

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// slowAfter is when a look that goes on gives its room to another.
const slowAfter = time.Second

// record is what is known of one pod.
type record struct {
	pod     runtime.Pod  // the newest complete look; a zero At means that none has succeeded
	until   time.Time    // just after that look
	checked time.Time    // just before a listing that showed the same
	listed  *runtime.Pod // the listing that has led to an inspection, until that has ended
	failed  bool         // the last look failed: look again, whatever listings show
}

func (r *record) seen() bool { return !r.pod.At.IsZero() }

// flight is one look under way. There is never more than one for a pod, so that its events are told in order.
// The fields but done may be read once done is closed.
type flight struct {
	uid       types.UID
	done      chan struct{}
	at        time.Time // just before the look
	pod       runtime.Pod
	err       error
	abandoned bool // the one who looked gave up; that says nothing of the pod
	events    []Event
}

func newFlight(uid types.UID) *flight { return &flight{uid: uid, done: make(chan struct{})} }

func empty(uid types.UID, at time.Time) runtime.Pod {
	return runtime.Pod{PodRef: runtime.PodRef{UID: uid}, At: at}
}

// Pod is what was seen of a pod after that moment: from memory when it was looked at since, or a listing since showed
// no change; else by a look, which those who ask at the same time share. Its At says as of when it holds. A zero after
// takes what there is. A pod that does not exist is an empty one. Callers must not change what they get.
func (g *Generator) Pod(ctx context.Context, uid types.UID, after time.Time) (runtime.Pod, error) {
	for {
		g.mu.Lock()
		if pod, ok := g.recall(uid, after); ok {
			g.mu.Unlock()
			return pod, nil
		}
		f, leads := g.board(uid)
		g.mu.Unlock()
		if leads {
			g.look(ctx, f, nil)
			return f.pod, f.err
		}
		select {
		case <-ctx.Done():
			return runtime.Pod{}, fmt.Errorf("look at pod %s: %w", uid, context.Cause(ctx))
		case <-f.done:
		}
		if !f.abandoned && f.at.After(after) {
			return f.pod, f.err
		}
	}
}

// recall answers from memory. The caller holds mu.
func (g *Generator) recall(uid types.UID, after time.Time) (runtime.Pod, bool) {
	pod := empty(uid, g.listed)
	if r := g.pods[uid]; r != nil {
		pod = r.pod
		if r.seen() && r.checked.After(pod.At) {
			pod.At = r.checked
		}
	}
	return pod, !pod.At.IsZero() && pod.At.After(after)
}

// board is the flight of a pod; leads says that it is new, and the caller must carry it out. The caller holds mu.
func (g *Generator) board(uid types.UID) (f *flight, leads bool) {
	if f := g.flights[uid]; f != nil {
		return f, false
	}
	f = newFlight(uid)
	g.flights[uid] = f
	return f, true
}

// takeOff waits until nobody looks at a pod, and begins a flight that the caller must carry out.
func (g *Generator) takeOff(ctx context.Context, uid types.UID) (*flight, error) {
	for {
		g.mu.Lock()
		f, leads := g.board(uid)
		g.mu.Unlock()
		if leads {
			return f, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-f.done:
		}
	}
}

// land ends a flight.
func (g *Generator) land(f *flight) {
	g.mu.Lock()
	delete(g.flights, f.uid)
	g.mu.Unlock()
	close(f.done)
}

// look carries a flight out: look, remember, tell. listed is the listing before it that led to it, if one did.
func (g *Generator) look(ctx context.Context, f *flight, listed *runtime.Pod) {
	defer g.land(f)
	pod, err := g.see(ctx, f)
	if err != nil {
		f.err = fmt.Errorf("look at pod %s: %w", f.uid, err)
		f.abandoned = ctx.Err() != nil
		g.mu.Lock()
		if r := g.pods[f.uid]; r != nil && !f.abandoned {
			r.failed = true
		}
		g.mu.Unlock()
		return
	}
	g.mu.Lock()
	f.pod, f.events = g.remember(pod, listed)
	g.mu.Unlock()
	g.tell(f.events)
}

// see asks the source, as soon as there is room. A look that takes long makes room for others.
func (g *Generator) see(ctx context.Context, f *flight) (runtime.Pod, error) {
	if err := g.room.Acquire(ctx, 1); err != nil {
		return runtime.Pod{}, err
	}
	leave := sync.OnceFunc(func() { g.room.Release(1) })
	defer leave()
	defer time.AfterFunc(slowAfter, leave).Stop()
	own, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()

	f.at = time.Now()
	pod, err := g.cfg.Source.Pod(own, f.uid)
	g.metrics.looked(f.at)
	pod.UID, pod.At = f.uid, f.at
	return pod, err
}

// remember keeps a look and says what is to be told of it. The caller holds mu.
func (g *Generator) remember(look runtime.Pod, listed *runtime.Pod) (runtime.Pod, []Event) {
	// A source may list pods of which nothing exists yet; they are remembered as they are.
	exists := shows(look) || listed != nil && !shows(*listed)
	r := g.pods[look.UID]
	switch {
	case r == nil && (!exists || look.At.Before(g.listed)): // a listing since then did not show it
		return look, nil
	case r == nil:
		r = new(record)
		g.pods[look.UID] = r
	}
	if exists && len(look.IPs) == 0 && !ready(look) {
		look.IPs = r.pod.IPs
	}
	was := r.pod
	var events []Event
	if listed != nil && was.At.Before(listed.At) { // what was listed and is gone by now is not passed over
		events, was = diff(was, *listed), *listed
	}
	events = told(append(events, diff(was, look)...))
	if r.failed && len(events) == 0 {
		events = []Event{{Kind: Changed, Pod: ref(was, look)}}
	}
	r.pod, r.until, r.checked, r.failed = look, time.Now(), time.Time{}, false
	if !exists {
		delete(g.pods, look.UID)
	}
	return look, events
}

// shows says that something of a pod exists.
func shows(p runtime.Pod) bool { return len(p.Containers)+len(p.Sandboxes) > 0 }

func ready(p runtime.Pod) bool {
	for _, s := range p.Sandboxes {
		if s.Ready {
			return true
		}
	}
	return false
}

// told are the events somebody acts on.
func told(events []Event) []Event {
	out := events[:0]
	for _, e := range events {
		if e.Kind != Changed {
			out = append(out, e)
		}
	}
	return out
}

func (g *Generator) tell(events []Event) {
	for _, e := range events {
		g.cfg.Tell(e)
	}
}
