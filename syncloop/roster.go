package syncloop

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Roster is who is on this node. It is made before the loop, filled by the loop alone, and read by every part that must
// know pods. The zero value is an empty one, and that is the truth before Run. All methods are safe for concurrent use.
type Roster struct {
	mu       sync.Mutex // guards the rest, and all workers
	pods     map[types.UID]*worker
	due      map[types.UID]struct{}
	bell     chan struct{}
	arrivals uint64
	review   string // why resizes that wait are to be looked at; empty: nothing has happened
	complete bool   // all sources have said everything they want, once
	listed   bool   // it is known what was there before
}

// Wake asks for a look at a pod. It never blocks, is never lost, and many of one pod count as one.
func (r *Roster) Wake(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake(uid)
}

func (r *Roster) wake(uid types.UID) {
	r.init()
	r.due[uid] = struct{}{}
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Kill ends a pod before its time and returns nil when nothing of it runs any more. runtime.ErrNotFound: there is no such
// pod. A pod that is ending already ends no later than it would have. It waits as long as ctx allows, also when no loop runs.
func (r *Roster) Kill(ctx context.Context, uid types.UID, how runtime.Termination) error {
	r.mu.Lock()
	w := r.pods[uid]
	if w == nil {
		r.mu.Unlock()
		return runtime.ErrNotFound
	}
	w.end(r, how)
	r.mu.Unlock()
	return until(ctx, w.still)
}

// Settled waits until the node has everything back that a pod held: volumes, network, cgroups. One that nobody knows has
// nothing.
func (r *Roster) Settled(ctx context.Context, uid types.UID) error {
	r.mu.Lock()
	w := r.pods[uid]
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	return until(ctx, w.settled)
}

// Told waits until the last status of a pod was given to the sink. Of one that nobody knows it was.
func (r *Roster) Told(ctx context.Context, uid types.UID) error {
	r.mu.Lock()
	w := r.pods[uid]
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	return until(ctx, w.reported)
}

func until(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pods are all wanted pods, and those that are still being stopped, with their newest status, ordered by namespace and
// name. The caller may keep them but not change them.
func (r *Roster) Pods() []*v1.Pod {
	return r.list(func(w *worker) bool { return !w.absent || w.phase < finished })
}

// Static are those of Pods that no API server gave.
func (r *Roster) Static() []*v1.Pod {
	return r.list(func(w *worker) bool {
		return w.source != apiSource && (!w.absent || w.phase < finished) && podspec.Static(w.pod)
	})
}

// Active are the pods that hold resources of the node.
func (r *Roster) Active() []*v1.Pod {
	return r.list((*worker).active)
}

// Unsettled are the pods of which the node does not have everything back: those of Active, and those that run no more but
// whose volumes and the like are still there.
func (r *Roster) Unsettled() []*v1.Pod {
	return r.list(func(w *worker) bool { return w.active() || w.phase == terminated })
}

// Removable says that nothing of that pod needs to be kept. It is false until all sources have been complete once.
func (r *Roster) Removable(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.complete && r.pods[uid] == nil
}

// Ended says that a pod is known, runs no more, and that its last status was told: what is dead of it is only worth its logs.
// One from a file or an address never has: without it, the next agent would take the pod for one that never ran.
func (r *Roster) Ended(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	return w != nil && w.pod != nil && w.phase == finished && w.told && !podspec.Static(w.pod)
}

// Kept says that a pod is to be let in which an earlier agent had let in already, or of which something was found running. It
// is false once this agent has decided.
func (r *Roster) Kept(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[uid]
	return w != nil && w.phase == held && w.kept
}

func (r *Roster) list(which func(*worker) bool) []*v1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*v1.Pod
	for _, w := range r.pods {
		if w.pod != nil && which(w) {
			out = append(out, w.show())
		}
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
	return out
}

func (r *Roster) init() {
	if r.due == nil {
		r.due, r.bell, r.pods = map[types.UID]struct{}{}, make(chan struct{}, 1), map[types.UID]*worker{}
	}
}

func (r *Roster) rings() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.init()
	return r.bell
}

// take gives out who is due, first come first.
func (r *Roster) take() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Collect(maps.Keys(r.due))
	clear(r.due)
	number := func(uid types.UID) uint64 {
		if w := r.pods[uid]; w != nil {
			return w.number
		}
		return 0
	}
	slices.SortFunc(out, func(a, b types.UID) int { return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a, b)) })
	return out
}

// workers are all of them, first come first. The roster is locked.
func (r *Roster) workers() []*worker {
	return slices.SortedFunc(maps.Values(r.pods), func(a, b *worker) int { return cmp.Compare(a.number, b.number) })
}

