package looptest

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ended is a pod that ran and was stopped, and how it was seen while it ran.
func (s *scene) ended() (*v1.Pod, runtime.Pod) {
	s.Helper()
	pod := s.pod(s.Container)
	first, err := s.start(pod)
	s.keeps(err)
	_, err = s.end(pod.UID, pod, runtime.Termination{})
	s.keeps(err)
	return pod, first
}

func removeRules() []rule {
	return []rule{
		{name: "release leaves what ended to be read", check: func(s *scene) {
			pod, first := s.ended()
			s.keeps(s.remove(pod.UID, runtime.Release))
			seen, err := s.look(pod.UID)
			s.keeps(err)
			const remedy = "keep what ended until Remove is called with Renew or Purge: the pod's last status says how it ended, and so does the next agent's"
			if c := seen.Newest("a"); c == nil || c.ID != first.Newest("a").ID || c.State != runtime.Exited || c.Finished.IsZero() {
				s.keeps(broken(remedy, "a pod was %s, has been stopped and released, and is %s", show(first), show(seen)))
			}
			listed, err := s.listed(pod.UID)
			s.keeps(err)
			if show(bare(listed)) != show(bare(seen)) {
				s.keeps(broken(remedy, "a pod that was stopped and released is %s in a look, and %s in the list", show(seen), show(listed)))
			}
		}},
		{name: "renew lets a pod begin anew", check: func(s *scene) {
			pod, _ := s.ended()
			s.keeps(s.remove(pod.UID, runtime.Release))
			s.keeps(s.remove(pod.UID, runtime.Renew))
			s.keeps(s.gone(pod.UID))
			_, err := s.start(pod)
			s.keeps(err)
			s.keeps(s.rest(pod))
		}},
		{name: "purge leaves nothing", check: func(s *scene) {
			pod, _ := s.ended()
			s.keeps(s.remove(pod.UID, runtime.Release))
			s.keeps(s.remove(pod.UID, runtime.Purge))
			s.keeps(s.gone(pod.UID))
		}},
		{name: "a removal may be repeated, of what is gone too", check: func(s *scene) {
			pod, _ := s.ended()
			for _, after := range []time.Duration{0, time.Millisecond} {
				s.keeps(s.cut("Remove", after, func(ctx context.Context) error { return s.Runtime.Remove(ctx, pod.UID, runtime.Purge) }))
			}
			for range 2 {
				for _, what := range []runtime.Removal{runtime.Release, runtime.Renew, runtime.Purge} {
					for range 2 {
						s.keeps(s.remove(pod.UID, what))
					}
					s.keeps(s.remove(nobody, what))
				}
			}
			s.keeps(s.gone(pod.UID))
		}},
	}
}
