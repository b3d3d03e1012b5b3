package looptest

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// nobody is a uid that no pod has.
const nobody types.UID = "00000000-0000-4000-8000-00000000dead"

func lookRules() []rule {
	return []rule{
		{name: "a look at a pod that does not exist is empty", check: func(s *scene) {
			seen, err := s.look(nobody)
			s.keeps(err)
			if seen.UID != nobody || len(seen.Sandboxes)+len(seen.Containers) > 0 {
				s.keeps(broken("answer runtime.Pod{PodRef: runtime.PodRef{UID: uid}, At: at}, and no error", "Pod of a uid that no pod has answered %v with %s", seen.PodRef, show(seen)))
			}
		}},
		{name: "a look says when it was taken", check: lookSaysWhen},
		{name: "a look shows what was asked for", check: lookShows},
		{name: "a look and the list show the same", check: func(s *scene) {
			pod := s.pod(s.Container, s.Container)
			_, err := s.start(pod)
			s.keeps(err)
			s.keeps(s.rest(pod))
			seen, err := s.look(pod.UID)
			s.keeps(err)
			listed, err := s.listed(pod.UID)
			s.keeps(err)
			if listed.PodRef != ref(pod) {
				s.keeps(broken("give each pod in the list its uid, namespace and name", "the list shows pod %v as %v", ref(pod), listed.PodRef))
			}
			if show(bare(listed)) != show(bare(seen)) {
				s.keeps(broken("let Pods give the same IDs and states as Pod, in the same order: what differs is taken for a change, and looked at again at each listing",
					"a pod at rest is %s in the list, %s in a look", show(listed), show(seen)))
			}
		}},
		{name: "the list has every pod once", check: func(s *scene) {
			uids := make([]types.UID, 3)
			pods := map[types.UID]int{}
			for i := range uids {
				pod := s.pod(s.Container)
				_, err := s.start(pod)
				s.keeps(err)
				uids[i] = pod.UID
			}
			all, err := s.Runtime.Pods(s.ctx)
			s.keeps(err)
			for _, p := range all {
				pods[p.UID]++
			}
			for _, uid := range uids {
				if pods[uid] != 1 {
					s.keeps(broken("list all pods that exist, each as one, whoever asked for them: one that is not listed is taken to be gone", "pod %s runs and is %d times in the list", uid, pods[uid]))
				}
			}
		}},
		{name: "a look that is cut is an error or whole", check: lookIsWhole},
		{name: "a look does not wait for a stop", needs: "Deaf", check: lookDoesNotWait},
	}
}

// bare is what pleg compares of a pod.
func bare(p runtime.Pod) runtime.Pod {
	p.Containers = slices.Clone(p.Containers)
	for i := range p.Containers {
		p.Containers[i].Restarts = 0
	}
	return p
}

func lookSaysWhen(s *scene) {
	pod := s.pod(s.Container)
	_, err := s.start(pod)
	s.keeps(err)
	for _, uid := range []types.UID{pod.UID, nobody} {
		before := time.Now()
		seen, err := s.look(uid)
		s.keeps(err)
		const remedy = "set At to time.Now() as Pod begins, and look anew at each call: syncloop must know whether it sees what came of its last step"
		switch after := time.Now(); {
		case seen.At.IsZero():
			s.keeps(broken(remedy, "Pod(%s) leaves At zero", uid))
		case seen.At.Before(before) || seen.At.After(after):
			s.keeps(broken(remedy, "Pod(%s) was called at %v and returned at %v; its At is %v", uid, before, after, seen.At))
		case !strings.Contains(seen.At.String(), " m="):
			s.keeps(broken("take At from time.Now() as it is, without Round, UTC or marshalling in between: only a monotonic reading can be compared when clocks are set",
				"At of Pod(%s) is %v, which has no monotonic reading", uid, seen.At))
		}
	}
}

