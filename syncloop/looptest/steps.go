package looptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// actsAtOnce is how many steps in a row may change something before syncloop takes the runtime for one that always says so.
const actsAtOnce = 100

// afterError is when a step that failed is taken again. syncloop waits longer.
const afterError = 250 * time.Millisecond

// look looks at a pod.
func (s *scene) look(uid types.UID) (runtime.Pod, error) {
	seen, err := s.Runtime.Pod(s.ctx, uid)
	if err != nil {
		return seen, broken("answer what there is; an error says that it cannot be looked at now, and then nothing is done for the pod",
			"Pod(%s) answered the error %v", uid, err)
	}
	return seen, nil
}

// listed is what the list shows of a pod: the zero Pod when it is not there.
func (s *scene) listed(uid types.UID) (runtime.Pod, error) {
	pods, err := s.Runtime.Pods(s.ctx)
	if err != nil {
		return runtime.Pod{}, broken("list what there is; an error says that nobody knows what there is, and then no pod is started", "Pods answered the error %v", err)
	}
	for _, p := range pods {
		if p.UID == uid {
			return p, nil
		}
	}
	return runtime.Pod{}, nil
}

// heard waits until the list shows something of a pod that a look before did not, as pleg would find it.
func (s *scene) heard(before runtime.Pod, until time.Time) (bool, error) {
	tick := time.NewTicker(min(max(s.Patience/500, 10*time.Millisecond), time.Second))
	defer tick.Stop()
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	for {
		now, err := s.listed(before.UID)
		if err != nil {
			return false, err
		}
		if len(pleg.Diff([]runtime.Pod{before}, []runtime.Pod{now})) > 0 {
			return true, nil
		}
		select {
		case <-tick.C:
		case <-late.C:
			return false, nil
		case <-s.ctx.Done():
			return false, context.Cause(s.ctx)
		}
	}
}

// goal says what a pod lacks; empty: nothing.
type goal func(seen runtime.Pod) (lacks string)

// up is that each container of a pod has one instance that runs.
func up(pod *v1.Pod) goal {
	return func(seen runtime.Pod) string {
		var lacks []string
		for i := range pod.Spec.Containers {
			name := pod.Spec.Containers[i].Name
			switch c, running := seen.Newest(name), instances(seen, name, runtime.Running); {
			case c == nil:
				lacks = append(lacks, "there is no container "+name)
			case c.State != runtime.Running:
				lacks = append(lacks, "container "+name+" is "+c.State.String())
			case running > 1:
				lacks = append(lacks, fmt.Sprintf("container %s runs %d times", name, running))
			}
		}
		return strings.Join(lacks, ", ")
	}
}

// instances of a container that are in a state.
func instances(seen runtime.Pod, name string, in runtime.State) (n int) {
	for i := range seen.Containers {
		if c := &seen.Containers[i]; c.Name == name && c.State == in {
			n++
		}
	}
	return n
}

// start brings a pod up.
func (s *scene) start(pod *v1.Pod) (runtime.Pod, error) { return s.bring(pod, up(pod), nil) }

