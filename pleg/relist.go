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
	for i, f := range changed {
		wg.Go(func() {
			g.look(ctx, f)
			errs[i] = f.err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// list takes a listing in, tells of the pods that are gone, and returns flights to those that differ, which the caller
// must carry out. settled says that nothing is left to find out about any pod.
func (g *Generator) list(ctx context.Context) (changed []*flight, settled bool, err error) {
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
		g.tell(f)
		g.land(f)
	}
	return changed, settled, nil
}

// compare marks what a listing begun at that moment confirms, and finds the pods that differ and those that are gone,
// each with a flight that keeps its events in order. Those that are gone are taken out. A pod at which somebody looks,
// or has looked since the listing began, is not judged by it: the listing may be the older of the two.
func (g *Generator) compare(pods []runtime.Pod, at time.Time) (changed, gone []*flight, settled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed, g.failure = at, nil
	g.round++
	settled = true
	for i := range pods {
		p := &pods[i]
		r := g.pods[p.UID]
		if r == nil {
			r = new(record)
			g.pods[p.UID] = r
		}
		r.round = g.round
		switch {
		case g.lookedSince(p.UID, r, at):
			settled = false
		case r.seen() && !r.failed && same(&r.pod, p):
			r.checked = at
		default:
			settled = false
			f, _ := g.board(p.UID)
			f.listed = p
			changed = append(changed, f)
		}
	}
	for uid, r := range g.pods {
		if r.round == g.round {
			continue
		}
		if g.lookedSince(uid, r, at) {
			settled = false
			continue
		}
		f, _ := g.board(uid)
		f.at, f.pod, f.events = at, empty(uid, at), told(diff(r.pod, runtime.Pod{}))
		delete(g.pods, uid)
		gone = append(gone, f)
	}
	return changed, gone, settled
}

func (g *Generator) lookedSince(uid types.UID, r *record, at time.Time) bool {
	return g.flights[uid] != nil || r.seen() && !r.until.Before(at)
}

// inspect is look for Run, which goes on whatever comes of it.
func (g *Generator) inspect(ctx context.Context, f *flight) {
	g.mu.Lock()
	again := g.pods[f.uid].failed
	g.mu.Unlock()
	g.look(ctx, f)
	if f.err == nil || f.abandoned {
		return
	}
	say := g.log.Warn
	if again {
		say = g.log.Debug
	}
	say("a look at a pod failed; the next relist tries again", "pod", f.listed.Name, "namespace", f.listed.Namespace, "uid", f.uid, "err", f.err)
}
