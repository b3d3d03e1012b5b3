package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func priority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

const vital = 2_000_000_000

// other is a pod that runs: its class of service is the first letter of its name, its sizes thousandths of a processor and Mi.
func other(name string, cpu, memory int, edits ...func(*v1.Pod)) *v1.Pod {
	return podOf(append([]func(*v1.Pod){named(name, types.UID(name)), func(p *v1.Pod) {
		l := amounts(list{"cpu": fmt.Sprint(cpu, "m"), "memory": fmt.Sprint(memory, "Mi")})
		r := &p.Spec.Containers[0].Resources
		switch name[0] {
		case 'g':
			r.Requests, r.Limits = l, l
		case 'b':
			r.Requests = l
		}
	}}, edits...)...)
}

// lacking are needs in thousandths of a processor, Mi and pods.
func lacking(cpu, memory, pods int64) (n needs) {
	for _, one := range []need{{v1.ResourceCPU, cpu}, {v1.ResourceMemory, memory << 20}, {v1.ResourcePods, pods}} {
		if one.amount > 0 {
			n = append(n, one)
		}
	}
	return n
}

func TestVictims(t *testing.T) {
	pod := podOf(priority(vital))
	e, b, b3 := other("e", 0, 0), other("b", 100, 100), other("b3", 300, 300)
	g, g3 := other("g", 100, 100), other("g3", 300, 300)
	cluster, node := other("b-cluster", 100, 100, priority(vital)), other("b-node", 100, 100, priority(vital+1000))
	for rule, c := range map[string]struct {
		pod    *v1.Pod
		others []*v1.Pod
		lacks  needs
		want   string // names, or what is missing
	}{
		"nothing is lacking":                                     {pod, []*v1.Pod{b}, nil, ""},
		"nobody is there":                                        {pod, nil, lacking(0, 0, 1), "[(res: pods, q: 1), ]"},
		"one has just what is lacking":                           {pod, []*v1.Pod{b}, lacking(100, 100, 1), "b"},
		"one has less, and what is still missing is said":        {pod, []*v1.Pod{b}, lacking(200, 50, 2), "[(res: cpu, q: 100), (res: pods, q: 1), ]"},
		"a best effort pod goes before a burstable one":          {pod, []*v1.Pod{b, e}, lacking(0, 0, 1), "e"},
		"a burstable one before a guaranteed one":                {pod, []*v1.Pod{g, b}, lacking(0, 0, 1), "b"},
		"a best effort pod has nothing to give but its place":    {pod, []*v1.Pod{e}, lacking(0, 1, 0), "[(res: memory, q: 1048576), ]"},
		"and is not ended in vain":                               {pod, []*v1.Pod{e, b3, b}, lacking(100, 100, 0), "b"},
		"of two that are enough the smaller goes":                {pod, []*v1.Pod{b3, b}, lacking(100, 100, 0), "b"},
		"a larger one before two small ones":                     {pod, []*v1.Pod{e, b, b3}, lacking(150, 150, 0), "b3"},
		"two of a class before one of a better":                  {pod, []*v1.Pod{e, b, b3, g, g3}, lacking(350, 350, 0), "b3 b"},
		"with a guaranteed one, a burstable one may be spared":   {pod, []*v1.Pod{e, b, b3, g, g3}, lacking(0, 550, 0), "b3 g3"},
		"two things may come from two pods":                      {pod, []*v1.Pod{other("b-cpu", 300, 1), other("b-memory", 1, 300)}, lacking(300, 300, 0), "b-cpu b-memory"},
		"of equals the one that came last":                       {pod, []*v1.Pod{other("b1", 100, 100), other("b2", 100, 100), other("b3", 100, 100)}, lacking(200, 0, 0), "b3 b2"},
		"critical pods stay":                                     {pod, []*v1.Pod{cluster}, lacking(100, 0, 0), "[(res: cpu, q: 100), ]"},
		"but for one that is more so":                            {podOf(priority(vital + 1000)), []*v1.Pod{cluster}, lacking(100, 0, 0), "b-cluster"},
		"never for one that is less so":                          {pod, []*v1.Pod{node}, lacking(100, 0, 0), "[(res: cpu, q: 100), ]"},
		"static pods stay":                                       {pod, []*v1.Pod{other("b", 100, 100, from("file"))}, lacking(100, 0, 0), "[(res: cpu, q: 100), ]"},
		"a static pod takes the place of others":                 {podOf(from("file")), []*v1.Pod{b, cluster}, lacking(100, 0, 0), "b"},
		"the class an API server wrote counts":                   {pod, []*v1.Pod{b, other("g", 100, 100, func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSBestEffort })}, lacking(100, 0, 0), "g"},
		"what a pod takes beside its containers is given back":   {pod, []*v1.Pod{other("e", 0, 0, func(p *v1.Pod) { p.Spec.Overhead = amounts(list{"cpu": "100m"}) })}, lacking(100, 0, 0), "e"},
		"sizes of the pod as a whole are those it gives back":    {pod, []*v1.Pod{other("e", 0, 0, whole("200m"), func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSBurstable }), b}, lacking(150, 0, 0), "e"},
		"an extended resource is one like the others":            {pod, []*v1.Pod{b, other("e", 0, 0, asks(list{"example.com/gpu": "1"}))}, needs{{"example.com/gpu", 1}}, "e"},
		"the whole list stays as it was, whoever is taken first": {pod, []*v1.Pod{e, b, g}, lacking(200, 0, 0), "b g"},
	} {
		t.Run(rule, func(t *testing.T) {
			before := slices.Clone(c.others)
			out, left := victims(c.pod, c.others, c.lacks)
			var names []string
			for _, uid := range out {
				names = append(names, string(uid))
			}
			got := strings.Join(names, " ")
			if len(left) > 0 {
				got += left.String()
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if !slices.Equal(before, c.others) {
				t.Error("the others were changed")
			}
		})
	}
}

