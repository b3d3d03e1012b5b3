package looptest

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func syncRules() []rule {
	return []rule{
		{name: "a pod comes to run", check: func(s *scene) {
			_, err := s.start(s.pod(s.Container, s.Container))
			s.keeps(err)
		}},
		{name: "a pod at rest is left alone", check: func(s *scene) {
			pod := s.pod(s.Container, s.Container)
			before, err := s.start(pod)
			s.keeps(err)
			s.keeps(s.rest(pod))
			after, err := s.look(pod.UID)
			s.keeps(err)
			s.keeps(unchanged(before, after))
		}},
		{name: "a pod that is handed in is not changed", check: func(s *scene) {
			pod := s.pod(s.Container)
			was := pod.DeepCopy()
			_, err := s.start(pod)
			s.keeps(err)
			s.keeps(s.rest(pod))
			_, err = s.end(pod.UID, pod, runtime.Termination{})
			s.keeps(err)
			if !equality.Semantic.DeepEqual(pod, was) {
				s.keeps(broken("take a DeepCopy of a pod before you change it: all parts of the agent read the same object, at the same time", "pod %v was handed in as\n%+v\nand is now\n%+v", ref(was), was, pod))
			}
		}},
		{name: "a sync that is cut is gone on with", check: cutSync},
		{name: "what ended is started again as its restart policy says", needs: "Ends", check: startedAgain},
		{name: "what ended for good stays ended", needs: "Ends", check: staysEnded},
		{name: "what its liveness probe gives up is started again", check: func(s *scene) {
			pod := s.pod(s.Container)
			first, err := s.start(pod)
			s.keeps(err)
			old := first.Newest("a")
			s.renewed(pod, old, func(runtime.Pod) runtime.ProbeResults {
				return runtime.ProbeResults{old.ID: {Liveness: runtime.Failing}}
			})
		}},
		{name: "new sizes come to rest", check: newSizes},
		{name: "what cannot be started is told and tried again later", needs: "Broken", check: cannotStart},
		{name: "pods of one name are told apart by uid", check: namesakes},
		{name: "pods are worked on side by side", check: sideBySide},
	}
}

func cutSync(s *scene) {
	delays := []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond}
	pods := make([]*v1.Pod, len(delays))
	for i := range pods {
		pods[i] = s.pod(s.Container, s.Container)
	}
	s.keeps(together(len(pods), func(i int) error {
		if err := s.cutSync(pods[i], delays[i]); err != nil {
			return err
		}
		return s.whole(pods[i])
	}))
}

// cutSync cuts the first step of a pod.
func (s *scene) cutSync(pod *v1.Pod, after time.Duration) error {
	seen, err := s.look(pod.UID)
	if err != nil {
		return err
	}
	return s.cut("Sync", after, func(ctx context.Context) error {
		_, err := s.Runtime.Sync(ctx, pod, runtime.SyncInput{Seen: seen})
		return err
	})
}

// whole goes on with a pod whose first step was cut: nothing of it may be there twice.
func (s *scene) whole(pod *v1.Pod) error {
	if _, err := s.start(pod); err != nil {
		return err
	}
	if err := s.rest(pod); err != nil {
		return err
	}
	seen, err := s.look(pod.UID)
	if err != nil {
		return err
	}
	ready := 0
	for _, b := range seen.Sandboxes {
		if b.Ready {
			ready++
		}
	}
	if lacks := up(pod)(seen); lacks != "" || ready > 1 {
		return broken("let a Sync find what the one before it has made, such as by names that follow from the pod's uid, and go on from there",
			"a Sync of pod %v was cut, and when it had been gone on with, there was %s", ref(pod), show(seen))
	}
	return nil
}

func startedAgain(s *scene) {
	pod := s.pod(s.Ends(3))
	first, err := s.bring(pod, func(seen runtime.Pod) string {
		if seen.Newest("a") == nil {
			return "there is no container a"
		}
		return ""
	}, nil)
	s.keeps(err)
	s.renewed(pod, first.Newest("a"), nil)
}

