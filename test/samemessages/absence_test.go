package samemessages

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/podcases"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/test/agent"
)

// absence is a pod, and what happens to it while no agent runs.
type absence struct {
	name    string
	policy  v1.RestartPolicy
	change  func(*v1.PodSpec)
	happens func(*stage, *v1.Pod)
}

func absences() []absence {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	exits := func(code int32) func(*stage, *v1.Pod) {
		return func(s *stage, p *v1.Pod) { must(s.t, s.engine.Exit(s.engine.Newest(p.UID, "c"), code)) }
	}
	edit := func(f func(*v1.Pod)) func(*stage, *v1.Pod) {
		return func(s *stage, p *v1.Pod) {
			has, _ := apifake.Get(s.api, p)
			f(has)
			s.api.Put(has)
		}
	}
	init := func(p *v1.PodSpec) {
		p.InitContainers = []v1.Container{{Name: "i", Image: "busybox:1", ImagePullPolicy: v1.PullIfNotPresent}}
	}
	sidecar := func(p *v1.PodSpec) {
		init(p)
		p.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
	sandbox := func(s *stage, p *v1.Pod) string {
		all, _ := s.engine.Truth()
		i := slices.IndexFunc(all, func(b runtime.Sandbox) bool { return b.UID == p.UID })
		return all[i].ID
	}
	return []absence{
		{"nothing", always, nil, func(*stage, *v1.Pod) {}},
		{"fails-always", always, nil, exits(3)},
		{"ends-always", always, nil, exits(0)},
		{"fails-on-failure", onFailure, nil, exits(3)},
		{"ends-on-failure", onFailure, nil, exits(0)},
		{"fails-never", never, nil, exits(3)},
		{"ends-never", never, nil, exits(0)},
		{"ends-beside-another", never, func(p *v1.PodSpec) {
			p.Containers = append(p.Containers, v1.Container{Name: "d", Image: "busybox:1", ImagePullPolicy: v1.PullIfNotPresent})
		}, exits(0)},
		{"ends-beside-a-sidecar", never, sidecar, exits(0)},
		{"sidecar-ends", always, sidecar, func(s *stage, p *v1.Pod) { must(s.t, s.engine.Exit(s.engine.Newest(p.UID, "i"), 1)) }},
		{"sandbox-ends", always, nil, func(s *stage, p *v1.Pod) { s.engine.EndSandbox(sandbox(s, p)) }},
		{"sandbox-ends-never", never, nil, func(s *stage, p *v1.Pod) { s.engine.EndSandbox(sandbox(s, p)) }},
		{"sandbox-ends-with-init", always, init, func(s *stage, p *v1.Pod) { s.engine.EndSandbox(sandbox(s, p)) }},
		{"sandbox-goes", always, init, func(s *stage, p *v1.Pod) { must(s.t, s.engine.RemoveSandbox(s.t.Context(), sandbox(s, p))) }},
		{"sandbox-goes-never", never, nil, func(s *stage, p *v1.Pod) { must(s.t, s.engine.RemoveSandbox(s.t.Context(), sandbox(s, p))) }},
		{"container-goes", always, init, func(s *stage, p *v1.Pod) {
			must(s.t, s.engine.RemoveContainer(s.t.Context(), s.engine.Newest(p.UID, "c")))
		}},
		{"init-container-goes", always, init, func(s *stage, p *v1.Pod) {
			must(s.t, s.engine.RemoveContainer(s.t.Context(), s.engine.Newest(p.UID, "i")))
		}},
		{"is-deleted", always, nil, func(s *stage, p *v1.Pod) { s.api.Delete(p) }},
		{"is-deleted-and-ended", always, nil, func(s *stage, p *v1.Pod) { exits(3)(s, p); s.api.Delete(p) }},
		{"is-removed", always, nil, func(s *stage, p *v1.Pod) { s.api.Remove(p) }},
		{"image-changes", always, nil, edit(func(p *v1.Pod) { p.Spec.Containers[0].Image = "number:1"; p.Generation++ })},
		{"init-image-changes", always, init, edit(func(p *v1.Pod) { p.Spec.InitContainers[0].Image = "number:1"; p.Generation++ })},
		{"deadline-comes", always, nil, edit(func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)); p.Generation++ })},
		{"labels-change", always, nil, edit(func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} })},
	}
}

