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
		{"a stopped pod runs no more", func(s *scene) {
			pod := s.pod(s.Container, s.Container)
			pod.Spec.TerminationGracePeriodSeconds = new(int64(3600)) // they end when they are asked to
			_, err := s.start(pod)
			s.keeps(err)
			_, err = s.end(pod.UID, pod, runtime.Termination{})
			s.keeps(err)
			s.keeps(s.staysStill(pod))
		}},
		{"a stop may be repeated, of what is gone too", func(s *scene) {
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
		{"a stop without the spec ends the pod", func(s *scene) {
			pod := s.pod(s.Container)
			_, err := s.start(pod)
			s.keeps(err)
			_, err = s.end(pod.UID, nil, runtime.Termination{})
			s.keeps(err)
		}},
		{"a stop gives the grace and no more", stopGivesGrace},
		{"a stop that is cut is gone on with, and made shorter", stopCut},
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

func stopGivesGrace(s *scene) {
	s.needs("Deaf", s.Deaf != nil)
	const least, hour = 2 * time.Second, int64(3600)
	for _, tt := range []struct {
		what string
		own  int64 // seconds
		how  time.Duration
	}{
		{"which is that of its spec", 2, 0},
		{"which Termination.Grace says, and its spec an hour", hour, least},
	} {
		pod := s.pod(*s.Deaf)
		pod.Spec.TerminationGracePeriodSeconds = new(tt.own)
		_, err := s.start(pod)
		s.keeps(err)
		began := time.Now()
		_, err = s.endWithin(least+s.Patience, pod.UID, pod, runtime.Termination{Grace: tt.how})
		const remedy = "ask containers to end, wait as long as Termination.Grace says, or where that is zero the pod's own grace, and kill what runs then"
		took := time.Since(began)
		if late, is := errors.AsType[*fault](err); is {
			err = broken(remedy, "the grace, %s, was %v; %s", tt.what, least, late.seen)
		}
		s.keeps(err)
		if took < least-50*time.Millisecond {
			s.keeps(broken(remedy, "a container that does not end by itself was ended after %v; its grace, %s, was %v", took, tt.what, least))
		}
	}
}

func stopCut(s *scene) {
	s.needs("Deaf", s.Deaf != nil)
	pod := s.pod(*s.Deaf)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	seen, err := s.start(pod)
	s.keeps(err)
	s.keeps(s.cut("Stop", s.Patience/60, func(ctx context.Context) error {
		return s.Runtime.Stop(ctx, pod, seen, runtime.Termination{})
	}))
	if seen, err = s.look(pod.UID); err == nil && !seen.Running() {
		err = broken("when the context ends, return and leave what runs the rest of its grace: the agent may be restarted, and the next one goes on", "a container with an hour of grace was killed when the context of Stop ended")
	}
	s.keeps(err)
	_, err = s.end(pod.UID, pod, runtime.Termination{Grace: 2 * time.Second})
	if late, is := errors.AsType[*fault](err); is {
		err = broken("let a later Stop with a shorter Grace count", "a Stop with an hour of grace was cut, and then there was one with two seconds; %s", late.seen)
	}
	s.keeps(err)
}