// renewed waits until there is another instance of a container, and checks that it is told from the one before.
func (s *scene) renewed(pod *v1.Pod, old *runtime.Container, probes func(runtime.Pod) runtime.ProbeResults) {
	s.Helper()
	var wrong error
	seen, err := s.bring(pod, func(seen runtime.Pod) string {
		now := seen.Newest("a")
		for i := range seen.Containers {
			c := &seen.Containers[i]
			switch {
			case c.Name != "a" || wrong != nil:
			case c.Restarts > now.Restarts:
				wrong = broken("show the newest instance first", "pod %v is %s: of container a the instance with the highest number is not the first", ref(pod), show(seen))
			case c.ID == old.ID && c.Restarts != old.Restarts:
				wrong = broken("give each instance of a container an ID of its own, such as with its number: probe results and events are by ID",
					"container %s had %d restarts and has %d: it is another instance under the same ID", c.ID, old.Restarts, c.Restarts)
			}
		}
		if now == nil || now.ID == old.ID {
			return "container a is still the instance " + old.ID
		}
		return ""
	}, probes)
	if wrong != nil {
		err = wrong
	}
	if late, is := errors.AsType[*fault](err); is && wrong == nil {
		err = broken("start again what ended, or whose liveness probe fails, unless its restart policy forbids it: at once, or with RetryAt and a reason in Waiting. If the backend does so by "+
			"itself, show each start as another instance. syncloop does not", "%s", late.seen)
	}
	s.keeps(err)
	if now := seen.Newest("a"); now.Restarts <= old.Restarts {
		s.keeps(broken("let Restarts be how many instances of that name there were before: statuses and back-off count by it", "instance %s has %d restarts, %s after it has %d",
			old.ID, old.Restarts, now.ID, now.Restarts))
	}
}

func staysEnded(s *scene) {
	cases := []struct {
		policy v1.RestartPolicy
		code   int32
	}{{v1.RestartPolicyNever, 0}, {v1.RestartPolicyNever, 3}, {v1.RestartPolicyOnFailure, 0}}
	pods := make([]*v1.Pod, len(cases))
	for i, c := range cases {
		pods[i] = s.pod(s.Ends(c.code))
		pods[i].Spec.RestartPolicy = c.policy
	}
	s.keeps(together(len(cases), func(i int) error {
		seen, err := s.bring(pods[i], func(seen runtime.Pod) string {
			if c := seen.Newest("a"); c == nil || c.State != runtime.Exited {
				return "container a has not ended"
			}
			return ""
		}, nil)
		if err != nil {
			return err
		}
		c := seen.Newest("a")
		if c.ExitCode != cases[i].code || c.Finished.IsZero() {
			return broken("keep the exit code and the time of what ended: whether a pod succeeded or failed goes by them, and when it may be started again",
				"container %s was to end with code %d; its code is %d, and it finished at %v", c.ID, cases[i].code, c.ExitCode, c.Finished)
		}
		if err := s.rest(pods[i]); err != nil {
			return err
		}
		now, err := s.look(pods[i].UID)
		if err != nil {
			return err
		}
		if a := now.Newest("a"); a == nil || a.ID != c.ID || a.State != runtime.Exited {
			return broken("start nothing again that ended with code 0, unless the policy is Always, and nothing at all if it is Never",
				"restart policy %s: container %s ended with code %d, and after further steps there is %s", cases[i].policy, c.ID, cases[i].code, show(now))
		}
		return nil
	}))
}

func newSizes(s *scene) {
	pod := s.pod(s.Container)
	sized := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: sized("100m", "64Mi"), Limits: sized("200m", "128Mi")}
	before, err := s.start(pod)
	s.keeps(err)
	s.keeps(s.rest(pod))
	other := pod.DeepCopy()
	other.Generation++
	other.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: sized("150m", "64Mi"), Limits: sized("300m", "128Mi")}
	s.made[pod.UID] = other
	s.keeps(s.rest(other))
	after, err := s.look(pod.UID)
	s.keeps(err)
	s.keeps(unchanged(before, after))
	result, err := s.Runtime.Sync(s.ctx, other, runtime.SyncInput{Seen: after})
	s.keeps(err)
	want := runtime.Sizes{CPURequest: 150, CPULimit: 300, MemoryRequest: 64 << 20, MemoryLimit: 128 << 20}
	if has, known := after.Applied["a"]; known && has != want && result.Resize == nil && result.RetryAt.IsZero() {
		s.keeps(broken("let Applied show what running containers were given, SyncResult.Resize why they could not be given it, and RetryAt when that is tried again; or leave Applied nil: then they are taken to have it",
			"container a is to have %+v, Applied shows %+v, and Sync tells of no error and no time", want, has))
	}
}

