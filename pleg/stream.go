package pleg

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	quietPeriod  = time.Minute      // between relists while the stream stands
	standsAfter  = 10 * time.Second // a stream open for so long is taken to stand; until then relists close the gap before it
	firstBackoff = time.Second
	lastBackoff  = 30 * time.Second
	busyLimit    = time.Second          // how long events wait for whoever works on their pod
	busyPause    = 2 * time.Millisecond // from one step of his to the next, at most
)

// follow keeps the notifier's stream open until ctx ends.
func (g *Generator) follow(ctx context.Context, wg *sync.WaitGroup) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		begun := time.Now()
		g.setStream(begun)
		err := g.cfg.Notifier.Events(ctx, func(e runtime.Event) { g.hear(ctx, wg, e) })
		g.setStream(time.Time{})
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errors.ErrUnsupported):
			g.log.Info("the runtime has no event stream; relists have to do")
			return
		}
		if time.Since(begun) >= standsAfter {
			backoff = firstBackoff
		}
		g.log.Warn("the runtime's event stream ended; relists go on and it is opened again", "err", err, "pause", backoff)
		g.hurry()
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

func (g *Generator) setStream(since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stream = since
}

func (g *Generator) streamStands() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.stream.IsZero() && time.Since(g.stream) >= standsAfter
}

// hint is what the stream said of a pod.
type hint struct {
	n  int       // how often
	at time.Time // last
}

// hear has the pod of an event looked at. Events that come while one is looked at lead to one more look. It returns at
// once: containerd stops starting containers, of all pods, while a reader of its stream is slow.
func (g *Generator) hear(ctx context.Context, wg *sync.WaitGroup, e runtime.Event) {
	if f := g.lost(e); f != nil {
		g.tell(f)
		g.land(f)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	uid := g.about(e)
	if uid == "" {
		g.hurry()
		return
	}
	h, busy := g.hints[uid]
	g.hints[uid] = hint{n: h.n + 1, at: time.Now()}
	if busy {
		g.metrics.merged.Record(1)
	} else {
		wg.Go(func() { g.heed(ctx, uid) })
	}
}

// lost takes what an event says is gone out of what is known of its pod, for which nobody must look: it cannot come back. The
// flight has what is to be told; the caller lands it. It is nil when a look must decide: one is under way, or none has
// succeeded.
func (g *Generator) lost(e runtime.Event) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	uid := g.about(e)
	r := g.pods[uid]
	if !e.Gone || e.Container == "" || r == nil || !r.seen() || r.failed || g.flights[uid] != nil {
		return nil
	}
	was := r.pod
	r.pod.Containers = slices.DeleteFunc(slices.Clone(was.Containers), func(c runtime.Container) bool { return c.ID == e.Container })
	r.pod.Sandboxes = slices.DeleteFunc(slices.Clone(was.Sandboxes), func(s runtime.Sandbox) bool { return s.ID == e.Container })
	if !shows(r.pod) {
		r.pod = empty(uid, was.At)
	}
	r.until = time.Now() // a listing begun before may still show it
	f, _ := g.board(uid)
	f.at, f.pod, f.events = was.At, r.pod, told(diff(was, r.pod))
	return f
}

// about is the pod of an event; empty: not known. The caller holds mu.
func (g *Generator) about(e runtime.Event) types.UID {
	if e.Pod.UID != "" {
		return e.Pod.UID
	}
	return g.owner(e.Container)
}

// owner is the pod in which a container or sandbox was seen last. containerd names no pod in an event when it could not
// look it up any more. The caller holds mu.
func (g *Generator) owner(id string) types.UID {
	if id == "" {
		return ""
	}
	for uid, r := range g.pods {
		if slices.ContainsFunc(r.pod.Containers, func(c runtime.Container) bool { return c.ID == id }) ||
			slices.ContainsFunc(r.pod.Sandboxes, func(s runtime.Sandbox) bool { return s.ID == id }) {
			return uid
		}
	}
	return ""
}

// heed looks at a pod until there was no event of it since the last look began. Whoever works on the pod has mostly looked
// when he is done, and memory answers.
func (g *Generator) heed(ctx context.Context, uid types.UID) {
	for {
		g.unbusy(ctx, uid)
		g.mu.Lock()
		h := g.hints[uid]
		g.mu.Unlock()
		if _, err := g.Pod(ctx, uid, h.at); err != nil {
			g.hurry() // a relist finds that there is something left to look at
		}
		g.mu.Lock()
		done := g.hints[uid].n == h.n
		if done {
			delete(g.hints, uid)
		}
		g.mu.Unlock()
		if done {
			return
		}
	}
}

// unbusy waits until nobody works on a pod, for a while. Who is about to, as he was just before, is given a moment to begin.
func (g *Generator) unbusy(ctx context.Context, uid types.UID) {
	if g.cfg.Busy == nil {
		return
	}
	limit := time.NewTimer(busyLimit)
	defer limit.Stop()
	for {
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return
		}
		busy := g.cfg.Busy(uid)
		if busy == nil {
			return
		}
		select {
		case <-busy:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