func lookShows(s *scene) {
	pod := s.pod(s.Container, s.Container)
	_, err := s.start(pod)
	s.keeps(err)
	seen, err := s.look(pod.UID)
	s.keeps(err)
	if seen.PodRef != ref(pod) {
		s.keeps(broken("give a pod its own uid, namespace and name, also when another process made it", "pod %v is seen as %v", ref(pod), seen.PodRef))
	}
	if len(seen.Sandboxes) == 0 || !seen.Sandboxes[0].Ready || seen.Sandboxes[0].ID == "" || seen.Sandboxes[0].PodRef != ref(pod) {
		s.keeps(broken("show the frame its containers share as a Sandbox that is Ready, with an ID and the pod's names, the newest first; where there is nothing of the kind, "+
			"make one up with the uid as ID: without it the pod's status says that it has no network", "pod %v runs, its sandboxes are %+v", ref(pod), seen.Sandboxes))
	}
	ids := map[string]string{}
	for i := range pod.Spec.Containers {
		spec := &pod.Spec.Containers[i]
		c := seen.Newest(spec.Name)
		const remedy = "fill it from what runs: statuses, probes and the image collector go by it"
		for what, wrong := range map[string]bool{
			"no ID, or that of another":                          c.ID == "" || ids[c.ID] != "",
			"Pod, which is not its pod":                          c.Pod != ref(pod),
			"Image, which is not its":                            c.Image != spec.Image,
			"SandboxID, which is not that of the newest sandbox": c.SandboxID != seen.Sandboxes[0].ID,
			"Started, which is zero":                             c.Started.IsZero(),
			"Finished, though it runs":                           !c.Finished.IsZero(),
			"Restarts below zero":                                c.Restarts < 0,
		} {
			if wrong {
				s.keeps(broken(remedy, "container %s of pod %v has %s: %+v", spec.Name, ref(pod), what, *c))
			}
		}
		ids[c.ID] = spec.Name
	}
	for i := range seen.Containers {
		if c := &seen.Containers[i]; c.Name != "a" && c.Name != "b" {
			s.keeps(broken("show the containers of this pod and no others, under their names in its spec", "pod %v was asked for with containers a and b, and has %s", ref(pod), show(seen)))
		}
	}
}

func lookIsWhole(s *scene) {
	pod := s.pod(s.Container)
	_, err := s.start(pod)
	s.keeps(err)
	const remedy = "when the context has ended before all is known, answer its error: what is missing is taken to be gone, and is made again"
	for _, after := range []time.Duration{0, time.Millisecond} {
		s.keeps(s.cut("Pod", after, func(ctx context.Context) error {
			seen, err := s.Runtime.Pod(ctx, pod.UID)
			if err == nil && up(pod)(seen) != "" {
				s.Errorf("broken: %s\n  %v", s.rule, broken(remedy, "Pod with a context that ended after %v answered no error, and %s", after, show(seen)))
			}
			return err
		}))
		s.keeps(s.cut("Pods", after, func(ctx context.Context) error {
			all, err := s.Runtime.Pods(ctx)
			if err == nil && !slices.ContainsFunc(all, func(p runtime.Pod) bool { return p.UID == pod.UID }) {
				s.Errorf("broken: %s\n  %v", s.rule, broken(remedy, "Pods with a context that ended after %v answered no error, and %d pods without %v", after, len(all), ref(pod)))
			}
			return err
		}))
	}
}

func lookDoesNotWait(s *scene) {
	pod := s.pod(*s.Deaf)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	seen, err := s.start(pod)
	s.keeps(err)
	ctx, cancel := context.WithCancel(s.ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = s.Runtime.Stop(ctx, pod, seen, runtime.Termination{})
	}()
	looks := make(chan error, 1)
	go func() {
		begun := time.Now() // the stop, or soon after
		for {
			seen, err := s.look(pod.UID)
			if err == nil {
				_, err = s.heard(seen, time.Now().Add(s.Patience/100))
			}
			if err != nil || time.Since(begun) > s.Patience/20 {
				looks <- err
				return
			}
		}
	}()
	late := time.NewTimer(s.soon())
	defer late.Stop()
	select {
	case err = <-looks:
	case <-late.C:
		err = broken("hold no lock of a pod while it is waited for: looks come beside Sync and Stop, and all lists wait for one that hangs",
			"Pod and Pods had not returned %v after a Stop of that pod had begun, which has an hour of grace", s.soon())
	}
	cancel()
	<-stopped
	s.keeps(err)
}