func cannotStart(s *scene) {
	pod := s.pod(*s.Broken)
	deadline := time.Now().Add(s.Patience)
	told := false
	for steps, calm := 1, 0; calm < 2; steps++ {
		seen, err := s.look(pod.UID)
		s.keeps(err)
		result, err := s.Runtime.Sync(s.ctx, pod, runtime.SyncInput{Seen: seen})
		after, e := s.look(pod.UID)
		s.keeps(e)
		told = told || err != nil || after.Waiting["a"].Reason != "" || after.Newest("a") != nil && after.Newest("a").State == runtime.Exited
		if result.Acted {
			calm = 0
			if steps >= actsAtOnce {
				s.keeps(broken("after a failure leave Acted false in the steps that only wait, and set RetryAt", "%d steps in a row say that they acted, of a pod that cannot be started", steps))
			}
			continue
		}
		if err == nil && result.RetryAt.IsZero() && told {
			s.keeps(broken("set RetryAt, or answer an error as often as it is tried: else nobody does so again", "Sync of a pod that cannot be started answered no error and no RetryAt; Waiting is %+v", after.Waiting))
		}
		if calm++; !told {
			if time.Now().After(deadline) {
				s.keeps(broken("answer an error, or set runtime.Pod.Waiting for the container with a reason: people read there why their pod does not run",
					"after %v a pod that cannot be started has no reason for waiting, and Sync answers no error: %s", s.Patience, show(after)))
			}
			calm = 0
		}
		_, e = s.heard(after, time.Now().Add(afterError))
		s.keeps(e)
	}
}

func namesakes(s *scene) {
	first := s.pod(s.Container)
	before, err := s.start(first)
	s.keeps(err)
	second := s.pod(s.Container, s.Container)
	second.Name, second.Namespace = first.Name, first.Namespace
	// It may be that only one of them can run at a time. Then the second comes to its turn when the first is gone.
	patient := s.Patience
	s.Patience = patient / 10
	_, early := s.start(second)
	s.Patience = patient
	seen, err := s.look(first.UID)
	s.keeps(err)
	const remedy = "know pods by their uid alone, or answer an error such as runtime.ErrInUse as long as another pod of that name is there: " +
		"a pod that was made anew under its old name comes while the old one still ends"
	if unchanged(before, seen) != nil {
		s.keeps(broken(remedy, "a pod of the same name with another uid was asked for, and now the first one, which was %s, is %s", show(before), show(seen)))
	}
	own := func(uid types.UID) error {
		seen, err := s.look(uid)
		if err != nil {
			return err
		}
		for i := range seen.Containers {
			if seen.Containers[i].Pod.UID != uid {
				return broken(remedy, "pod %s is shown with container %+v", uid, seen.Containers[i])
			}
		}
		return nil
	}
	s.keeps(own(second.UID))
	_, err = s.end(first.UID, first, runtime.Termination{})
	s.keeps(err)
	s.keeps(s.Runtime.Remove(s.ctx, first.UID, runtime.Purge))
	if early == nil {
		seen, err := s.look(second.UID)
		s.keeps(err)
		if lacks := up(second)(seen); lacks != "" {
			s.keeps(broken(remedy, "two pods of one name ran, the first was ended, and of the second now: %s", lacks))
		}
		return
	}
	_, err = s.start(second)
	s.keeps(err)
}

func sideBySide(s *scene) {
	pods, before := make([]*v1.Pod, 6), make([]runtime.Pod, 6)
	for i := range pods {
		pods[i] = s.pod(s.Container)
	}
	s.keeps(together(len(pods), func(i int) (err error) {
		before[i], err = s.start(pods[i])
		return err
	}))
	s.keeps(together(len(pods), func(i int) error {
		if i%2 == 1 {
			return s.rest(pods[i])
		}
		if _, err := s.end(pods[i].UID, pods[i], runtime.Termination{}); err != nil {
			return err
		}
		return s.Runtime.Remove(s.ctx, pods[i].UID, runtime.Purge)
	}))
	s.keeps(together(len(pods)/2, func(i int) error {
		after, err := s.look(pods[2*i+1].UID)
		if err != nil {
			return err
		}
		return unchanged(before[2*i+1], after)
	}))
}