// bring steps a pod as syncloop does, until it is as it is to be: look, Sync; at once again when that acted, else at RetryAt,
// after an error, or when the list shows a change.
func (s *scene) bring(pod *v1.Pod, to goal, probes func(runtime.Pod) runtime.ProbeResults) (runtime.Pod, error) {
	deadline := time.Now().Add(s.Patience)
	acted := 0
	for {
		seen, err := s.look(pod.UID)
		if err != nil || to(seen) == "" {
			return seen, err
		}
		in := runtime.SyncInput{Seen: seen}
		if probes != nil {
			in.ProbeResults = probes(seen)
		}
		result, err := s.Runtime.Sync(s.ctx, pod, in)
		if result.Acted && time.Now().Before(deadline) {
			if acted++; acted < actsAtOnce {
				continue
			}
		}
		again := deadline
		failed := err != nil && !errors.Is(err, runtime.ErrInProgress)
		if failed || result.Acted {
			again = time.Now().Add(afterError)
		}
		if !result.RetryAt.IsZero() && result.RetryAt.Before(again) {
			again = result.RetryAt
		}
		heard, e := s.heard(seen, again)
		if e != nil {
			return seen, e
		}
		if heard || time.Now().Before(deadline) {
			continue
		}
		now, e := s.look(pod.UID)
		switch {
		case e != nil:
			return now, e
		case to(now) == "" && again.Equal(deadline):
			return now, broken("let lists show the same states and IDs as looks, as soon as they change",
				"pod %s came to be as it is to be, but no list showed that within %v", ref(pod), s.Patience)
		case to(now) == "":
			return now, nil
		case failed:
			return now, broken("mend what the error says; if the fixture's container is none that this runtime can run, give another",
				"after %v pod %s lacks: %s; the last Sync answered the error %v", s.Patience, ref(pod), to(now), err)
		case acted >= actsAtOnce:
			return now, broken("let each Sync that acts take the pod nearer to what it is to be, and set Acted only if it has changed something",
				"after %d steps that acted, and %v, pod %s lacks: %s", acted, s.Patience, ref(pod), to(now))
		}
		return now, broken("as long as something is to be done, say so: Acted when this call changed something, RetryAt when time must pass, an error "+
			"when it failed, or runtime.ErrInProgress when the list will show that it is done. Nobody calls Sync again before, but for a resync each minute",
			"after %v pod %s lacks: %s; the last Sync answered Acted %v, RetryAt %v, error %v, and the list showed no change", s.Patience, ref(pod), to(now), result.Acted, result.RetryAt, err)
	}
}

// rest checks that a pod that is as it is to be comes to rest: then steps change nothing and say so.
func (s *scene) rest(pod *v1.Pod) error {
	const settles, quiet = 5, 3
	var before runtime.Pod
	for i, calm := 0, 0; calm < quiet; i++ {
		seen, err := s.look(pod.UID)
		if err != nil {
			return err
		}
		if calm == 0 {
			before = seen
		}
		began := time.Now()
		result, err := s.Runtime.Sync(s.ctx, pod, runtime.SyncInput{Seen: seen})
		calm++
		switch {
		case err != nil:
			return broken("a pod that is as wished for is no error: it would be told as an event, again and again", "Sync of pod %s, which is as it is to be, answered the error %v", ref(pod), err)
		case result.Acted && i < settles:
			calm = 0
		case result.Acted:
			return broken("set SyncResult.Acted only when this very call has changed something: syncloop looks and steps again at once, until a step has changed nothing, "+
				"and after a hundred steps warns and takes one each second", "step %d of pod %s, which is as it is to be, answered Acted", i+1, ref(pod))
		case !result.RetryAt.IsZero() && result.RetryAt.Before(began):
			return broken("leave RetryAt zero when nothing is to be done, else set a time ahead: syncloop steps again at that time", "step %d of pod %s answered RetryAt %v, which was %v ago",
				i+1, ref(pod), result.RetryAt, began.Sub(result.RetryAt))
		}
	}
	after, err := s.look(pod.UID)
	if err != nil {
		return err
	}
	return unchanged(before, after)
}

// unchanged checks that the same instances are in the same state.
func unchanged(before, after runtime.Pod) error {
	if events := pleg.Diff([]runtime.Pod{before}, []runtime.Pod{after}); len(events) > 0 {
		return broken("let a container and a sandbox keep their IDs as long as they are there, and leave them alone while they are as they are to be",
			"pod %v was not touched and is another: %s before, %s after", before.PodRef, show(before), show(after))
	}
	return nil
}

