package syncloop

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// admit lets a held pod begin, refuses it, or leaves it held. Only the dispatcher calls it; admitters are asked without
// the roster being locked.
func (l *Loop) admit(ctx context.Context, w *worker) {
	l.r.mu.Lock()
	if w.phase != held || w.pod == nil || l.waits(w) {
		l.r.mu.Unlock()
		return
	}
	pod := w.pod
	if promised, known := l.allocated.Get(w.uid); known { // by an earlier agent
		pod = promised.Over(pod)
	}
	if over(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		w.cameToEnd = true
		w.wish, w.pod = w.pod, pod
		w.move(l.r, admitted)
		w.end(l.r, runtime.Termination{Grace: left(pod)})
		l.r.mu.Unlock()
		return
	}
	others, leaving := l.holders(w), l.leaving()
	w.favoured, w.kept = false, l.arrival(pod) == 0 || w.seen.ContainersRunning()
	l.r.mu.Unlock()

	rejection := l.ask(ctx, pod, others)
	roomComes := rejection != nil && strings.HasPrefix(rejection.Reason, "OutOf") && len(leaving) > 0 && l.ask(ctx, pod, without(others, leaving)) == nil

	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	switch {
	case w.phase != held:
	case rejection == nil:
		w.move(l.r, admitted)
		l.promise(w, pod)
	case l.makeRoom(w, rejection, others):
		w.favoured = true
	case roomComes:
		if w.blockers = leaving; !l.blocked(w) { // they have ended meanwhile
			l.r.wake(w.uid)
		}
	default:
		l.metrics.rejections.Record(1, counted(rejection.Reason))
		l.tell(pod, rejection.Reason, rejection.Message)
		w.rejection = rejection
		w.ending = &runtime.Termination{Reason: rejection.Reason, Message: rejection.Message}
		w.move(l.r, refused)
	}
}

// left is how much of its grace a pod has that was deleted before this agent knew it; zero: it was not deleted. The server's
// clock may be wrong, so this never makes a grace longer (see plan.Grace), and never takes it all.
func left(pod *v1.Pod) time.Duration {
	if pod.DeletionTimestamp == nil {
		return 0
	}
	return max(time.Until(pod.DeletionTimestamp.Time), time.Second)
}

// holders are the pods that hold resources, but for one; those in whose favour others are being ended hold theirs already. The
// roster is locked.
func (l *Loop) holders(but *worker) (out []*v1.Pod) {
	for _, o := range l.r.workers() {
		if o != but && (o.active() || o.phase == held && o.favoured) {
			out = append(out, o.pod)
		}
	}
	return out
}

// retries says that a pod was refused, or ended for the machine's sake, that all was told of it, and that nobody brings another in
// its place: one from a file. The roster is locked.
func (w *worker) retries() bool {
	wronged := w.rejection != nil || w.ending != nil && w.ending.Disruption
	return wronged && w.pod != nil && w.source != apiSource && podspec.Static(w.pod) && w.phase == finished && w.told && !w.absent
}

