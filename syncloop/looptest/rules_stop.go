package looptest

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func stopRules() []rule {
	return []rule{
		{name: "a stopped pod runs no more", check: func(s *scene) {
			var pod *v1.Pod
			var err error
			for range tries {
				// It ends when it is asked to, long before its grace is over.
				if pod, _, err = s.begun(3600, s.Container, s.Container); err != nil {
					break
				}
				if _, err = s.end(pod.UID, pod, runtime.Termination{}); err == nil {
					break
				}
			}
			s.keeps(err)
			s.keeps(s.staysStill(pod))
		}},
		{name: "a stop may be repeated, of what is gone too", check: func(s *scene) {
			pod := s.pod(s.Container)
			seen, err := s.start(pod)
			s.keeps(err)
			_, err = s.end(pod.UID, pod, runtime.Termination{})
			s.keeps(err)
			const remedy = "answer nil: what does not run any more, or never did, has been stopped"
			again := func(when string, seen runtime.Pod) {
				for _, known := range []*v1.Pod{pod, nil} {
					if err := s.Runtime.Stop(s.ctx, known, seen, runtime.Termination{}); err != nil {
						s.keeps(broken(remedy, "Stop of a pod %s answered the error %v", when, err))
					}
				}
			}
			again("that had been stopped, with an older look", seen)
			s.keeps(s.Runtime.Remove(s.ctx, pod.UID, runtime.Purge))
			seen, err = s.look(pod.UID)
			s.keeps(err)
			again("that had been purged", seen)
			again("that never was", runtime.Pod{PodRef: runtime.PodRef{UID: nobody}, At: time.Now()})
		}},
		{name: "a stop without the spec ends the pod", check: func(s *scene) {
			pod := s.pod(s.Container)
			_, err := s.start(pod)
			s.keeps(err)
			_, err = s.end(pod.UID, nil, runtime.Termination{})
			s.keeps(err)
		}},
		{name: "a stop gives the grace and no more", needs: "Deaf", check: stopGivesGrace},
		{name: "a stop that is cut is gone on with, and made shorter", needs: "Deaf", check: stopCut},
	}
}

// staysStill watches a pod that was stopped for a while.
func (s *scene) staysStill(pod *v1.Pod) error {
	seen, err := s.look(pod.UID)
	if err != nil {
		return err
	}
	if _, err := s.heard(seen, time.Now().Add(s.Patience/30)); err != nil {
		return err
	}
	if seen, err = s.look(pod.UID); err == nil && seen.Running() {
		err = broken("start nothing of a pod that was stopped, not by itself either", "a pod that had been stopped runs again: %s", show(seen))
	}
	return err
}

// tries is how often a container may take a signal otherwise than it is meant to: that is so while its program has only begun.
const tries = 3

// begun brings up a pod and gives it a moment.
func (s *scene) begun(grace int64, containers ...v1.Container) (*v1.Pod, runtime.Pod, error) {
	pod := s.pod(containers...)
	pod.Spec.TerminationGracePeriodSeconds = new(grace)
	seen, err := s.start(pod)
	if err == nil {
		_, err = s.heard(seen, time.Now().Add(s.Patience/60))
	}
	return pod, seen, err
}

func stopGivesGrace(s *scene) {
	const least, hour = 2 * time.Second, int64(3600)
	const remedy = "ask containers to end, wait as long as Termination.Grace says, or where that is zero the pod's own grace, and kill what runs then"
	for _, tt := range []struct {
		what string
		own  int64 // seconds
		how  time.Duration
	}{
		{"which is that of its spec", 2, 0},
		{"which Termination.Grace says, and its spec an hour", hour, least},
	} {
		took := time.Duration(0)
		for try := 0; try < tries && took < least-50*time.Millisecond; try++ {
			pod, _, err := s.begun(tt.own, *s.Deaf)
			s.keeps(err)
			began := time.Now()
			_, err = s.endWithin(least+s.Patience, pod.UID, pod, runtime.Termination{Grace: tt.how})
			if late, is := errors.AsType[*fault](err); is {
				err = broken(remedy, "the grace, %s, was %v; %s", tt.what, least, late.seen)
			}
			s.keeps(err)
			took = time.Since(began)
		}
		if took < least-50*time.Millisecond {
			s.keeps(broken(remedy, "a container that does not end by itself was ended after %v; its grace, %s, was %v", took, tt.what, least))
		}
	}
}

func stopCut(s *scene) {
	var pod *v1.Pod
	runs := false
	for try := 0; try < tries && !runs; try++ {
		deaf, seen, err := s.begun(3600, *s.Deaf)
		s.keeps(err)
		s.keeps(s.cut("Stop", s.Patience/60, func(ctx context.Context) error {
			return s.Runtime.Stop(ctx, deaf, seen, runtime.Termination{})
		}))
		seen, err = s.look(deaf.UID)
		s.keeps(err)
		pod, runs = deaf, seen.ContainersRunning()
	}
	if !runs {
		s.keeps(broken("when the context ends, return and leave what runs the rest of its grace: the agent may be restarted, and the next one goes on",
			"a container with an hour of grace was killed when the context of Stop ended"))
	}
	_, err := s.end(pod.UID, pod, runtime.Termination{Grace: 2 * time.Second})
	if late, is := errors.AsType[*fault](err); is {
		err = broken("let a later Stop with a shorter Grace count", "a Stop with an hour of grace was cut, and then there was one with two seconds; %s", late.seen)
	}
	s.keeps(err)
}
