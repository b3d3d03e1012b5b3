package syncloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Waits after steps that failed: doubled each time, and spread by half.
const (
	retryFirst = time.Second
	retryMax   = 10 * time.Second
)

// actsAtOnce is how many steps in a row may change something before the next one waits.
const actsAtOnce = 100

// turn gives a pod a step and a publish, unless they are under way: then each is taken once more.
func (l *Loop) turn(ctx context.Context, uid types.UID) {
	l.r.mu.Lock()
	w, complete := l.r.pods[uid], l.r.complete
	waiting := w != nil && w.phase == held
	unknown := waiting && w.pod == nil
	over := w != nil && w.retries()
	l.r.mu.Unlock()
	switch {
	case unknown:
		l.judge(w)
	case waiting:
		l.admit(ctx, w)
	case over: // there is nothing else to be done about it
		l.retry(ctx, w)
	case w != nil:
		l.work(ctx, w)
	case complete:
		l.wg.Go(func() { l.inspect(ctx, uid) })
	}
}

func (l *Loop) work(ctx context.Context, w *worker) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.late(w) // also while a step, such as a long pull, is under way
	l.announce(ctx, w)
	if w.stepping {
		w.stepAgain = true
		return
	}
	own, stop := context.WithCancel(ctx)
	w.stepping, w.stop, w.stepped, w.retryAt = true, stop, make(chan struct{}), time.Time{}
	w.quiet()
	l.late(w)
	if left := time.Until(w.reviewAt); left > 0 {
		l.after(w, left)
	}
	news := func() {
		l.r.mu.Lock()
		defer l.r.mu.Unlock()
		l.announce(ctx, w)
	}
	l.wg.Go(func() {
		defer stop()
		l.step(own, w, news)
		l.r.mu.Lock()
		defer l.r.mu.Unlock()
		w.stepping, w.stop = false, nil
		close(w.stepped)
		if w.stepAgain {
			w.stepAgain = false
			l.r.wake(w.uid)
		}
	})
}

// step takes a pod one step further in its life. news has the status told that follows from a new look.
func (l *Loop) step(ctx context.Context, w *worker, news func()) {
	start := time.Now()
	l.r.mu.Lock()
	p := w.phase
	l.r.mu.Unlock()
	var err error
	switch p {
	case syncing:
		err = l.sync(ctx, w, news)
	case terminating:
		err = l.terminate(ctx, w, news)
	case terminated:
		err = l.giveBack(ctx, w)
	case finished:
		err = l.purge(ctx, w)
	default:
		return
	}
	l.metrics.steps.Record(time.Since(start).Seconds(), p.String())
	if ctx.Err() == nil {
		l.outcome(w, p, err)
	}
}

// outcome makes a step that failed be taken again.
func (l *Loop) outcome(w *worker, p phase, err error) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	switch {
	case err == nil:
		w.failures = 0
		return
	case errors.Is(err, runtime.ErrInProgress): // whoever works on it wakes the pod
		l.log.Debug("a step waits", "phase", p.String(), "uid", w.uid, "err", err)
		return
	}
	wait := min(retryFirst<<min(w.failures, 10), retryMax)
	wait += spread(wait/2, w.uid, w.looks)
	w.failures++
	if w.retryAt.After(time.Now()) { // the runtime knows best when
		wait = time.Until(w.retryAt)
	}
	l.complain(w, p, err)
	l.after(w, wait)
	if p == finished {
		l.release()
	}
}

// complain tells people of a failure, but not again within a minute if it is the same. The roster is locked.
func (l *Loop) complain(w *worker, p phase, err error) {
	const again = time.Minute
	if w.complaint == err.Error() && time.Since(w.complained) < again {
		l.log.Debug("a step of a pod failed again", "phase", p.String(), "ref", w.ref().String(), "err", err)
		return
	}
	w.complaint, w.complained = err.Error(), time.Now()
	l.log.Warn("a step of a pod failed and is tried again", "phase", p.String(), "ref", w.ref().String(), "err", err)
	if _, is := errors.AsType[*mountError](err); is {
		l.tell(w.pod, "FailedMount", err.Error())
		return
	}
	if _, why, is := strings.Cut(err.Error(), runtime.ErrNetworkNotReady.Error()); is && errors.Is(err, runtime.ErrNetworkNotReady) {
		l.tell(w.pod, "NetworkNotReady", runtime.ErrNetworkNotReady.Error()+why)
		return
	}
	switch p {
	case syncing:
		l.tell(w.pod, "FailedSync", "Error syncing pod, it is tried again: "+err.Error())
	case terminating:
		l.tell(w.pod, "FailedKillPod", "error killing pod: "+err.Error())
	case held, terminated, finished, forgotten:
	}
}

