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

// record is what is known of one pod. One that does not exist may have a record until the next listing.
type record struct {
	pod     runtime.Pod // the newest complete look; a zero At means that none has succeeded
	until   time.Time   // just after that look
	checked time.Time   // just before a listing that showed the same
	round   uint64      // the last listing that showed it
	failed  bool        // the last look failed: look again, whatever listings show
}

func (r *record) seen() bool { return !r.pod.At.IsZero() }

// flight is one look under way. There is never more than one for a pod, so that its events are told in order, and as
// long as there is one the pod has a record.
// The fields but done may be read once done is closed.
type flight struct {
	uid       types.UID
	done      chan struct{}
	listed    *runtime.Pod // the listing that led to it; nil: somebody asked
	at        time.Time    // just before the look
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
			g.look(ctx, f)
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
	if g.pods[uid] == nil {
		g.pods[uid] = new(record)
	}
	return f, true
}

// land ends a flight.
func (g *Generator) land(f *flight) {
	g.mu.Lock()
	delete(g.flights, f.uid)
	g.mu.Unlock()
	close(f.done)
}

// look carries a flight out: look, remember, tell.
func (g *Generator) look(ctx context.Context, f *flight) {
	defer g.land(f)
	pod, err := g.see(ctx, f)
	if err != nil {
		f.err = fmt.Errorf("look at pod %s: %w", f.uid, err)
		f.abandoned = ctx.Err() != nil
		g.mu.Lock()
		g.pods[f.uid].failed = g.pods[f.uid].failed || !f.abandoned
		g.mu.Unlock()
		return
	}
	g.mu.Lock()
	f.pod, f.events = g.remember(pod, f.listed)
	g.mu.Unlock()
	g.tell(f)
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

// remember keeps a look and says what is to be told of it. A look that shows nothing is kept too, until a listing
// confirms it: one that began earlier must not bring the pod back. The caller holds mu.
func (g *Generator) remember(look runtime.Pod, listed *runtime.Pod) (runtime.Pod, []Event) {
	r := g.pods[look.UID]
	was := r.pod
	if shows(look) && len(look.IPs) == 0 && !ready(look) {
		look.IPs = was.IPs
	}
	var events []Event
	if listed != nil { // what was listed and is gone by now is not passed over
		events, was = diff(was, *listed), *listed
	}
	events = told(append(events, diff(was, look)...))
	if r.failed && len(events) == 0 && shows(look) {
		events = []Event{{Kind: Changed, Pod: ref(was, look)}}
	}
	r.pod, r.until, r.failed = look, time.Now(), false
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

// tell says what a flight found out.
func (g *Generator) tell(f *flight) {
	died := false
	for _, e := range f.events {
		g.cfg.Tell(e)
		died = died || e.Kind == Died
	}
	if died {
		g.cfg.Died(f.pod)
	}
}
