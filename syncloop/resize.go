package syncloop

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/internal/podsizes"
	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// allocatedFile has the sizes that were promised to pods. Name and format are the kubelet's.
const allocatedFile = "allocated_pods_state"

// retryResizes is when resizes that wait are looked at again, if nothing happens before.
const retryResizes = 3 * time.Minute

// Why resizes that wait are looked at again, as they are counted.
const (
	podUpdated    = "pod_updated"
	podAdded      = "pods_added"
	podRemoved    = "pods_removed"
	podTerminated = "pod_terminated"
	periodic      = "periodic_retry"
)

func newAllocated(dir string, o observe.To) *podsizes.Store {
	path := ""
	if dir != "" {
		path = filepath.Join(dir, allocatedFile)
	}
	return podsizes.NewStore(path, checkpoint.Write, func(err error) {
		o.Logger().Error("pods are taken to have been promised the sizes of their specs", "err", err)
	})
}

// wishes notes what a source wants of a pod: everybody sees it with the sizes it was promised. The roster is locked.
func (l *Loop) wishes(w *worker, pod *v1.Pod) {
	was := w.wish
	w.wish, w.pod = pod, pod
	promised, known := l.allocated.Get(w.uid)
	if w.phase == held || !known { // its admission sees to it
		return
	}
	w.pod = promised.Over(pod)
	switch {
	case w.pod == pod:
		w.pending, w.undecided = nil, false
	case was == nil || !podsizes.Of(was).Equal(podsizes.Of(pod)):
		l.requested(was, pod)
		w.undecided = true
		l.r.reconsider(podUpdated)
	}
}

// promise notes that a pod was let in with these sizes. The roster is locked.
func (l *Loop) promise(w *worker, with *v1.Pod) {
	l.allocated.Set(w.uid, podsizes.Of(with))
	w.wish, w.pod = w.pod, with
	w.pending, w.progress = told(w.wish, v1.PodResizePending), told(w.wish, v1.PodResizeInProgress)
	if w.pod == w.wish {
		w.pending = nil
		return
	}
	w.undecided = true
	l.r.reconsider(podAdded)
}

// told is a condition that an earlier agent told of a pod.
func told(pod *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return &c
		}
	}
	return nil
}

// reconsider has resizes that wait looked at. The roster is locked.
func (r *Roster) reconsider(why string) {
	r.init()
	r.review = why
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// resizes looks at all pods that want other sizes than they were promised, when there is a reason to, and keeps what was
// promised over a restart. Only the dispatcher calls it.
func (l *Loop) resizes(ctx context.Context) {
	l.r.mu.Lock()
	why := l.r.review
	if why == "" && time.Since(l.tried) >= retryResizes {
		why = periodic
	}
	var queue []*worker
	if l.r.complete && why != "" {
		l.r.review, l.tried = "", time.Now()
		queue = slices.DeleteFunc(waiting(l.r.workers()), l.blocked)
	}
	l.r.mu.Unlock()
	for _, w := range queue {
		l.resize(ctx, w, why)
	}
	if err := l.allocated.Save(); err != nil && time.Since(l.unsaved) > time.Minute {
		l.unsaved = time.Now()
		l.log.Error("what was promised to pods is not kept over a restart; tried again", "err", err)
	}
}

// waiting are the pods whose resize is to be decided, those first that are to be promised theirs first.
func waiting(all []*worker) []*worker {
	out := slices.DeleteFunc(all, func(w *worker) bool {
		return w.phase != syncing || w.pod == w.wish || !w.undecided && (w.pending == nil || w.pending.Reason == v1.PodReasonInfeasible)
	})
	slices.SortStableFunc(out, before)
	return out
}

// before orders resizes: what asks for no more than it has, then by priority, then who is guaranteed, then who waits longest.
func before(a, b *worker) int {
	falseFirst := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case b:
			return -1
		}
		return 1
	}
	return cmp.Or(
		falseFirst(grows(a.pod, a.wish), grows(b.pod, b.wish)),
		cmp.Compare(podspec.Priority(b.wish), podspec.Priority(a.wish)),
		falseFirst(status.QOS(a.wish) != v1.PodQOSGuaranteed, status.QOS(b.wish) != v1.PodQOSGuaranteed),
		a.waitsSince().Compare(b.waitsSince()),
	)
}

func grows(from, to *v1.Pod) bool {
	old, wanted := status.Requests(from), status.Requests(to)
	return wanted.Cpu().Cmp(*old.Cpu()) > 0 || wanted.Memory().Cmp(*old.Memory()) > 0
}

// waitsSince is since when a resize waits; one that was not looked at yet is the youngest.
func (w *worker) waitsSince() time.Time {
	if w.pending == nil {
		return time.Now()
	}
	return w.pending.LastTransitionTime.Time
}