// look sees the pod as it is after its last act. Nothing was done yet for one that has just come, and mostly nothing of it
// exists, as memory knows: were there something that an earlier agent left, it would have been listed.
func (l *Loop) look(ctx context.Context, w *worker) (runtime.Pod, error) {
	l.r.mu.Lock()
	after, untouched := w.acted, w.acted.Equal(w.came)
	l.r.mu.Unlock()
	if untouched && l.cfg.States != nil {
		if seen, err := l.lookAfter(ctx, w, time.Time{}); err != nil || none(seen) {
			return seen, err
		}
	}
	return l.lookAfter(ctx, w, after)
}

// lookAfter sees the pod as it was after some moment, and remembers that unless a newer look is known by now.
func (l *Loop) lookAfter(ctx context.Context, w *worker, after time.Time) (runtime.Pod, error) {
	l.r.mu.Lock()
	w.looks++
	number, synced := w.looks, w.synced
	if w.seenBy == 0 && after.Before(w.seen.At) {
		after = w.seen.At // what is known is from a list, and lists are shallow: no exit codes
	}
	l.r.mu.Unlock()
	seen, err := l.see(ctx, w.uid, after)
	if err != nil {
		return seen, fmt.Errorf("look at the pod: %w", err)
	}
	return l.saw(w, seen, number, synced), nil
}

func (l *Loop) see(ctx context.Context, uid types.UID, after time.Time) (runtime.Pod, error) {
	if l.cfg.States != nil {
		return l.cfg.States.Pod(ctx, uid, after)
	}
	return l.cfg.Runtime.Pod(ctx, uid)
}

// saw remembers a look and returns the newest there is. Looks overtake each other; those of one moment count in the order
// in which they were begun. Why containers wait and what they were given the runtime knows by itself, also where the rest comes
// from memory: the last one to come counts, but not after one that was begun when more syncs had ended.
func (l *Loop) saw(w *worker, seen runtime.Pod, number, synced uint64) runtime.Pod {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	own := seen
	if synced < w.seenSynced {
		own = w.seen
	}
	if c := seen.At.Compare(w.seen.At); c < 0 || c == 0 && number < w.seenBy {
		seen = w.seen
	}
	seen.Waiting, seen.Applied, seen.Level = own.Waiting, own.Applied, own.Level
	if len(seen.IPs) == 0 {
		if seen.IPs = w.net.IPs; len(seen.IPs) == 0 {
			seen.IPs = w.seen.IPs
		}
	}
	first := w.seenBy == 0
	w.seen, w.seenBy, w.seenSynced = seen, max(w.seenBy, number), max(w.seenSynced, synced)
	if first && w.cameToEnd && !l.r.listed {
		l.release() // others may wait to know what runs of it
	}
	return seen
}

// sync brings a running pod nearer to its spec.
func (l *Loop) sync(ctx context.Context, w *worker, news func()) error {
	seen, err := l.look(ctx, w)
	if err != nil {
		return err
	}
	l.r.mu.Lock()
	pod := w.pod
	w.used = pod.Generation
	l.r.mu.Unlock()
	news()
	if l.over(w, l.compute(w)) {
		return nil
	}
	in := runtime.SyncInput{Seen: seen}
	if err := l.prepare(ctx, pod, &in); err != nil {
		if rejection, refuses := errors.AsType[*runtime.Rejection](err); refuses {
			l.metrics.rejections.Record(1, counted(rejection.Reason))
			l.tell(pod, rejection.Reason, rejection.Message)
			l.finish(w, runtime.Termination{Reason: rejection.Reason, Message: "Pod was rejected: " + rejection.Message})
			return nil
		}
		return err
	}
	if l.cfg.Probes != nil {
		in.ProbeResults = l.cfg.Probes.Results(w.uid)
	}
	l.r.mu.Lock()
	w.applying = true
	known := *pod // as its newest status tells, which its source may show later, or never
	if w.last.Phase != "" {
		known.Status = w.last
	}
	l.r.mu.Unlock()
	result, err := l.cfg.Runtime.Sync(ctx, &known, in)
	l.acted(w, in.Network, result)
	return err
}

// over ends a pod whose life has reached its last phase, or its deadline.
func (l *Loop) over(w *worker, s v1.PodStatus) bool {
	if over(s.Phase) {
		l.finish(w, runtime.Termination{})
		return true
	}
	defer l.own(w)()
	return l.late(w)
}

// own locks the roster for a step's own worker until done is called. What the step asks for meanwhile comes right after it.
func (l *Loop) own(w *worker) (done func()) {
	l.r.mu.Lock()
	w.own = true
	return func() {
		w.own = false
		l.r.mu.Unlock()
	}
}

// late ends a pod whose time is over, and otherwise has it looked at when that will be so. The roster is locked.
func (l *Loop) late(w *worker) bool {
	if w.phase != syncing || w.pod.Spec.ActiveDeadlineSeconds == nil {
		return false
	}
	start := w.last.StartTime
	if start == nil {
		start = w.pod.Status.StartTime
	}
	if start == nil {
		return false
	}
	left := time.Until(start.Add(podspec.Seconds(*w.pod.Spec.ActiveDeadlineSeconds)))
	if left > 0 {
		l.after(w, left)
		return false
	}
	const reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	l.cfg.Observe.Event(observe.Event{About: l.refOf(w.pod), Reason: reason, Message: message})
	w.end(l.r, runtime.Termination{Reason: reason, Message: message})
	return true
}

