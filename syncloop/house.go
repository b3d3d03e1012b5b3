package syncloop

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// housekeep looks for strangers and has leftovers swept, once all sources have said what they want. One at a time, at most
// every two seconds, beside the dispatcher.
func (l *Loop) housekeep(ctx context.Context) {
	const pause = 2 * time.Second
	l.r.mu.Lock()
	complete := l.r.complete
	l.r.mu.Unlock()
	if !complete || l.busy || !l.cleaned.IsZero() && time.Since(l.cleaned) < pause {
		return
	}
	l.busy, l.cleaned = true, time.Now()
	l.wg.Go(func() {
		l.clean(ctx)
		l.swept <- struct{}{} // one place is free: only one of these runs
	})
}

func (l *Loop) clean(ctx context.Context) {
	pods, err := l.cfg.Runtime.Pods(ctx)
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("strangers cannot be looked for; next try at the next resync", "err", err)
		}
		return
	}
	for _, p := range pods {
		l.stranger(p)
	}
	l.count()
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
	seen, err := l.see(ctx, uid, time.Now())
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("a pod that nobody wants cannot be looked at; next try at the next resync", uidOf(uid), "err", err)
		}
		return
	}
	l.stranger(seen)
}

// stranger begins to end a pod that exists and that no source wants.
func (l *Loop) stranger(seen runtime.Pod) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if len(seen.Sandboxes)+len(seen.Containers) == 0 || l.r.pods[seen.UID] != nil || !l.r.complete {
		return
	}
	l.log.Info("a pod that no source wants is ended and removed", "ref", seen.PodRef.String())
	l.metrics.orphans.Record(1)
	w := l.r.enter(seen.UID, nil, "")
	w.seen, w.phase = seen, syncing
	w.end(l.r, runtime.Termination{})
}

// count shows how many pods are in which phase.
func (l *Loop) count() {
	var n [forgotten + 1]float64
	l.r.mu.Lock()
	for _, w := range l.r.pods {
		n[w.phase]++
	}
	l.r.mu.Unlock()
	for p := held; p < forgotten; p++ {
		l.metrics.workers.Record(n[p], p.String())
	}
}
