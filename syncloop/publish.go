package syncloop

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// announce has the newest status of a pod told, by the one publisher it has. The roster is locked.
func (l *Loop) announce(ctx context.Context, w *worker) {
	if w.pod == nil || w.phase == held || w.told {
		return
	}
	if w.publishAt.busy {
		w.publishAt.again = true
		return
	}
	w.publishAt = publishing{busy: true}
	l.wg.Go(func() {
		for {
			err := l.publish(ctx, w)
			l.r.mu.Lock()
			if again := w.publishAt.again && ctx.Err() == nil; again {
				w.publishAt.again = false
				l.r.mu.Unlock()
				continue
			}
			w.publishAt.busy = false
			if err != nil && ctx.Err() == nil {
				l.log.Warn("a pod's status was not told and is tried again", "ref", w.ref().String(), "err", err)
				l.after(w, retryMax)
			}
			if w.told && w.absent || w.retries() {
				l.r.wake(w.uid) // to be purged, or judged again
			}
			l.r.mu.Unlock()
			return
		}
	})
}

// publish tells the newest status, and after the last one that the pod has finished. It takes no turn of the worker: a
// probe result is out while a pull or a hook still holds the step.
func (l *Loop) publish(ctx context.Context, w *worker) error {
	l.r.mu.Lock()
	p, rejected, told := w.phase, w.rejection != nil, w.told
	known := w.seenBy > 0 || rejected
	l.r.mu.Unlock()
	if told {
		return nil
	}
	if p < terminated {
		// Before the first look nothing is known, which is not the same as nothing being there.
		seen, err := l.lookAfter(ctx, w, time.Time{})
		switch {
		case err != nil && !known:
			return err
		case err == nil && rejected && seen.ContainersRunning():
			return nil // it ran under an earlier agent: it is over when that is stopped
		}
	}
	s := l.compute(w)
	l.r.mu.Lock()
	pod, gone := w.pod, w.absent && w.source == apiSource // then there is no object to write to
	if w.phase < terminated && !rejected {
		s = w.delayed(s)
	}
	w.shown = v1.PodStatus{Phase: s.Phase, Reason: s.Reason, Message: s.Message}
	l.r.mu.Unlock()
	lost := false
	if !gone {
		err := l.cfg.Sink.UpdateStatus(ctx, pod, s)
		refused := p == finished && pod.DeletionTimestamp != nil && errors.Is(err, status.ErrRefused)
		if lost = errors.Is(err, runtime.ErrNotFound); err != nil && !lost && !refused {
			return err
		}
		if refused {
			l.log.Error("the last status of a pod is refused; its object goes without", "pod", pod.Name, "namespace", pod.Namespace, "uid", pod.UID, "err", err)
		}
	}
	if p != finished {
		return nil
	}
	if !lost {
		if err := l.cfg.Sink.Finished(ctx, pod); err != nil && !errors.Is(err, runtime.ErrNotFound) {
			return err
		}
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if w.told = w.pod == pod || w.pod.DeletionTimestamp == nil || pod.DeletionTimestamp != nil; w.told {
		closeOnce(w.reported)
	}
	return nil
}

// delayed is a status that does not say yet that the pod is over, nor for what it was ended: something of it may run, and who
// reads that it is over gives to others what it holds. The roster is locked.
func (w *worker) delayed(s v1.PodStatus) v1.PodStatus {
	was := w.shown
	if was.Phase == "" {
		was = w.pod.Status
	}
	if !over(s.Phase) || over(was.Phase) {
		return s
	}
	s.Phase, s.Reason, s.Message = cmp.Or(was.Phase, v1.PodPending), was.Reason, was.Message
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
	return s
}

// compute makes the status that follows from what was last seen, and has the right probes under way.
func (l *Loop) compute(w *worker) v1.PodStatus {
	w.computing.Lock()
	defer w.computing.Unlock()
	l.r.mu.Lock()
	in := status.Input{
		Pod: w.pod, Last: w.last, Seen: w.seen, Termination: w.ending, Rejection: w.rejection, Ended: w.phase >= terminated,
	}
	p := w.phase
	in.Extra = l.resizing(w)
	if g := w.observed(); p == syncing && g < in.Pod.Generation {
		older := *in.Pod
		older.Generation = g
		in.Pod = &older
	}
	l.r.mu.Unlock()
	if l.cfg.Probes != nil && p < terminated && w.rejection == nil {
		l.cfg.Probes.Track(in.Pod, in.Seen, p == terminating)
		in.ProbeResults = l.cfg.Probes.Results(w.uid)
	}
	in.HostIPs, in.RuntimeName, in.Now = l.cfg.HostIPs(), l.cfg.RuntimeName(), time.Now()
	s := l.cfg.Status(in)
	if over(s.Phase) && len(in.Extra) > 0 { // what is over resizes no more
		in.Extra = nil
		s = l.cfg.Status(in)
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if w.last.Phase == v1.PodPending && s.Phase == v1.PodRunning {
		if first, err := time.Parse(seenFormat, w.pod.Annotations[podspec.SeenAnnotation]); err == nil {
			l.metrics.starts.Record(time.Since(first).Seconds())
		}
	}
	w.last = s
	if over(s.Phase) {
		w.pending, w.progress, w.undecided = nil, nil, false
	}
	return s
}

// observed is the generation of the spec that was acted upon: a step under way knows only that which it took, and a wish
// for other sizes counts once it was decided. The roster is locked.
func (w *worker) observed() int64 {
	g := w.pod.Generation
	if w.used > 0 {
		g = min(g, w.used)
	}
	if w.undecided {
		g = min(g, max(w.last.ObservedGeneration, w.pod.Status.ObservedGeneration))
	}
	return g
}
