package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// sizes are "request limit request limit" of cpu, in thousandths, and memory, in bytes; 0 is nothing said.
func sizes(words string) v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for i, w := range strings.Fields(words) {
		list, name, unit := r.Requests, v1.ResourceCPU, "m"
		if i%2 == 1 {
			list = r.Limits
		}
		if i > 1 {
			name, unit = v1.ResourceMemory, ""
		}
		if w != "0" {
			list[name] = resource.MustParse(w + unit)
		}
	}
	return r
}

func applied(words string) runtime.Sizes {
	pod := podOf(always, "x")
	pod.Spec.Containers[0].Resources = sizes(words)
	return SizesOf(pod, &pod.Spec.Containers[0])
}

func (p Plan) updates() (out []string) {
	for _, a := range p.Stops {
		out = append(out, a.Verb.String()+" "+a.Container)
	}
	for _, a := range p.Actions {
		w := a.Verb.String() + " " + a.Container
		if a.Verb == UpdateContainer {
			w += " " + string(a.Resource)
			if a.Less {
				w += " less"
			}
		}
		out = append(out, w)
	}
	return out
}

func TestResize(t *testing.T) {
	restart := func(r v1.ResourceName) func(*v1.Pod) {
		return func(p *v1.Pod) {
			for _, c := range specContainers(p) {
				c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: r, RestartPolicy: v1.RestartContainer}}
			}
		}
	}
	running := []string{"sandbox:ready", "a:running", "b:running"}
	for _, tt := range []struct {
		rule     string
		spec     map[string]string // "request limit request limit" of cpu and memory
		has      map[string]string // the same; not in it: not known
		seen     []string
		edit     func(*v1.Pod)
		want     []string
		resizing bool
	}{
		{rule: "the same sizes: nothing to do", spec: map[string]string{"a": "1 2 3 4"}, has: map[string]string{"a": "1 2 3 4"}},
		{rule: "what was given is not known: nothing to do", spec: map[string]string{"a": "1 2 3 4"}},
		{rule: "more CPU", spec: map[string]string{"a": "1 3 0 0"}, has: map[string]string{"a": "1 2 0 0"}, want: []string{"update a cpu"}, resizing: true},
		{rule: "c165: a request alone", spec: map[string]string{"a": "300 0 0 0"}, has: map[string]string{"a": "200 0 0 0"}, want: []string{"update a cpu"}, resizing: true},
		{rule: "c165: a memory request alone", spec: map[string]string{"a": "0 0 9 0"}, has: map[string]string{"a": "0 0 7 0"}, want: []string{"update a memory"}, resizing: true},
		{rule: "memory before CPU, less before more", spec: map[string]string{"a": "2 2 9 9", "b": "1 1 3 3"}, has: map[string]string{"a": "1 1 5 5", "b": "2 2 4 4"}, want: []string{"update b memory less", "update a memory", "update b cpu less", "update a cpu"}, resizing: true},
		{rule: "the limit says whether it is more", spec: map[string]string{"a": "3 1 0 0"}, has: map[string]string{"a": "2 2 0 0"}, want: []string{"update a cpu less"}, resizing: true},
		{rule: "a limit where there was none", spec: map[string]string{"a": "0 0 1 4"}, has: map[string]string{"a": "0 0 1 0"}, want: []string{"update a memory"}, resizing: true},
		{rule: "a policy of restarting", spec: map[string]string{"a": "1 1 1 1"}, has: map[string]string{"a": "1 1 2 1"}, edit: restart(v1.ResourceMemory), want: []string{"stop a", "start a"}, resizing: true},
		{rule: "a policy for another resource", spec: map[string]string{"a": "1 1 1 1"}, has: map[string]string{"a": "1 1 2 1"}, edit: restart(v1.ResourceCPU), want: []string{"update a memory less"}, resizing: true},
		{rule: "restart for one of two resources", spec: map[string]string{"a": "1 1 1 1", "b": "1 1 0 0"}, has: map[string]string{"a": "2 1 2 1", "b": "2 1 0 0"}, edit: restart(v1.ResourceMemory), want: []string{"stop a", "update b cpu less", "start a"}, resizing: true},
		{rule: "what has ended starts with the new sizes", spec: map[string]string{"a": "1 1 1 1"}, has: map[string]string{"a": "2 1 2 1"}, seen: []string{"sandbox:ready", "a:exited", "b:running"}, want: []string{"start a"}},
		{rule: "what runs in an older sandbox is stopped anyway", spec: map[string]string{"a": "1 1 1 1"}, has: map[string]string{"a": "2 1 2 1"}, seen: []string{"sandbox#1:ready", "a:running/old", "b:running"}, want: []string{"stop a"}, resizing: true},
		{rule: "a sidecar", spec: map[string]string{"side": "2 0 0 0"}, has: map[string]string{"side": "1 0 0 0"}, seen: []string{"sandbox:ready", "side:running", "a:running", "b:running"}, want: []string{"update side cpu"}, resizing: true},
		{rule: "a sidecar that restarts", spec: map[string]string{"side": "2 0 0 0"}, has: map[string]string{"side": "1 0 0 0"}, seen: []string{"sandbox:ready", "side:running", "a:running", "b:running"}, edit: restart(v1.ResourceCPU), want: []string{"stop side", "start side"}, resizing: true},
		{rule: "an init container that runs", spec: map[string]string{"init": "2 0 0 0"}, has: map[string]string{"init": "1 0 0 0"}, seen: []string{"sandbox:ready", "init:running"}, want: []string{"update init cpu"}, resizing: true},
		{rule: "the pod's limit is that of a container without one", spec: map[string]string{"a": "0 0 0 0", "b": "0 3 0 0"}, has: map[string]string{"a": "0 5 0 0", "b": "0 3 0 0"}, edit: func(p *v1.Pod) {
			p.Spec.Resources = new(sizes("0 7 0 0"))
		}, want: []string{"update a cpu"}, resizing: true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			names := []string{"a", "b"}
			for n := range tt.spec {
				if n != "a" && n != "b" {
					names = append([]string{n}, names...)
				}
			}
			pod := podOf(onFailure, names...)
			seen := look(append(append([]string(nil), tt.seen...), running[:min(len(running), 3*max(0, 1-len(tt.seen)))]...)...)
			seen.Applied = map[string]runtime.Sizes{}
			for n, words := range tt.spec {
				c, _ := Find(pod, n)
				c.Resources = sizes(words)
				if has, known := tt.has[n]; known {
					seen.Applied[n] = applied(has)
				}
			}
			if tt.edit != nil {
				tt.edit(pod)
			}
			for i := range seen.Containers { // what has ended, ended badly
				seen.Containers[i].ExitCode = 1
			}
			if diff := cmp.Diff(tt.want, Sync(Input{Pod: pod, Seen: seen, Now: t0}).updates()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got := Resizing(pod, seen); got != tt.resizing {
				t.Errorf("resizing %v, want %v", got, tt.resizing)
			}
			for n := range tt.spec { // carried out, there is nothing more to do
				c, _ := Find(pod, n)
				seen.Applied[n] = SizesOf(pod, c)
			}
			if Resizing(pod, seen) {
				t.Error("resizes for ever")
			}
		})
	}
	if s := fmt.Sprint(UpdateContainer); s != "update" {
		t.Error(s)
	}
}