// show is a pod in few words.
func show(p runtime.Pod) string {
	var out []string
	for _, b := range p.Sandboxes {
		out = append(out, fmt.Sprintf("sandbox %s ready=%v", b.ID, b.Ready))
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		out = append(out, fmt.Sprintf("%s %s %v restarts=%d", c.Name, c.ID, c.State, c.Restarts))
	}
	if len(out) == 0 {
		return "[nothing]"
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func ref(pod *v1.Pod) runtime.PodRef {
	return runtime.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// end stops a pod as syncloop does: look, Stop, until that answers nil; then nothing may run. pod is nil when nobody knows it.
func (s *scene) end(uid types.UID, pod *v1.Pod, how runtime.Termination) (runtime.Pod, error) {
	return s.endWithin(how.Grace+s.Patience, uid, pod, how)
}

func (s *scene) endWithin(long time.Duration, uid types.UID, pod *v1.Pod, how runtime.Termination) (runtime.Pod, error) {
	deadline := time.Now().Add(long)
	for {
		seen, err := s.look(uid)
		if err != nil {
			return seen, err
		}
		ctx, cancel := context.WithDeadline(s.ctx, deadline)
		err = s.Runtime.Stop(ctx, pod, seen, how)
		cancel()
		if err == nil {
			return s.still(uid)
		}
		again := time.Now().Add(afterError)
		if errors.Is(err, runtime.ErrInProgress) {
			again = deadline
		}
		heard, e := s.heard(seen, again)
		switch {
		case e != nil:
			return seen, e
		case heard || time.Now().Before(deadline):
		case errors.Is(err, runtime.ErrInProgress):
			return seen, broken("when Stop answers runtime.ErrInProgress, let the list show it when something ends; else wait in Stop until nothing runs",
				"Stop of pod %v answered %v, and within %v no list showed a change: %s", seen.PodRef, err, long, show(seen))
		default:
			return seen, broken("end what runs, the grace it has and no longer, and answer nil; what does not exist any more has ended", "Stop of pod %v answered after %v still: %v; there is %s",
				seen.PodRef, long, err, show(seen))
		}
	}
}

// still checks that nothing of a pod runs that was stopped.
func (s *scene) still(uid types.UID) (runtime.Pod, error) {
	seen, err := s.look(uid)
	if err == nil && seen.Running() {
		err = broken("answer nil only when nothing of the pod runs: no container, and no sandbox is ready; before that wait, or answer runtime.ErrInProgress. What the pod "+
			"holds is given to others after that", "Stop of pod %v answered nil, and a look after that shows %s", seen.PodRef, show(seen))
	}
	return seen, err
}

// cut calls something with a context that ends a moment later, and checks that it returns soon after that.
func (s *scene) cut(what string, after time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	if after == 0 {
		cancel()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = call(ctx) // what it did is looked at
	}()
	s.Cleanup(func() { <-done })
	moment := time.NewTimer(after)
	defer moment.Stop()
	select {
	case <-done:
		return nil
	case <-moment.C:
	}
	cancel()
	late := time.NewTimer(s.soon())
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return broken("heed the context in all that waits, and return as soon as it has ended: the agent cannot end before, and a pod that is to end waits for its step",
			"%s had not returned %v after its context had ended", what, s.soon())
	}
}

// together does something for each of n at once.
func together(n int, do func(i int) error) error {
	var g errgroup.Group
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

// remove removes what is left of a pod.
func (s *scene) remove(uid types.UID, what runtime.Removal) error {
	if err := s.Runtime.Remove(s.ctx, uid, what); err != nil {
		kind := [...]string{"Release", "Renew", "Purge"}[what]
		return broken("answer nil when nothing is left, whoever removed it, or if nothing ever was", "Remove(%s) of pod %s answered the error %v", kind, uid, err)
	}
	return nil
}

// gone checks that nothing is left of a pod.
func (s *scene) gone(uid types.UID) error {
	seen, err := s.look(uid)
	if err != nil {
		return err
	}
	listed, err := s.listed(uid)
	if err != nil {
		return err
	}
	if len(seen.Sandboxes)+len(seen.Containers) > 0 || listed.UID != "" {
		return broken("when Remove has answered nil, show nothing of the pod: what is seen is stopped and removed again and again",
			"pod %s was removed, and there is %s in a look, %s in the list", uid, show(seen), show(listed))
	}
	return nil
}
