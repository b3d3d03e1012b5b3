package syncloop

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// apiSource is the name of the source whose pods are those of an API server. What such a pod says of its own origin counts
// for nothing: anybody may write it there.
const apiSource = "api"

// seenFormat writes when a pod was seen first, in a fixed width.
const seenFormat = "2006-01-02T15:04:05.000000000Z07:00"

// merge takes over what a source wants.
func (l *Loop) merge(s set) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.init()
	l.merged++
	var news []*v1.Pod
	fresh := map[types.UID]bool{}
	for _, p := range s.pods {
		if !l.named(s.source, p) {
			continue
		}
		w := l.r.pods[p.UID]
		if fresh[p.UID] || w != nil && w.set == l.merged {
			l.log.Error("of two pods with one uid the second is left out; their source must give each its own", "from", s.source,
				"namespace", p.Namespace, "pod", p.Name, "uid", p.UID)
			continue
		}
		if w == nil {
			fresh[p.UID] = true
		} else {
			w.set = l.merged
			if w.given == p && w.source == s.source && !w.absent && w.pod != nil {
				continue // as it was
			}
		}
		news = append(news, p)
	}
	if s.complete {
		l.missing(s.source)
	}
	slices.SortStableFunc(news, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(l.arrival(a), l.arrival(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	for _, p := range news {
		l.want(s.source, p, l.marked(s.source, p))
	}
	if s.complete && !l.sources[s.source] {
		l.sources[s.source] = true
		l.r.complete = len(l.sources) == len(l.cfg.Sources)
		l.dirty = l.dirty || l.r.complete
	}
	l.release()
}

// named says whether a pod can be told from others at all.
func (l *Loop) named(source string, p *v1.Pod) bool {
	switch {
	case p == nil:
		l.log.Error("a nil pod is left out; its source must not deliver any", "from", source)
	case p.UID == "":
		l.log.Error("a pod without a uid is left out; its source must give it one", "from", source, "namespace", p.Namespace, "pod", p.Name)
	default:
		return true
	}
	return false
}

// missing loses the pods of a source that were not in its newest set. The roster is locked.
func (l *Loop) missing(source string) {
	var gone []*worker
	for _, w := range l.r.pods {
		if w.set == l.merged {
			continue
		}
		if w.source == source && w.pod != nil && !w.absent {
			gone = append(gone, w)
		}
		if w.from == source {
			w.again = nil
		}
	}
	slices.SortFunc(gone, func(a, b *worker) int { return cmp.Compare(a.number, b.number) })
	for _, w := range gone {
		l.lose(w)
	}
}

// arrival puts pods that an earlier agent let in before those that nobody has yet: they are not to lose their place.
func (l *Loop) arrival(p *v1.Pod) int {
	if _, promised := l.allocated.Get(p.UID); promised || p.Status.StartTime != nil {
		return 0
	}
	return 1
}

// lose notes that nobody wants a pod any more.
func (l *Loop) lose(w *worker) {
	w.absent, w.again = true, nil
	if w.phase == held {
		w.told, w.cameToEnd = true, true // nobody was told of it, nobody has let it in
		w.move(l.r, ended)
		return
	}
	w.end(l.r, runtime.Termination{})
	l.r.wake(w.uid)
}

// marked is a pod with the marks by which a node knows a pod of an API server, as pods from files bring them. One that the
// source has not changed is the same object as before. The roster is locked.
func (l *Loop) marked(source string, pod *v1.Pod) *v1.Pod {
	if source != apiSource {
		return pod
	}
	seen := ""
	if w := l.r.pods[pod.UID]; w != nil && w.pod != nil {
		if w.given == pod {
			return w.wish
		}
		seen = w.pod.Annotations[podspec.SeenAnnotation]
	}
	if seen == "" {
		seen = time.Now().Format(seenFormat)
	}
	p := *pod
	p.Annotations = make(map[string]string, len(pod.Annotations)+2)
	maps.Copy(p.Annotations, pod.Annotations)
	p.Annotations[podspec.SourceAnnotation], p.Annotations[podspec.SeenAnnotation] = apiSource, seen
	return &p
}

// want notes that a source wants a pod: given as the source gave it, pod as this node knows it.
func (l *Loop) want(source string, given, pod *v1.Pod) {
	w := l.r.pods[pod.UID]
	switch {
	case w == nil:
		l.r.enter(pod.UID, pod, source).given = given
	case w.pod == nil && w.phase == held:
		w.pod, w.wish, w.given, w.source = pod, pod, given, source // it is no stranger after all
		l.r.wake(w.uid)
	case w.absent || w.pod == nil:
		w.again, w.from = pod, source // once this life is over
	case w.source != source:
		l.log.Warn("two sources want a pod of the same uid; the first one wins", "uid", pod.UID, "pod", pod.Name, "first", w.source, "second", source)
	default:
		w.given = given
		l.update(w, pod)
	}
}

// update takes over a newer version of a pod.
func (l *Loop) update(w *worker, pod *v1.Pod) {
	if pod == w.wish {
		return
	}
	old := w.pod
	l.wishes(w, pod)
	pod = w.pod
	deleted := pod.DeletionTimestamp != nil && old.DeletionTimestamp == nil
	switch {
	case deleted && w.phase == finished:
		w.told = false // its object may go now
	case deleted && !l.sources[w.source]: // it ran from memory, and its time began before this agent heard of it
		w.end(l.r, runtime.Termination{Grace: left(pod)})
	case deleted, over(pod.Status.Phase) && w.phase == syncing: // what is over there starts nothing more
		w.end(l.r, runtime.Termination{})
	case sooner(old, pod):
		w.move(l.r, shorter)
	case same(old, pod):
		if equality.Semantic.DeepEqual(old.Status, pod.Status) || echo(w, old, pod) {
			return
		}
		w.reviewAt = time.Now().Add(review)
	}
	l.r.wake(w.uid)
}

// review is when a pod is looked at again of which the source shows a status that we did not tell. Somebody may have written
// over ours, but ours may also be on its way: a status.Manager believes in the first only after ten seconds.
const review = 11 * time.Second

// echo says that the only news of a pod is the status that was told of it.
func echo(w *worker, old, pod *v1.Pod) bool {
	return w.source == apiSource && w.last.Phase != "" && equality.Semantic.DeepEqual(status.Merge(old, w.last), pod.Status)
}

// sooner says that the time to end was shortened.
func sooner(old, pod *v1.Pod) bool {
	a, b := old.DeletionGracePeriodSeconds, pod.DeletionGracePeriodSeconds
	return a != nil && b != nil && *b < *a
}

// same says that nothing but the status has changed of what a step or a status depends on.
func same(a, b *v1.Pod) bool {
	return a == b || equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) && a.Generation == b.Generation
}
