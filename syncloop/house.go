package syncloop

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// housekeep looks at once for what was there before the loop, and then, when all sources have said what they want and at each
// resync, for strangers and leftovers. In between it counts. One at a time, and then two seconds of rest, beside the dispatcher;
// what is asked for meanwhile comes after that.
func (l *Loop) housekeep(ctx context.Context) {
	const pause = 2 * time.Second
	l.r.mu.Lock()
	due := !l.r.listed || l.r.complete
	l.r.mu.Unlock()
	if !due {
		return
	}
	if l.busy {
		l.owed = true
		return
	}
	clean := l.dirty
	l.busy, l.owed, l.dirty = true, false, false
	l.wg.Go(func() {
		if clean {
			l.clean(ctx)
		}
		l.count()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		l.swept <- struct{}{} // one place is free: only one of these runs
	})
}

// clean finds pods that no source knows, and has leftovers swept. The first list is asked for until it comes: before it, no
// pod starts of which an older version may still run.
func (l *Loop) clean(ctx context.Context) {
	for {
		pods, err := l.cfg.Runtime.Pods(ctx)
		if err == nil {
			for _, p := range pods {
				l.stranger(p)
			}
			l.r.mu.Lock()
			first := !l.r.listed
			l.r.listed = true
			l.release()
			l.r.mu.Unlock()
			if first {
				l.log.Debug("what was here before is known", "pods", len(pods))
			}
			break
		}
		if ctx.Err() != nil {
			return
		}
		l.log.Warn("the runtime's pods cannot be listed; tried again", "err", err)
		l.r.mu.Lock()
		listed := l.r.listed
		l.r.mu.Unlock()
		if listed {
			return // at the next resync
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	l.sweep(ctx)
}

func (l *Loop) sweep(ctx context.Context) {
	l.r.mu.Lock()
	complete := l.r.complete
	l.r.mu.Unlock()
	if !complete {
		return
	}
	l.allocated.Keep(l.keep)
	for _, s := range l.cfg.Sweepers {
		if err := s.Sweep(ctx, l.keep); err != nil && ctx.Err() == nil {
			l.log.Warn("leftovers of pods were not all removed; next try at the next resync", "err", err)
		}
	}
}

// keep says that a pod is still known.
func (l *Loop) keep(uid types.UID) bool { return !l.r.Removable(uid) }

// inspect looks at a pod somebody woke that no source wants.
func (l *Loop) inspect(ctx context.Context, uid types.UID) {
	if l.cfg.States != nil {
		if seen, err := l.see(ctx, uid, time.Time{}); err == nil && none(seen) {
			return // whoever sees that something of it exists wakes it again
		}
	}
	seen, err := l.see(ctx, uid, time.Now())
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("a pod that nobody wants cannot be looked at; next try at the next resync", "uid", uid, "err", err)
		}
		return
	}
	l.stranger(seen)
}

// none says that a pod does not exist.
func none(seen runtime.Pod) bool { return len(seen.Sandboxes)+len(seen.Containers) == 0 }

// stranger notes a pod that exists and that no source wants, so far. Of one that is wanted and not let in yet, or that came to end,
// it notes what there is of it, if nobody has looked yet.
func (l *Loop) stranger(seen runtime.Pod) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.init()
	if none(seen) {
		return
	}
	if w := l.r.pods[seen.UID]; w != nil {
		if (w.phase == held || w.cameToEnd) && w.seenBy == 0 && none(w.seen) {
			w.seen = seen
		}
		return
	}
	l.r.enter(seen.UID, nil, "").seen = seen
}

// judge begins to end a stranger, once it is sure that no source wants it: all have said what they want, or a newer version
// of it from a file is there.
func (l *Loop) judge(w *worker) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if w.phase != held || w.pod != nil || !l.r.complete && !l.superseded(w) {
		return
	}
	l.log.Info("a pod that no source wants is ended and removed", "ref", w.ref().String())
	l.metrics.orphans.Record(1)
	w.end(l.r, runtime.Termination{})
}

func (l *Loop) superseded(w *worker) bool {
	me := w.ref()
	if !unique(w) {
		return false
	}
	for _, o := range l.r.pods {
		if o.pod != nil && unique(o) && o.pod.Name == me.Name && o.pod.Namespace == me.Namespace {
			return true
		}
	}
	return false
}

// count shows how many pods are in which phase.
func (l *Loop) count() {
	var n [forgotten + 1]float64
	pending := map[string]float64{v1.PodReasonDeferred: 0, v1.PodReasonInfeasible: 0}
	progress := 0.0
	l.r.mu.Lock()
	for _, w := range l.r.pods {
		n[w.phase]++
		if w.pending != nil {
			pending[w.pending.Reason]++
		}
		if w.progress != nil {
			progress++
		}
	}
	l.r.mu.Unlock()
	for reason, count := range pending {
		l.metrics.pendingResizes.Record(count, strings.ToLower(reason))
	}
	l.metrics.resizesInProgress.Record(progress)
	for p := range forgotten {
		l.metrics.workers.Record(n[p], p.String())
	}
}
