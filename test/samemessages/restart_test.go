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

// restarted kills both agents and starts them again, and says of each pod that is calm what differs then: what is made anew, what
// is told on the way, and how it is in the end.
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
	cases = slices.DeleteFunc(slices.Clone(cases), func(c *podcases.Case) bool {
		return neverStarts(c.Pod) || s.restarts(c) || other.restarts(c) // each agent has its own rhythm
	})
	differ := s.until(t, other, cases, *patience/6)
	for _, c := range cases {
		var is [2]string
		var was [2][]string
		for i, a := range both {
			pod, _ := apifake.Get(a.api, c.Pod)
			is[i] = "made: " + strings.Join(a.record.Made(c.Pod.Namespace, c.Pod.Name, since[i]), ", ") + "\nfiles:\n" + a.files(t, c, false)
			was[i] = heard[i].meanwhile(pod)
		}
		differ[c.Name] += diff(t, is[0], is[1])
		for _, f := range was[1] {
			if !slices.Contains(was[0], f) { // the kubelet tells now and then that what is ready was not
				differ[c.Name] += "only nodeagent tells meanwhile: " + f + "\n"
			}
		}
	}
	return differ
}

// restarts says that a container of a pod ends again and again.
func (s *stage) restarts(c *podcases.Case) bool {
	pod, _ := apifake.Get(s.api, c.Pod)
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(cs v1.ContainerStatus) bool { return cs.RestartCount > 0 })
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
func (l *told) meanwhile(p *v1.Pod) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := facts(&p.Status)
	return slices.DeleteFunc(slices.Clone(l.was[p.Namespace+"/"+p.Name]), func(f string) bool { return slices.Contains(is, f) })
}

// facts are what a status says of conditions and containers.
func facts(status *v1.PodStatus) (all []string) {
	for _, c := range status.Conditions {
		if c.Status != "" { // else it says only since when
			all = append(all, fmt.Sprintf("%s is %s", c.Type, c.Status))
		}
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		all = append(all, fmt.Sprintf("%s is ready: %v, started: %v", c.Name, c.Ready, *c.Started))
	}
	return all
}