func (a absence) pod() *v1.Pod {
	p := guest{name: a.name}.pod(0)
	p.Spec.RestartPolicy = a.policy
	p.Spec.TerminationGracePeriodSeconds = new(int64(3))
	if a.change != nil {
		a.change(&p.Spec)
	}
	return p
}

// What happens while no agent runs both agents find in the same way, do the same about it, and tell the same.
func TestSameAfterAbsence(t *testing.T) {
	kubelet := upstream(t)
	all := absences()
	cases := make([]*podcases.Case, 0, len(all))
	for _, a := range all {
		cases = append(cases, &podcases.Case{Name: a.name, Pod: a.pod()})
	}
	both := make([]*stage, 2)
	var texts [2]map[string]string
	t.Run("agents", func(t *testing.T) {
		both[0], both[1] = setUp(t, kubelet, nil, cases), setUp(t, agent.Program(t), nil, cases)
		for _, s := range both {
			s.playScripts()
			s.give(cases)
		}
		for name, d := range both[0].until(t, both[1], cases, *patience/6) {
			t.Errorf("%s: before it the kubelet (-) and nodeagent (+) differ:\n%s", name, d)
		}
		since := [2]int{}
		for i, s := range both {
			s.kill()
			since[i] = s.record.Moment()
			for _, a := range all {
				a.happens(s, a.pod())
			}
			s.start()
		}
		for start := time.Now(); ; time.Sleep(500 * time.Millisecond) {
			same := true
			for i, s := range both {
				texts[i] = map[string]string{}
				for _, a := range all {
					texts[i][a.name] = s.afterwards(t, a.pod(), since[i])
				}
			}
			for _, a := range all {
				if a.name == "is-removed" { // the kubelet knows no grace of a pod that nobody knows: docs/differences.md
					texts[0][a.name] = strings.Replace(texts[0][a.name], "stopped: c within 2 s\n", "stopped: c within 3 s\n", 1)
				}
				same = same && texts[0][a.name] == texts[1][a.name]
			}
			if same && time.Since(start) > *patience/36 || time.Since(start) > *patience/3 {
				return
			}
		}
	})
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			if *keep != "" {
				must(t, os.WriteFile(filepath.Join(*keep, a.name+".kubelet"), []byte(texts[0][a.name]), 0o644))
				must(t, os.WriteFile(filepath.Join(*keep, a.name+".nodeagent"), []byte(texts[1][a.name]), 0o644))
			}
			if d := diff(t, texts[0][a.name], texts[1][a.name]); d != "" {
				t.Errorf("the kubelet (-) and nodeagent (+) differ:\n%s", d)
			}
		})
	}
}

// afterwards is what was done about a pod after a moment, and how it is told to be.
func (s *stage) afterwards(t *testing.T, p *v1.Pod, since int) string {
	t.Helper()
	var out strings.Builder
	fmt.Fprintf(&out, "made: %v\n", s.record.Made(p.Namespace, p.Name, since))
	for _, stop := range s.record.Stops(p.Namespace, p.Name, since) {
		fmt.Fprintf(&out, "stopped: %s within %d s\n", stop.Container, stop.Timeout)
	}
	_, containers := s.engine.Truth()
	for _, c := range containers {
		if c.Pod.UID == p.UID && c.State == runtime.Running {
			fmt.Fprintf(&out, "runs: %s\n", c.Name)
		}
	}
	has, ok := apifake.Get(s.api, p)
	if !ok {
		return out.String() + "it is gone\n"
	}
	status := has.Status.DeepCopy()
	status.StartTime, status.PodIP, status.PodIPs, status.Resources = nil, "", nil, nil
	timeless(status)
	text, err := yaml.Marshal(status)
	must(t, err)
	return out.String() + string(text)
}
