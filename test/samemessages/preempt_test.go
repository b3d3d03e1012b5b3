package samemessages

import (
	"cmp"
	"fmt"
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
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/test/agent"
)

const systemCritical = 2_000_000_000

// guest is a pod that wants a part of a node's processors.
type guest struct {
	name       string
	percent    int64 // of the processors that can be had
	guaranteed bool
	critical   bool
	becomes    v1.PodPhase
}

func (g guest) pod(cpu int64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: g.name, Namespace: "default", UID: types.UID("uid-" + g.name)}}
	p.Spec = v1.PodSpec{
		NodeName: node, RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault, EnableServiceLinks: new(false),
		SecurityContext: &v1.PodSecurityContext{}, TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []v1.Container{{Name: "c", Image: "busybox:1", ImagePullPolicy: v1.PullIfNotPresent}},
	}
	r := &p.Spec.Containers[0].Resources
	if g.percent > 0 {
		r.Requests = v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(cpu*g.percent/100, resource.DecimalSI)}
	}
	if g.guaranteed {
		r.Requests[v1.ResourceMemory] = resource.MustParse("1Mi")
		r.Limits = r.Requests
	}
	if g.critical {
		p.Spec.Priority, p.Spec.PriorityClassName = new(int32(systemCritical)), "system-cluster-critical"
	}
	return p
}

// Both agents have the same pods end for critical ones that lack room, and say the same of it.
func TestSamePreemption(t *testing.T) {
	const runs, fails = v1.PodRunning, v1.PodFailed
	rounds := []struct {
		come  []guest
		falls []string // those that have come before, and end for them
	}{
		{come: []guest{{name: "best", becomes: runs}, {name: "small", percent: 10, becomes: runs}, {name: "big", percent: 50, becomes: runs}, {name: "sure", percent: 30, guaranteed: true, becomes: runs}, {name: "keep", critical: true, becomes: runs}}},
		{come: []guest{{name: "alike", percent: 45, becomes: fails}}},
		{come: []guest{{name: "vital-one", percent: 45, critical: true, becomes: runs}}, falls: []string{"big"}},
		{come: []guest{{name: "vital-two", percent: 50, critical: true, becomes: runs}}, falls: []string{"small", "sure"}},
		{come: []guest{{name: "stays-one", critical: true, becomes: runs}, {name: "stays-two", critical: true, becomes: runs}}},
		{come: []guest{{name: "vital-three", critical: true, becomes: runs}}, falls: []string{"best"}},
		{come: []guest{{name: "vital-four", percent: 80, critical: true, becomes: fails}, {name: "nobody", becomes: fails}}},
	}
	kubelet := upstream(t)
	settings := map[string]any{"maxPods": 6}
	var theirs, ours *stage
	t.Run("agents", func(t *testing.T) {
		theirs, ours = setUp(t, kubelet, settings, nil), setUp(t, agent.Program(t), settings, nil)
		var both sync.WaitGroup
		for _, s := range []*stage{theirs, ours} {
			// The kubelet tells of one that ends well that it has succeeded, whatever it was ended for.
			s.engine.Behave = func(*runtime.ContainerConfig) runtimetest.Behavior { return runtimetest.Behavior{StopCode: 143} }
			both.Go(func() {
				cpu := s.processors()
				for _, round := range rounds {
					for _, g := range round.come {
						s.api.Put(g.pod(cpu))
						s.becomes(g.name, g.becomes)
					}
					for _, name := range round.falls {
						s.becomes(name, v1.PodFailed)
						s.told(name)
					}
				}
			})
		}
		both.Wait()
	})
	want, got := theirs.fates(), ours.fates()
	if diff := diff(t, want, got); diff != "" {
		t.Errorf("the kubelet (-) and nodeagent (+) differ:\n%s", diff)
	}
}

// processors are those that pods can have, in thousandths, once the node says so.
func (s *stage) processors() int64 {
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if n, ok := apifake.Get(s.api, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); ok && n.Status.Allocatable.Cpu().MilliValue() > 0 {
			return n.Status.Allocatable.Cpu().MilliValue()
		}
	}
	s.t.Error("the node does not say what it has")
	return 1000
}

func (s *stage) becomes(name string, phase v1.PodPhase) {
	var is *v1.Pod
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if is, _ = apifake.Get(s.api, guest{name: name}.pod(0)); is != nil && is.Status.Phase == phase {
			return
		}
	}
	s.t.Errorf("pod %s does not become %s: %+v", name, phase, is.Status)
}

// told waits until people have been told that a pod ends for another.
func (s *stage) told(name string) {
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if slices.ContainsFunc(s.preemptions(), func(e *v1.Event) bool { return e.InvolvedObject.Name == name }) {
			return
		}
	}
	s.t.Errorf("nobody is told why %s ends", name)
}

func (s *stage) preemptions() []*v1.Event {
	return slices.DeleteFunc(apifake.All[*v1.Event](s.api), func(e *v1.Event) bool { return e.Reason != "Preempting" })
}

// fates are how all pods are, and what people were told of those that ended for others.
func (s *stage) fates() string {
	var out []string
	for _, p := range apifake.All[*v1.Pod](s.api) {
		line := fmt.Sprintf("%s: %s %s %s", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
		for _, c := range p.Status.Conditions {
			if c.Type == v1.DisruptionTarget {
				line += fmt.Sprintf("; %s %s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
		}
		out = append(out, line)
	}
	for _, e := range s.preemptions() {
		out = append(out, fmt.Sprintf("%s: event %s %s: %s", e.InvolvedObject.Name, e.Type, e.Reason, e.Message))
	}
	slices.SortFunc(out, cmp.Compare)
	return strings.Join(out, "\n") + "\n"
}
