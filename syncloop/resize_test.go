package syncloop

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func TestResizesInOrder(t *testing.T) {
	now := time.Now()
	asks := func(cpu string, priority int32, guaranteed bool) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Priority: &priority, Containers: make([]v1.Container, 1)}}
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Mi")}
		p.Spec.Containers[0].Resources.Requests = list
		if guaranteed {
			p.Spec.Containers[0].Resources.Limits = list
		}
		return p
	}
	resizer := func(name, cpu string, priority int32, guaranteed bool, since time.Duration) *worker {
		w := &worker{uid: types.UID(name), phase: syncing, pod: asks("2", priority, guaranteed), wish: asks(cpu, priority, guaranteed)}
		if w.undecided = since == 0; !w.undecided {
			w.pending = &v1.PodCondition{Reason: v1.PodReasonDeferred}
			w.pending.LastTransitionTime.Time = now.Add(-since)
		}
		return w
	}
	content := resizer("content", "3", 9, true, time.Hour)
	content.wish = content.pod
	ended := resizer("ended", "1", 9, true, time.Hour)
	ended.phase = terminating
	never := resizer("never", "3", 9, true, time.Hour)
	never.pending.Reason = v1.PodReasonInfeasible
	anew := resizer("anew", "3", 0, true, time.Hour)
	anew.pending.Reason, anew.undecided = v1.PodReasonInfeasible, true
	var got []string
	for _, w := range waiting([]*worker{
		content, resizer("young", "3", 1, false, 0), resizer("old", "3", 1, false, time.Hour), ended, resizer("older", "3", 1, false, 2*time.Hour), anew,
		resizer("guaranteed", "3", 1, true, 0), never, resizer("important", "3", 2, false, 0), resizer("less", "1", -5, false, 0),
	}) {
		got = append(got, string(w.uid))
	}
	if want := "less important guaranteed older old young anew"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestAConditionOfAResizeIsAsOldAsItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := inProgress(1)
		time.Sleep(time.Minute)
		for reason, age := range map[string]time.Duration{"": time.Minute, v1.PodReasonError: 0} {
			c := *old
			c.Reason = reason
			dated(&c, old)
			if got := time.Since(c.LastTransitionTime.Time); got != age || time.Since(c.LastProbeTime.Time) != 0 {
				t.Errorf("reason %q: %v old, looked at %v", reason, got, c.LastProbeTime)
			}
		}
	})
}

func TestOperation(t *testing.T) {
	for words, want := range map[string]string{"1 1": "", "0 1": "add", "1 0": "remove", "1 2": "increase", "2000m 1": "decrease", "1 1000m": ""} {
		from, to, _ := strings.Cut(words, " ")
		if got := operation(resource.MustParse(from), resource.MustParse(to)); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
}
