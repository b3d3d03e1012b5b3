package samemessages

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/podcases"
	"github.com/kubeletkit/kubeletkit/test/agent"
)

// amounts reads request and limit of CPU, then of memory.
func amounts(cpu, cpuMax, memory, memoryMax string) v1.ResourceRequirements {
	list := func(cpu, memory string) v1.ResourceList {
		out := v1.ResourceList{}
		for name, amount := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if amount != "" {
				out[name] = resource.MustParse(amount)
			}
		}
		return out
	}
	return v1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(cpuMax, memoryMax)}
}

// resized is a pod that gets other sizes while it runs.
type resized struct {
	name     string
	was, is  []v1.ResourceRequirements // of its containers
	overhead v1.ResourceList
}

func (r resized) pod(sizes []v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: r.name, Namespace: "default", UID: types.UID("uid-" + r.name)}}
	p.Spec = v1.PodSpec{
		NodeName: node, RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault, EnableServiceLinks: new(false),
		SecurityContext: &v1.PodSecurityContext{}, TerminationGracePeriodSeconds: new(int64(1)), Overhead: r.overhead,
	}
	for i, s := range sizes {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: string(rune('a' + i)), Image: "busybox:1", ImagePullPolicy: v1.PullIfNotPresent, Resources: s})
	}
	return p
}

// Both agents tell a runtime the same of new sizes of containers, in the same order. The kubelet tells of the sandbox step by
// step; our agent does so once, and ends with the same.
func TestSameUpdates(t *testing.T) {
	kubelet := upstream(t)
	type sizes = []v1.ResourceRequirements
	pods := []resized{
		{name: "more-cpu", was: sizes{amounts("10m", "20m", "10Mi", "20Mi")}, is: sizes{amounts("20m", "40m", "10Mi", "20Mi")}},
		{name: "more-memory", was: sizes{amounts("10m", "20m", "10Mi", "20Mi")}, is: sizes{amounts("10m", "20m", "20Mi", "40Mi")}},
		{name: "more-of-both", was: sizes{amounts("10m", "20m", "10Mi", "20Mi")}, is: sizes{amounts("20m", "40m", "20Mi", "40Mi")}},
		{name: "less-cpu", was: sizes{amounts("20m", "40m", "20Mi", "40Mi")}, is: sizes{amounts("10m", "20m", "20Mi", "40Mi")}},
		{name: "only-requests", was: sizes{amounts("10m", "40m", "10Mi", "40Mi")}, is: sizes{amounts("20m", "40m", "20Mi", "40Mi")}},
		{
			name: "one-less-one-more", was: sizes{amounts("20m", "40m", "", ""), amounts("10m", "20m", "", "")},
			is: sizes{amounts("10m", "20m", "", ""), amounts("20m", "40m", "", "")},
		},
		{name: "guaranteed", was: sizes{amounts("10m", "10m", "10Mi", "10Mi")}, is: sizes{amounts("20m", "20m", "20Mi", "20Mi")}},
		{
			name: "with-overhead", was: sizes{amounts("10m", "20m", "10Mi", "20Mi")}, is: sizes{amounts("20m", "40m", "10Mi", "20Mi")},
			overhead: v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m"), v1.ResourceMemory: resource.MustParse("10Mi")},
		},
	}
	cases := make([]*podcases.Case, 0, len(pods))
	for _, r := range pods {
		cases = append(cases, &podcases.Case{Name: r.name, Pod: r.pod(r.was)})
	}
	var theirs, ours *stage
	t.Run("agents", func(t *testing.T) {
		theirs, ours = setUp(t, kubelet, nil, cases), setUp(t, agent.Program(t), nil, cases)
		var both sync.WaitGroup
		for _, s := range []*stage{theirs, ours} {
			s.give(cases)
			both.Go(func() {
				s.wait(t.Context(), cases)
				s.resize(pods)
			})
		}
		both.Wait()
	})
	for _, r := range pods {
		t.Run(r.name, func(t *testing.T) {
			want, errWant := theirs.record.Updates("default", r.name)
			got, errGot := ours.record.Updates("default", r.name)
			must(t, errWant)
			must(t, errGot)
			if want == "" {
				t.Error("the kubelet told nothing")
			}
			want, wantSandbox := apart(want)
			got, gotSandbox := apart(got)
			if diff := diff(t, want, got); diff != "" {
				t.Errorf("the kubelet (-) and nodeagent (+) differ:\n%s", diff)
			}
			if diff := diff(t, wantSandbox, gotSandbox); diff != "" && wantSandbox != "" {
				t.Errorf("the kubelet (-) and nodeagent (+) differ about the sandbox:\n%s", diff)
			}
		})
	}
}

// apart is what was told of containers, and what was told of the sandbox at last.
func apart(text string) (containers, sandbox string) {
	for part := range strings.SplitSeq(text, "--- # ") {
		if sizes, ok := strings.CutPrefix(part, "sizes of the sandbox\n"); ok {
			sandbox = sizes
			continue
		}
		containers += part
	}
	return containers, sandbox
}

// resize gives the pods their new sizes, and waits until the agent has told that they have them.
func (s *stage) resize(pods []resized) {
	deadline := time.Now().Add(5 * time.Minute)
	for _, r := range pods { // the agent has seen its containers run
		s.comesTo(deadline, r, func(p *v1.Pod) bool {
			return len(p.Status.ContainerStatuses) == len(r.was) && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.State.Running == nil })
		})
	}
	for _, r := range pods {
		has, ok := apifake.Get(s.api, r.pod(r.was))
		if !ok {
			s.t.Errorf("pod %s is gone", r.name)
			return
		}
		has.Spec.Containers = r.pod(r.is).Spec.Containers
		has.Generation++
		s.api.Put(has)
	}
	for _, r := range pods {
		s.comesTo(deadline, r, func(p *v1.Pod) bool { return done(p, r.is) })
	}
}

// comesTo waits until a pod is told to be as wanted.
func (s *stage) comesTo(deadline time.Time, r resized, ok func(*v1.Pod) bool) {
	for {
		has, known := apifake.Get(s.api, r.pod(r.was))
		if known && ok(has) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("pod %s is there: %v, and has %+v", r.name, known, has)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func done(p *v1.Pod, sizes []v1.ResourceRequirements) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizeInProgress || c.Type == v1.PodResizePending {
			return false
		}
	}
	for i, c := range p.Status.ContainerStatuses {
		cpu, memory := sizes[i].Requests.Cpu(), sizes[i].Requests.Memory()
		if c.Resources == nil || c.Resources.Requests.Cpu().Cmp(*cpu) != 0 || c.Resources.Requests.Memory().Cmp(*memory) != 0 {
			return false
		}
	}
	return len(p.Status.ContainerStatuses) == len(sizes)
}