// retry has such a pod begin anew if it would be let in now. Only the dispatcher calls it.
func (l *Loop) retry(ctx context.Context, w *worker) {
	l.r.mu.Lock()
	pod, others := w.wish, l.holders(w)
	l.r.mu.Unlock()
	if rejection := l.ask(ctx, pod, others); rejection != nil && len(rejection.Instead) == 0 {
		return
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if w.retries() {
		w.absent, w.again, w.from = true, pod, w.source
		l.r.wake(w.uid)
	}
}

// counted is a reason as it is counted: those that are known, so that no cluster makes the metric grow without end.
func counted(reason string) string {
	switch reason {
	case "AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo", "InitContainerRestartPolicyForbidden",
		"SupplementalGroupsPolicyNotSupported", "UnexpectedAdmissionError", "UnknownReason", "UnexpectedPredicateFailureType", "OutOfcpu",
		"OutOfmemory", "OutOfephemeral-storage", "OutOfpods", "PodLevelResourcesNotSupported", "PodFeatureUnsupported", "Evicted",
		"SysctlForbidden", "TopologyAffinityError", "NodeShutdown", "VolumeAttachmentLimitExceeded":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}

// ask asks the admitters one after the other; the first refusal wins. One that others are to make room for is put to the rest
// of them, too: nobody ends for a pod that is refused all the same.
func (l *Loop) ask(ctx context.Context, pod *v1.Pod, others []*v1.Pod) (room *runtime.Rejection) {
	for _, a := range l.cfg.Admit {
		err := a.Admit(ctx, pod, others)
		if err == nil {
			continue
		}
		if rejection, refuses := errors.AsType[*runtime.Rejection](err); refuses {
			if len(rejection.Instead) == 0 {
				return rejection
			}
			room = cmp.Or(room, rejection)
			continue
		}
		l.log.Error("an admitter could not decide; the pod is let in", "pod", pod.Name, "namespace", pod.Namespace, "err", err)
	}
	return room
}

// makeRoom ends the pods in whose place this one may run. It is asked again when nothing of them runs: as others were when it
// was refused, some may have ended meanwhile. false: there are none. The roster is locked.
func (l *Loop) makeRoom(w *worker, rejection *runtime.Rejection, others []*v1.Pod) bool {
	again := false
	for _, uid := range rejection.Instead {
		victim := l.r.pods[uid]
		if victim == nil || victim.phase >= terminated {
			again = again || slices.ContainsFunc(others, func(o *v1.Pod) bool { return o.UID == uid })
			continue
		}
		if victim.phase < terminating {
			resource, _ := strings.CutPrefix(counted(rejection.Reason), "OutOf")
			l.metrics.preemptions.Record(1, resource)
			l.tell(victim.pod, preempting, makesRoom)
			l.log.Info("a pod is ended in whose place a critical one runs", "ref", victim.ref().String(), "for", w.ref().String(), "why", rejection.Message)
		}
		victim.end(l.r, runtime.Termination{
			Reason: preempting, Message: makesRoom, Disruption: true, Disrupted: "Pod was preempted by Kubelet to accommodate a critical pod.",
		})
		w.blockers = append(w.blockers, uid)
	}
	if again && len(w.blockers) == 0 {
		l.r.wake(w.uid)
	}
	return again || len(w.blockers) > 0
}

// leaving are pods whose room comes, so that one which fits without them is not refused yet: those that end for a critical one, as
// they may give back more than it takes, and those that still end and were taken away at once, in whose place a scheduler has
// sent others. The roster is locked.
func (l *Loop) leaving() (uids []types.UID) {
	for _, o := range l.r.pods {
		switch {
		case o.phase == held && o.favoured:
			uids = append(uids, o.blockers...)
		case o.absent && o.active():
			uids = append(uids, o.uid)
		}
	}
	return uids
}

// without are the pods that are not among these.
func without(pods []*v1.Pod, these []types.UID) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return slices.Contains(these, p.UID) })
}

// What people read of a pod that is ended for a critical one.
const (
	preempting = "Preempting"
	makesRoom  = "Preempted in order to admit critical pod"
)

// waits says that a held pod must not begin yet. Before the first list nobody knows which pods of its name there are, nor what runs,
// and holds resources, of one that was over or deleted when this agent came.
func (l *Loop) waits(w *worker) bool {
	return l.blocked(w) || !l.r.listed && (unique(w) || l.unseen()) || unique(w) && l.namesake(w)
}

// unseen says that some pod came to end of which nobody knows whether anything runs. The roster is locked.
func (l *Loop) unseen() bool {
	for _, o := range l.r.pods {
		if o.cameToEnd && o.phase != held && o.phase < terminated && o.seenBy == 0 && none(o.seen) {
			return true
		}
	}
	return false
}

// blocked says that something runs of the pods that are ended for this one. The roster is locked.
func (l *Loop) blocked(w *worker) bool {
	w.blockers = slices.DeleteFunc(w.blockers, func(uid types.UID) bool {
		b := l.r.pods[uid]
		return b == nil || b.phase >= terminated
	})
	return len(w.blockers) > 0
}

// unique says that no other pod of its name may run beside it. An API server sees to names itself; of pods from elsewhere,
// such as a file that was edited, there must never run two.
func unique(w *worker) bool {
	if w.pod != nil {
		return w.pod.Annotations[podspec.SourceAnnotation] != "api"
	}
	for _, s := range w.seen.Sandboxes {
		if s.Annotations[podspec.SourceAnnotation] == "api" {
			return false
		}
	}
	return true
}

// namesake says that a pod of the same name must be gone before this one starts.
func (l *Loop) namesake(w *worker) bool {
	me := w.ref()
	for _, o := range l.r.pods {
		other := o.ref()
		switch {
		case o == w || other.Name != me.Name || other.Namespace != me.Namespace || !unique(o):
		case o.phase == finished && o.failures > 0: // nothing of it runs; that it cannot be removed is nobody's trouble
		case o.pod == nil:
			return true // found on this node: an older version of it
		case o.phase == held:
			if o.number < w.number {
				return true
			}
		case o.phase < finished || o.absent:
			return true
		}
	}
	return false
}

// release wakes who waits for others. The roster is locked.
func (l *Loop) release() {
	for _, w := range l.r.pods {
		if w.phase == held || w.retries() {
			l.r.wake(w.uid)
		}
	}
}

// active says that a pod holds resources of the node. It does until its last status may be told: a scheduler that reads it may
// have sent another in its place before the volumes are given back. One that came to end (it was over, or was deleted before anybody let it
// in) does so only if something of it is seen to run.
func (w *worker) active() bool {
	return w.pod != nil && w.phase != held && w.phase < terminated && w.rejection == nil && (!w.cameToEnd || w.seen.ContainersRunning())
}

func over(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }
