package looptest

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func agentRules() []rule {
	return []rule{
		{name: "the next agent finds what the last one left", needs: "Next", check: func(s *scene) {
			pod := s.pod(s.Container, s.Container)
			_, err := s.start(pod)
			s.keeps(err)
			s.keeps(s.rest(pod))
			before, err := s.look(pod.UID)
			s.keeps(err)
			s.Runtime = s.Next()
			const remedy = "find pods by what is in the world, such as labels, tags or files, and keep nothing only in the process that another must know"
			listed, err := s.listed(pod.UID)
			s.keeps(err)
			after, err := s.look(pod.UID)
			s.keeps(err)
			for how, p := range map[string]runtime.Pod{"in a look": after, "in the list": listed} {
				if p.PodRef != ref(pod) || show(bare(p)) != show(bare(before)) {
					s.keeps(broken(remedy, "the last agent left pod %v, %s; the next one sees %v, %s %s", ref(pod), show(before), p.PodRef, show(p), how))
				}
			}
			for i := range before.Containers {
				if was, is := before.Containers[i], after.Containers[i]; was.Restarts != is.Restarts || was.Name != is.Name || !was.Started.Equal(is.Started) {
					s.keeps(broken(remedy, "the last agent left container %+v, and the next one sees %+v", was, is))
				}
			}
			s.keeps(s.rest(pod))
			after, err = s.look(pod.UID)
			s.keeps(err)
			s.keeps(unchanged(before, after))
		}},
		{name: "the next agent goes on where the last one was cut", needs: "Next", check: func(s *scene) {
			var pods []*v1.Pod
			for _, after := range []time.Duration{0, time.Millisecond, 25 * time.Millisecond} {
				pod := s.pod(s.Container, s.Container)
				s.keeps(s.cutSync(pod, after))
				pods = append(pods, pod)
			}
			s.Runtime = s.Next()
			s.keeps(together(len(pods), func(i int) error { return s.whole(pods[i]) }))
		}},
		{name: "the next agent ends what nobody knows", needs: "Next", check: func(s *scene) {
			pod := s.pod(s.Container)
			_, err := s.start(pod)
			s.keeps(err)
			s.Runtime = s.Next()
			_, err = s.end(pod.UID, nil, runtime.Termination{})
			s.keeps(err)
			s.keeps(s.remove(pod.UID, runtime.Release))
			s.keeps(s.remove(pod.UID, runtime.Purge))
			s.keeps(s.gone(pod.UID))
		}},
	}
}