func (l *Loop) finish(w *worker, how runtime.Termination) {
	defer l.own(w)()
	w.end(l.r, how)
}

// mountError is a failure to put volumes in place, which people are told of under its own reason.
type mountError struct{ error }

func (e *mountError) Unwrap() error { return e.error }

// prepare has volumes and network ready, side by side.
func (l *Loop) prepare(ctx context.Context, pod *v1.Pod, in *runtime.SyncInput) error {
	var g errgroup.Group
	if l.cfg.Volumes != nil {
		g.Go(func() (err error) {
			in.Volumes, err = l.cfg.Volumes.Mount(ctx, pod)
			if _, refuses := errors.AsType[*runtime.Rejection](err); err != nil && !refuses && !errors.Is(err, runtime.ErrInProgress) {
				err = &mountError{err}
			}
			return err
		})
	}
	if l.cfg.Network != nil && !pod.Spec.HostNetwork {
		g.Go(func() (err error) { in.Network, err = l.cfg.Network.Setup(ctx, pod); return err })
	}
	return g.Wait()
}

// acted notes that what was seen before is old, and when there is more to do.
func (l *Loop) acted(w *worker, net runtime.Network, result runtime.SyncResult) {
	defer l.own(w)()
	w.net, w.retryAt, w.applying = net, result.RetryAt, false
	w.synced++
	l.stuck(w, result.Resize)
	switch {
	case !result.Acted:
		w.actedFor = 0
	case w.actedFor < actsAtOnce:
		w.acted = time.Now()
		w.actedFor++
		w.wake(l.r)
	default: // it takes Acted for "all is well"
		w.acted = time.Now()
		if w.actedFor == actsAtOnce {
			w.actedFor++
			l.log.Warn("the runtime says at each step that it has changed something; the pod gets a step a second from now on", "ref", w.ref().String())
		}
		l.after(w, time.Second)
	}
	if !result.RetryAt.IsZero() {
		l.after(w, max(time.Until(result.RetryAt), 10*time.Millisecond))
	}
}

// terminate stops all that runs of a pod.
func (l *Loop) terminate(ctx context.Context, w *worker, news func()) error {
	seen, err := l.look(ctx, w)
	if err != nil {
		return err
	}
	news()
	l.r.mu.Lock()
	pod, how := w.pod, runtime.Termination{}
	if w.ending != nil {
		how = *w.ending
	}
	l.r.mu.Unlock()
	err = l.cfg.Runtime.Stop(ctx, pod, seen, how)
	l.r.mu.Lock()
	w.acted = time.Now()
	l.r.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if seen, err = l.look(ctx, w); err != nil {
		return err
	}
	if seen.ContainersRunning() {
		return errors.New("the runtime says that it has stopped the pod, but a container still runs")
	}
	l.advance(w, still)
	if l.cfg.Probes != nil {
		w.computing.Lock() // no status under way tracks it again
		defer w.computing.Unlock()
		l.cfg.Probes.Forget(w.uid)
	}
	return nil
}

// giveBack returns to the node what a pod held.
func (l *Loop) giveBack(ctx context.Context, w *worker) error {
	var g errgroup.Group
	if l.cfg.Volumes != nil {
		g.Go(func() error { return l.cfg.Volumes.Unmount(ctx, w.uid) })
	}
	if l.cfg.Network != nil {
		g.Go(func() error { return l.cfg.Network.Teardown(ctx, w.uid) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := l.cfg.Runtime.Remove(ctx, w.uid, runtime.Release); err != nil {
		return err
	}
	l.advance(w, returned)
	return nil
}

func (l *Loop) advance(w *worker, e event) {
	defer l.own(w)()
	w.move(l.r, e)
	if e == still {
		l.release()
	}
}

// purge forgets a pod that nobody wants, once all has been told. What waited for it may begin.
func (l *Loop) purge(ctx context.Context, w *worker) error {
	l.r.mu.Lock()
	ready, what := w.pod == nil || w.absent && w.told && !w.publishAt.busy, runtime.Purge
	if !ready {
		l.release()
	}
	if w.again != nil {
		what = runtime.Renew
	}
	l.r.mu.Unlock()
	if !ready {
		return nil
	}
	if err := l.cfg.Runtime.Remove(ctx, w.uid, what); err != nil {
		return err
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	w.move(l.r, gone)
	w.quiet()
	delete(l.r.pods, w.uid)
	l.allocated.Forget(w.uid)
	l.r.reconsider(podRemoved)
	if w.again != nil {
		l.r.enter(w.uid, w.again, w.from)
	}
	l.release()
	return nil
}
