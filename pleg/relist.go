package pleg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Relist lists once, looks at every pod that differs, and returns when all that is told. The error is of the listing,
// or joins those of the looks.
func (g *Generator) Relist(ctx context.Context) error {
	changed, _, err := g.list(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(changed))
	var wg sync.WaitGroup
	for i, l := range changed {
		wg.Go(func() { errs[i] = g.inspect(ctx, l) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// list takes a listing in, tells of the pods that are gone, and returns those to be looked at. settled says that
// nothing is left to find out about any pod.
func (g *Generator) list(ctx context.Context) (changed []*runtime.Pod, settled bool, err error) {
	if err := g.listing.Acquire(ctx, 1); err != nil {
		return nil, false, err
	}
	defer g.listing.Release(1)
	at := time.Now()
	g.mu.Lock()
	last := g.listed
	g.mu.Unlock()
	g.metrics.begin(at, last)
	defer g.metrics.end(at)

	own, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	pods, err := g.cfg.Source.Pods(own)
	if err != nil {
		err = fmt.Errorf("list pods: %w", err)
		g.mu.Lock()
		g.failure = err
		g.mu.Unlock()
		return nil, false, err
	}
	g.metrics.count(pods, at)
	changed, gone, settled := g.compare(pods, at)
	for _, f := range gone {
		g.tell(f.events)
		g.land(f)
	}
	return changed, settled, nil
}

// compare marks what a listing begun at that moment confirms, and finds the pods that differ and those that are gone.
// The latter are taken out, each behind a flight that keeps its events in order. A pod at which somebody looks, or has
// looked since the listing began, is not judged by it: the listing may be the older of the two.
func (g *Generator) compare(pods []runtime.Pod, at time.Time) (changed []*runtime.Pod, gone []*flight, settled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed, g.failure = at, nil
	settled = true
	shown := make(map[types.UID]struct{}, len(pods))
	for _, p := range pods {
		p.At = at
		shown[p.UID] = struct{}{}
		r := g.pods[p.UID]
		if r == nil {
			r = new(record)
			g.pods[p.UID] = r
		}
		switch {
		case g.lookedSince(p.UID, r, at):
			settled = false
		case r.seen() && !r.failed && same(r.pod, p):
			r.checked = at
		default:
			settled = false
			r.listed = &p
			changed = append(changed, &p)
		}
	}
	for uid, r := range g.pods {
		if _, there := shown[uid]; there {
			continue
		}
		if g.lookedSince(uid, r, at) {
			settled = false
			continue
		}
		f := newFlight(uid)
		f.at, f.pod, f.events = at, empty(uid, at), told(diff(r.pod, runtime.Pod{}))
		g.flights[uid] = f
		delete(g.pods, uid)
		gone = append(gone, f)
	}
	return changed, gone, settled
}

func (g *Generator) lookedSince(uid types.UID, r *record, at time.Time) bool {
	return r.listed != nil || g.flights[uid] != nil || r.seen() && !r.until.Before(at)
}

// inspect looks at a pod that a listing showed changed.
func (g *Generator) inspect(ctx context.Context, listed *runtime.Pod) error {
	defer g.inspected(listed)
	f, err := g.takeOff(ctx, listed.UID)
	if err != nil {
		return err
	}
	g.look(ctx, f, listed)
	return f.err
}

func (g *Generator) inspected(listed *runtime.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.pods[listed.UID]; r != nil && r.listed == listed {
		r.listed = nil
	}
}

func (g *Generator) inspectAndLog(ctx context.Context, listed *runtime.Pod) {
	g.mu.Lock()
	r := g.pods[listed.UID]
	again := r != nil && r.failed
	g.mu.Unlock()
	err := g.inspect(ctx, listed)
	if err == nil || ctx.Err() != nil {
		return
	}
	say := g.log.Warn
	if again {
		say = g.log.Debug
	}
	say("a look at a pod failed; the next relist tries again", "pod", listed.Name, "namespace", listed.Namespace, "uid", listed.UID, "err", err)
}
