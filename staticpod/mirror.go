package staticpod

import (
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

const (
	mirrorRetry    = time.Second      // after a first failure, doubled with each further act
	mirrorRetryMax = time.Minute      // the longest wait; a name that was quiet for twice as long counts as new
	mirrorShown    = 10 * time.Second // until what was made must have been shown
)

// record is what is known of the mirror pod of one name beside what is shown: what was done lately.
type record struct {
	hash string    // of the version it was done for
	made bool      // one was made and has not been shown yet
	acts int       // in a row, with less than twice mirrorRetryMax between two
	last time.Time // when something was done
	due  time.Time // nothing is done before
	told string    // the trouble that was logged

	gone  types.UID // the mirror pod deleted last
	still time.Time // until when it may be shown all the same
}

// act is what is to be done for one name, in this order.
type act struct {
	record      *record
	del, create *v1.Pod // nil: nothing to delete, to create
}

// next decides. A mirror pod is right when it mirrors the version that is wanted, and not a life of it that is over while
// another one has begun, or the one that is still being stopped: that one keeps its mirror until it has ended. Another mirror
// pod is deleted, and one is made for what is wanted once no other version runs any more. removable says that the mirror of a
// pod nobody knows may go. wait says when to ask again, 0: when something changes.
func (r *record) next(c couple, shown *v1.Pod, removable bool, now time.Time) (a act, wait time.Duration) {
	if c.wanted != nil && r.hash != hash(c.wanted) { // another version owes nothing to what was done for the last one
		*r = record{hash: hash(c.wanted), gone: r.gone, still: r.still}
	}
	if now.Sub(r.last) > 2*mirrorRetryMax {
		r.acts = 0
	}
	if shown != nil && shown.UID == r.gone && now.Before(r.still) {
		shown, wait = nil, r.still.Sub(now) // deleted; the news is under way
	}
	if shown != nil && shown.DeletionTimestamp == nil && (mirrors(shown, c.wanted) && !outlived(shown, c.wanted) || mirrors(shown, c.ending)) {
		if r.made {
			r.made = false
			r.due = r.last.Add(backoff(r.acts - 1)) // one that is taken away at once each time is not made each time at once
		}
		r.told = ""
		return act{}, 0
	}
	if pending := r.due.Sub(now); pending > 0 {
		return act{}, pending
	}
	if shown != nil && (c != couple{} || removable) {
		a.del = shown
	}
	if c.ending == nil && (shown == nil || a.del != nil) {
		a.create = c.wanted
	}
	return a, wait
}

// acted notes how it went and when to try again at the earliest. news is a trouble that is
// another one than before.
func (r *record) acted(a act, deleted bool, err error, now time.Time) (news error) {
	r.acts++
	r.last, r.due = now, now
	if deleted {
		r.gone, r.still = a.del.UID, now.Add(max(mirrorShown, backoff(r.acts)))
	}
	switch {
	case err != nil:
		wait := backoff(r.acts)
		r.due = now.Add(wait + rand.N(wait/4)) //nolint:gosec // spreads the calls of many nodes
	case a.create != nil:
		if r.made {
			err = errNotShown
		}
		r.made, r.due = true, now.Add(max(mirrorShown, backoff(r.acts)))
	}
	if err == nil || r.told == err.Error() {
		return nil
	}
	r.told = err.Error()
	return err
}

var errNotShown = errors.New("it was made, but the API server does not show it; does another pod have its name?")

func backoff(acts int) time.Duration {
	if acts <= 0 {
		return 0
	}
	return min(mirrorRetry<<min(acts-1, 10), mirrorRetryMax)
}

// couples are the static pods by full name.
func couples(pods []*v1.Pod) map[string]couple {
	out := map[string]couple{}
	for _, p := range pods {
		if _, ok := p.Annotations[podspec.MirrorAnnotation]; ok || !podspec.Static(p) {
			continue
		}
		c := out[podspec.FullName(p)]
		switch {
		case p.DeletionTimestamp != nil:
			c.ending = p
		case c.wanted == nil || c.wanted.Status.StartTime == nil: // of two that have one name, the one that runs
			c.wanted = p
		}
		out[podspec.FullName(p)] = c
	}
	return out
}

// mirrors says that a pod is the mirror of that version of a static pod.
func mirrors(mirror, static *v1.Pod) bool {
	if mirror == nil || static == nil {
		return false
	}
	h, ok := mirror.Annotations[podspec.MirrorAnnotation]
	return ok && h == hash(static) && mirror.Name == static.Name && mirror.Namespace == static.Namespace
}

// outlived says that a mirror tells of a pod that is over, and that the pod, as is known by now, is not: it runs again after its
// machine went down, or after it was refused. An API server does not let every pod come back from its end.
func outlived(mirror, static *v1.Pod) bool {
	return static.Status.StartTime != nil && over(mirror) && !over(static)
}

func over(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func hash(static *v1.Pod) string { return static.Annotations[podspec.HashAnnotation] }

// registered says that the API server has this node, and keeps it.
func registered(node *v1.Node) bool {
	return node != nil && node.UID != "" && node.DeletionTimestamp == nil
}

// mirror is the object that stands for a static pod: a copy that says so, and that goes with its node.
func mirror(static *v1.Pod, node *v1.Node) *v1.Pod {
	p := static.DeepCopy()
	m := &p.ObjectMeta
	m.UID, m.ResourceVersion, m.Generation, m.CreationTimestamp, m.ManagedFields = "", "", 0, metav1.Time{}, nil
	p.Status = v1.PodStatus{}
	p.Spec.Priority, p.Spec.PreemptionPolicy = nil, nil // the server sets them by the class, and takes no others
	m.Annotations = maps.Clone(m.Annotations)
	m.Annotations[podspec.MirrorAnnotation] = hash(static)
	controller := true
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller,
	}}
	return p
}
