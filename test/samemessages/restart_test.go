package samemessages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/podcases"
)

// restarted kills both agents and starts them again, and says of each pod what differs then: what is made anew, what is told
// on the way, and how it is in the end.
func (s *stage) restarted(t *testing.T, other *stage, cases []*podcases.Case) map[string]string {
	t.Helper()
	var since []int
	var heard []*told
	late := []*podcases.Case{{Name: "late", Pod: guest{name: "late"}.pod(0)}} // it runs once the others have been looked at
	both := []*stage{s, other}
	for _, a := range both {
		a.kill()
		since, heard = append(since, a.record.Moment()), append(heard, a.listen())
		a.start()
		a.give(late)
	}
	for _, a := range both {
		a.wait(t.Context(), late)
	}
	cases = slices.DeleteFunc(slices.Clone(cases), func(c *podcases.Case) bool { return neverStarts(c.Pod) })
	differ := s.until(t, other, cases, *patience/6)
	for _, c := range cases {
		after := func(i int) string {
			made := both[i].record.Made(c.Pod.Namespace, c.Pod.Name, since[i])
			pod, _ := apifake.Get(both[i].api, c.Pod)
			for _, cs := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				if cs.RestartCount > 0 { // each agent has its own rhythm
					made = slices.DeleteFunc(made, func(what string) bool { return what == "container "+cs.Name })
				}
			}
			return "made: " + strings.Join(made, ", ") + "\ntold meanwhile: " + heard[i].meanwhile(pod) + "\nfiles:\n" + both[i].files(t, c, false)
		}
		differ[c.Name] += diff(t, after(0), after(1))
	}
	return differ
}

// neverStarts says that a startup probe of a pod fails. The kubelet takes such a container for started after a restart, ours
// does not: docs/differences.md.
func neverStarts(pod *v1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c v1.Container) bool {
		return c.StartupProbe != nil && c.StartupProbe.Exec != nil && slices.Contains(c.StartupProbe.Exec.Command, "exit 1")
	})
}

// least is the smallest limit of CPU that a cgroup can have. After a restart the kubelet tells of none below it.
var least = resource.MustParse("10m")

// told is what has been told of pods since somebody listens.
type told struct {
	mu  sync.Mutex // guards was
	was map[string][]string
}

// listen hears what is told of pods.
func (s *stage) listen() *told {
	l := &told{was: map[string][]string{}}
	s.api.Answer(func(c apifake.Call) *apifake.Answer {
		change := new(v1.Pod)
		if c.Resource == "pods" && c.Sub == "status" && json.Unmarshal(c.Body, change) == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.was[c.Namespace+"/"+c.Name] = append(l.was[c.Namespace+"/"+c.Name], facts(&change.Status)...)
		}
		return nil
	})
	return l
}

// meanwhile is what was told of a pod that is not so in the end.
func (l *told) meanwhile(p *v1.Pod) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := facts(&p.Status)
	was := slices.DeleteFunc(slices.Clone(l.was[p.Namespace+"/"+p.Name]), func(f string) bool { return slices.Contains(is, f) })
	slices.Sort(was)
	return strings.Join(slices.Compact(was), ", ")
}

// facts are what a status says of conditions, and of containers that have not been restarted.
func facts(status *v1.PodStatus) (all []string) {
	for _, c := range status.Conditions {
		all = append(all, fmt.Sprintf("%s is %s", c.Type, c.Status))
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if c.RestartCount == 0 {
			all = append(all, fmt.Sprintf("%s is ready: %v, started: %v", c.Name, c.Ready, *c.Started))
		}
	}
	return all
}
