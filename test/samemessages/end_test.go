package samemessages

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/podcases"
	"github.com/kubeletkit/kubeletkit/test/agent"
)

// endingCases are pods that have something to say of their end. They stay for who looks at them afterwards.
func endingCases(t *testing.T) (cases []*podcases.Case) {
	t.Helper()
	ofEnds := lines(t, "ends.txt")
	for i := range *number {
		pod := randomPod(*seed+i, []fields{{}}, ofEnds)
		pod.UID = types.UID("uid-" + pod.Name)
		oneHandler(pod)
		pod.Finalizers = []string{"example.com/stays"}
		r := rand.New(rand.NewPCG(*seed+i, 1))
		pod.Spec.TerminationGracePeriodSeconds = new([]int64{1, 2, 3, 5, 8}[r.IntN(5)])
		pod.Spec.RestartPolicy = []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever}[r.IntN(2)]
		cases = append(cases, &podcases.Case{Name: pod.Name, Pod: pod})
	}
	return cases
}

// oneHandler leaves each hook one of those that were put together.
func oneHandler(pod *v1.Pod) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) { // hooks are shared with the copies
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
			continue
		}
		switch h := c.Lifecycle.PreStop; {
		case h.Sleep != nil:
			h.Exec, h.HTTPGet = nil, nil
		case h.Exec != nil:
			h.HTTPGet = nil
		}
	}
}

// Of pods that are deleted both agents stop the same containers, with the same times to end, sidecars in the same order, and
// tell the same of how they ended.
func TestSameEnds(t *testing.T) {
	cases := endingCases(t)
	kubelet := upstream(t)
	var theirs, ours *stage
	var since [2]int
	t.Run("agents", func(t *testing.T) {
		theirs, ours = setUp(t, kubelet, nil, cases), setUp(t, agent.Program(t), nil, cases)
		both := []*stage{theirs, ours}
		for _, s := range both {
			s.playScripts()
			s.give(cases)
		}
		for name, d := range theirs.until(t, ours, cases, *patience/3) {
			t.Errorf("%s: before the end the kubelet (-) and nodeagent (+) differ:\n%s", name, d)
		}
		for i, s := range both {
			since[i] = s.record.Moment()
			for _, c := range cases {
				s.api.Delete(c.Pod)
			}
		}
		for _, s := range both {
			s.over(cases)
		}
	})
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			want, got := theirs.status(c), ours.status(c)
			alike(want, got)
			stops := theirs.record.Stops(c.Pod.Namespace, c.Pod.Name, since[0])
			if d := diff(t, end(c, stops, want), end(c, near(c, ours.record.Stops(c.Pod.Namespace, c.Pod.Name, since[1]), stops), got)); d != "" {
				spec, _ := yaml.Marshal(c.Pod.Spec)
				t.Errorf("the kubelet (-) and nodeagent (+) differ:\n%s\nThe pod:\n%s", d, spec)
			}
		})
	}
}

// over waits until all pods have ended for their agent.
func (s *stage) over(cases []*podcases.Case) {
	deadline := time.Now().Add(*patience)
	for _, c := range cases {
		for {
			has, ok := apifake.Get(s.api, c.Pod)
			if ok && has.DeletionGracePeriodSeconds != nil && *has.DeletionGracePeriodSeconds == 0 {
				break
			}
			if time.Now().After(deadline) {
				s.t.Errorf("pod %s is there: %v, and has not ended: %+v", c.Name, ok, has)
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// near lets the time that sidecars have left differ by a second: others have ended meanwhile, and not to the millisecond.
func near(c *podcases.Case, stops, theirs []podcases.Stop) []podcases.Stop {
	for i := range stops {
		for _, other := range theirs {
			if d := stops[i].Timeout - other.Timeout; sidecar(c.Pod, other.Container) && stops[i].Container == other.Container && -1 <= d && d <= 1 {
				stops[i].Timeout = other.Timeout
			}
		}
	}
	return stops
}

// end says how a pod ended: what was stopped, and what people read of it.
func end(c *podcases.Case, stops []podcases.Stop, told *v1.PodStatus) string {
	var out []string
	for _, stop := range stops {
		line := fmt.Sprintf("%s within %d s", stop.Container, stop.Timeout)
		for _, other := range stops {
			first := sidecar(c.Pod, stop.Container) && !sidecar(c.Pod, other.Container) && !takesAll(c.Pod, other.Container)
			if first && (other.Done == 0 || other.Done > stop.Begun) {
				line += ", before the end of " + other.Container
			}
		}
		out = append(out, line)
	}
	slices.Sort(out)
	status, _ := yaml.Marshal(told)
	return "--- # stops\n" + strings.Join(out, "\n") + "\n--- # status\n" + string(status)
}

// takesAll says that a container or its hook uses up all the time there is: that of sidecars is over at the same moment.
func takesAll(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool {
		long := c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil && c.Lifecycle.PreStop.Sleep.Seconds >= *pod.Spec.TerminationGracePeriodSeconds
		return c.Name == name && (long || strings.Contains(strings.Join(c.Command, " "), "deaf"))
	})
}

func sidecar(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}