// worker is what the loop knows of one pod. The roster's mutex guards it.
type worker struct {
	uid       types.UID
	number    uint64 // in the order of arrival
	source    string
	pod       *v1.Pod // with the sizes it was promised; nil: a stranger
	wish      *v1.Pod // with the sizes its source wants; the same object when it was promised those
	given     *v1.Pod // pod as its source gave it
	set       uint64  // number of the last set that it was in
	phase     phase
	ending    *runtime.Termination
	rejection *runtime.Rejection
	cameToEnd bool        // its source showed it as over or deleted from the beginning, or it was deleted when this agent had not let it in
	absent    bool        // no longer wanted
	again     *v1.Pod     // wanted anew while this life still ends
	from      string      // the source that wants it anew
	blockers  []types.UID // who must end before this one is let in, or given another size
	kept      bool        // when it was held, it had been let in before
	favoured  bool        // they are ended for it, which holds its place as long as it is held

	seen     runtime.Pod
	seenBy   uint64 // number of the look it comes from; 0: nobody looked yet
	looks    uint64 // looks begun
	last     v1.PodStatus
	shown    v1.PodStatus // phase, reason and message of the last one that was told; no phase: none was
	net      runtime.Network
	endedAt  time.Time
	came     time.Time
	acted    time.Time // what is seen must be newer
	actedFor int       // steps in a row
	failures int       // steps in a row
	retryAt  time.Time // as the runtime asked in this step
	told     bool      // Finished was called
	used     int64     // generation of the spec that the newest step took; 0: none yet
	reviewAt time.Time // to be looked at then, whatever comes

	synced, seenSynced uint64 // how often Runtime.Sync has returned; and had, at most, when a look that has come was begun

	complaint  string // the last failure people were told of
	complained time.Time

	undecided         bool             // nobody has looked yet at whether it can have the sizes it wants
	pending, progress *v1.PodCondition // of a resize; nil: none
	applying          bool             // Runtime.Sync is under way
	unsettled         bool             // the last one could not give all their sizes

	publishAt publishing

	stepping, stepAgain bool
	own                 bool               // its step is at it, see Loop.own
	stop                context.CancelFunc // cuts the step under way; nil: none is
	stepped             chan struct{}      // closed when it has ended
	timer               *time.Timer
	timerAt             time.Time     // zero: no timer runs
	still, settled      chan struct{} // closed when nothing runs, when nothing is held
	reported            chan struct{} // closed when the last status was told

	computing sync.Mutex // one status at a time is made; taken before the roster's mutex
}

// publishing is how far the one publisher of a pod is.
type publishing struct{ busy, again bool }

// enter gives a pod a worker. The roster is locked.
func (r *Roster) enter(uid types.UID, pod *v1.Pod, source string) *worker {
	r.arrivals++
	now := time.Now()
	w := &worker{
		uid: uid, number: r.arrivals, pod: pod, wish: pod, source: source, came: now, acted: now,
		still: make(chan struct{}), settled: make(chan struct{}), reported: make(chan struct{}),
	}
	r.pods[uid] = w
	r.wake(uid)
	return w
}

// ref names the pod. The roster is locked.
func (w *worker) ref() runtime.PodRef {
	if w.pod == nil {
		return w.seen.PodRef
	}
	return runtime.PodRef{Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.uid}
}

// show is the pod with its newest status. One that ends because nobody wants it any more says since when.
func (w *worker) show() *v1.Pod {
	p := *w.pod
	if w.last.Phase != "" {
		p.Status = w.last
	}
	if w.absent && p.DeletionTimestamp == nil && !w.endedAt.IsZero() {
		at := metav1.NewTime(w.endedAt)
		p.DeletionTimestamp = &at
	}
	return &p
}

// move takes the worker through the state machine and wakes it. The roster is locked.
func (w *worker) move(r *Roster, e event) {
	p, do := next(w.phase, e)
	if p != w.phase {
		w.failures = 0
		switch p {
		case terminating:
			w.endedAt = time.Now()
		case terminated:
			close(w.still)
			r.reconsider(podTerminated)
		case finished:
			r.reconsider(podTerminated)
			closeOnce(w.still)
			close(w.settled)
		case forgotten:
			closeOnce(w.reported)
		case held, syncing:
		}
	}
	w.phase = p
	if do == cut && w.stop != nil {
		w.stop()
	}
	if do != nothing {
		w.wake(r)
	}
}

// wake has a worker looked at; from within its own step that is right after it. The roster is locked.
func (w *worker) wake(r *Roster) {
	if w.own {
		w.stepAgain = true
		return
	}
	r.wake(w.uid)
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// end begins to end a pod, or makes one that ends already do so sooner. The first reason given stays. The roster is locked.
func (w *worker) end(r *Roster, how runtime.Termination) {
	if w.pod != nil && (over(w.pod.Status.Phase) || over(w.last.Phase)) { // it came to its end by itself, whoever kills it now
		how.Reason, how.Message, how.Disruption, how.Disrupted = "", "", false, ""
	}
	if w.phase == held || w.phase == syncing {
		w.cameToEnd = w.cameToEnd || w.phase == held
		w.ending = &how
		w.move(r, ended)
		return
	}
	if w.ending == nil {
		w.ending = &runtime.Termination{}
	}
	now := *w.ending
	if how.Reason != "" && now.Reason == "" {
		now.Reason, now.Message, now.Disruption, now.Disrupted = how.Reason, how.Message, how.Disruption, how.Disrupted
	}
	faster := how.Grace > 0 && (now.Grace == 0 || how.Grace < now.Grace)
	if faster {
		now.Grace = how.Grace
	}
	w.ending = &now
	if faster {
		w.move(r, shorter)
	}
}