// resize promises a pod the sizes it wants, or says why not. For a critical pod others may be ended; it waits until then.
func (l *Loop) resize(ctx context.Context, w *worker, why string) {
	l.r.mu.Lock()
	wish, has := w.wish, w.pod
	others := l.holders(nil) // the pod as it is among them
	l.r.mu.Unlock()

	rejection := l.ask(ctx, wish, others)
	if rejection == nil {
		l.allocated.Set(w.uid, podsizes.Of(wish))
		if err := l.allocated.Save(); err != nil { // it must not be used before it is kept
			l.allocated.Set(w.uid, podsizes.Of(has))
			l.log.Error("new sizes are not promised to a pod, because that could not be kept over a restart", "ref", w.ref().String(), "err", err)
			return
		}
	}

	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	w.undecided = false
	if rejection != nil {
		l.defers(w, rejection)
		l.makeRoom(w, rejection, others) // whoever ends has it looked at again
	} else {
		if w.pending != nil && w.pending.Reason == v1.PodReasonDeferred {
			l.metrics.deferredAccepted.Record(1, why)
		}
		w.pending, w.progress = nil, inProgress(wish.Generation)
		w.pod, w.acted = wish, time.Now() // what was seen before says nothing about whether they have them
		l.say(wish, false, "ResizeStarted", "Pod resize started", wish.Generation, "")
	}
	l.r.wake(w.uid)
}

// defers notes why a resize waits, or never will be. The roster is locked.
func (l *Loop) defers(w *worker, rejection *runtime.Rejection) {
	c := v1.PodCondition{
		Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred, Message: rejection.Message, ObservedGeneration: w.wish.Generation,
	}
	event := "ResizeDeferred"
	if rejection.Reason == v1.PodReasonInfeasible {
		c.Reason, event = v1.PodReasonInfeasible, "ResizeInfeasible"
	}
	old := w.pending
	dated(&c, old)
	w.pending = &c
	if old == nil || old.Reason != c.Reason || old.ObservedGeneration != c.ObservedGeneration {
		l.say(w.wish, true, event, "Pod resize "+rejection.Reason, c.ObservedGeneration, rejection.Message)
	}
}

func inProgress(generation int64) *v1.PodCondition {
	c := &v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: generation}
	dated(c, nil)
	return c
}

// dated gives a condition of a resize its times. Unlike others it is as old as its reason.
func dated(c, old *v1.PodCondition) {
	c.LastProbeTime.Time = time.Now()
	if c.LastTransitionTime = c.LastProbeTime; old != nil && old.Reason == c.Reason {
		c.LastTransitionTime = old.LastTransitionTime
	}
}

// resizing are the conditions that tell of a resize. One is under way until a look after the last act shows that all that
// runs has the sizes the pod was promised. The roster is locked.
func (l *Loop) resizing(w *worker) (out []v1.PodCondition) {
	if w.phase == syncing {
		switch differ := status.Resizing(w.pod, w.seen); {
		case differ && w.progress == nil:
			w.progress = inProgress(w.pod.Generation)
		case !differ && w.progress != nil && !w.applying && !w.unsettled && w.seenBy > 0 && !w.seen.At.Before(w.acted):
			l.say(w.pod, false, "ResizeCompleted", "Pod resize completed", w.progress.ObservedGeneration, "")
			w.progress = nil
		}
	}
	for _, c := range []*v1.PodCondition{w.pending, w.progress} {
		if c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// stuck notes why running containers could not be given their sizes. It stays until they have them. The roster is locked.
func (l *Loop) stuck(w *worker, err error) {
	w.unsettled = err != nil
	if err == nil || w.phase != syncing {
		return
	}
	c := inProgress(w.pod.Generation)
	if w.progress != nil {
		*c = *w.progress
	}
	if c.Reason == v1.PodReasonError && c.Message == err.Error() {
		return
	}
	c.Reason, c.Message = v1.PodReasonError, err.Error()
	dated(c, w.progress)
	w.progress = c
	l.say(w.pod, true, "ResizeError", "Pod resize error", c.ObservedGeneration, c.Message)
}

// say tells people of a resize, with the sizes in question.
func (l *Loop) say(pod *v1.Pod, warning bool, reason, what string, generation int64, problem string) {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	list := func(in []v1.Container) (out []container) {
		for i := range in {
			out = append(out, container{in[i].Name, in[i].Resources})
		}
		return out
	}
	b, _ := json.Marshal(struct { // plain values: cannot fail
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{list(pod.Spec.InitContainers), list(pod.Spec.Containers), generation, problem})
	l.cfg.Observe.Event(observe.Event{About: l.refOf(pod), Warning: warning, Reason: reason, Message: what + ": " + string(b)})
}

// requested counts what a source wants to be otherwise.
func (l *Loop) requested(from, to *v1.Pod) {
	if from == nil {
		return
	}
	old := podsizes.Of(from).Containers
	for name, wanted := range podsizes.Of(to).Containers {
		for _, r := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
			if op := operation(old[name].Requests[r], wanted.Requests[r]); op != "" {
				l.metrics.requestedResizes.Record(1, string(r), "requests", op)
			}
			if op := operation(old[name].Limits[r], wanted.Limits[r]); op != "" {
				l.metrics.requestedResizes.Record(1, string(r), "limits", op)
			}
		}
	}
}

func operation(from, to resource.Quantity) string {
	switch order := to.Cmp(from); {
	case order == 0:
		return ""
	case from.IsZero():
		return "add"
	case to.IsZero():
		return "remove"
	case order > 0:
		return "increase"
	}
	return "decrease"
}