func whole(cpu string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
	}
}

// Whatever runs: if ending all that may end is enough, those named are, without any that may not.
func TestVictimsAreEnough(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var others []*v1.Pod
		var all [3]int64
		for i := range r.IntN(8) {
			cpu, memory := r.IntN(5)*100, r.IntN(5)*100
			o := other(fmt.Sprint([]string{"e", "b", "g"}[r.IntN(3)], i), cpu, memory)
			if r.IntN(4) == 0 {
				priority(vital)(o)
			} else {
				c := candidate{requests: requests(o)}
				for i, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods} {
					all[i] += c.frees(name)
				}
			}
			others = append(others, o)
		}
		missing := lacking(r.Int64N(1000), r.Int64N(1000), r.Int64N(3))
		possible := true
		for _, n := range missing {
			possible = possible && n.amount <= all[map[v1.ResourceName]int{v1.ResourceCPU: 0, v1.ResourceMemory: 1, v1.ResourcePods: 2}[n.name]]
		}
		out, left := victims(podOf(priority(vital)), others, missing)
		var gone []candidate
		for _, uid := range out {
			o := others[slices.IndexFunc(others, func(o *v1.Pod) bool { return o.UID == uid })]
			if o.Spec.Priority != nil {
				t.Fatalf("%s is critical and to end", uid)
			}
			gone = append(gone, candidate{uid, requests(o)})
		}
		if rest := missing.without(gone); possible != (len(left) == 0) || possible && len(rest) > 0 {
			t.Fatalf("possible %v: named are %v, which leaves %s missing, and %s is said", possible, out, rest, left)
		}
	}
}

func TestCriticalPodsPreempt(t *testing.T) {
	big, small := other("b-big", 1500, 100), other("b-small", 500, 100)
	for rule, c := range map[string]struct {
		pod    *v1.Pod
		others []*v1.Pod
		node   func() *v1.Node
		want   string // reason
		says   string // the whole message, when not empty
		ends   string
	}{
		"others make room":           {podOf(priority(vital), asks(list{"cpu": "1"})), []*v1.Pod{big, small}, nodeOf(), "OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 2000, capacity: 2000", "b-big"},
		"one makes its place":        {podOf(priority(vital)), []*v1.Pod{big, small, other("e", 0, 0)}, nodeOf(), "OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3", "e"},
		"a static pod":               {podOf(from("file"), asks(list{"cpu": "500m"})), []*v1.Pod{big, small}, nodeOf(), "OutOfcpu", "", "b-small"},
		"any other pod":              {podOf(priority(vital-1), asks(list{"cpu": "1"})), []*v1.Pod{big, small}, nodeOf(), "OutOfcpu", "", ""},
		"there is room":              {podOf(priority(vital), asks(list{"cpu": "500m"})), []*v1.Pod{big}, nodeOf(), "", "", ""},
		"the place, and a processor": {podOf(priority(vital), asks(list{"cpu": "200m"})), []*v1.Pod{big, small, other("e", 0, 0)}, nodeOf(), "OutOfpods", "", "b-small"},
		"the node is too small": {
			podOf(priority(vital), asks(list{"cpu": "3"})),
			[]*v1.Pod{big},
			nodeOf(), "UnexpectedAdmissionError",
			"Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: " +
				"no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]", "",
		},
		"nobody may end": {podOf(priority(vital), asks(list{"cpu": "1"})), []*v1.Pod{other("b", 1500, 1, from("file"))}, nodeOf(), "UnexpectedAdmissionError", "", ""},
		"it does not belong here, room or not": {
			podOf(priority(vital), asks(list{"cpu": "1"}), func(p *v1.Pod) { p.Spec.NodeName = "n2" }),
			[]*v1.Pod{big, small},
			nodeOf(),
			"NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name", "",
		},
		"any other pod that does not belong here": {
			podOf(asks(list{"cpu": "1"}), func(p *v1.Pod) { p.Spec.NodeName = "n2" }), []*v1.Pod{big, small}, nodeOf(), "OutOfcpu", "", "",
		},
		"a port that is taken is not given up": {podOf(priority(vital), port(80, "", "")), []*v1.Pod{podOf(named("o", "o"), port(80, "", ""))}, nodeOf(), "NodePorts", "", ""},
		"the pod itself is not in its own way": {
			podOf(priority(vital), asks(list{"cpu": "2"})), []*v1.Pod{podOf(priority(vital), asks(list{"cpu": "1"})), small}, nodeOf(), "OutOfcpu", "", "b-small",
		},
	} {
		t.Run(rule, func(t *testing.T) {
			err := Fit{Node: c.node}.Admit(t.Context(), c.pod, c.others)
			got, says := reason(t, err)
			var ends []string
			if err != nil {
				for _, uid := range err.(*runtime.Rejection).Instead { //nolint:errorlint // reason has asked
					ends = append(ends, string(uid))
				}
			}
			if got != c.want || c.says != "" && says != c.says || strings.Join(ends, " ") != c.ends {
				t.Errorf("%q %q and ends %v, want %q %q and %s", got, says, ends, c.want, c.says, c.ends)
			}
		})
	}
}

func BenchmarkVictims(b *testing.B) {
	var others []*v1.Pod
	for i := range 110 {
		others = append(others, other(fmt.Sprint("b", i), 1, 1))
	}
	pod := podOf(priority(vital))
	for b.Loop() {
		victims(pod, others, lacking(110, 0, 0))
	}
}
