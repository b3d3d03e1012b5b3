package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestTwoImplementationsAgree compares plans with those of a second implementation, which knows nothing of the first: it is
// written from the rules one after the other, and takes no care of cost or order.
func TestTwoImplementationsAgree(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for i := range uint64(20_000) {
			seeds = append(seeds, i+1)
		}
	}
	for _, s := range seeds {
		r := rand.New(rand.NewPCG(s, 2))
		in := situation(r)
		ruled(r, &in)
		if diff := cmp.Diff(naive(in).words(), outline(Sync(in)).words()); diff != "" {
			t.Fatalf("seed %d (-naive +plan)\n%s\nplan %v", s, diff, Sync(in).words())
		}
	}
}

// ruled gives containers policies and rules of their own, waits after crashes, and other sandboxes.
func ruled(r *rand.Rand, in *Input) {
	in.Backoff = map[string]Backoff{}
	for _, c := range specContainers(in.Pod) {
		if r.IntN(2) == 0 {
			in.Backoff[c.Name] = Backoff{
				Delay: BackoffFirst << r.IntN(6), Key: backoffKey(c), Updated: t0.Add(-time.Duration(r.IntN(5000)) * time.Second),
			}
		}
		if InitKind(c) == Sidecar || r.IntN(2) == 0 {
			continue
		}
		c.RestartPolicy = new([]v1.ContainerRestartPolicy{v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure}[r.IntN(2)])
		for range r.IntN(3) {
			c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
				Action: []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers}[r.IntN(2)],
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
					Operator: []v1.ContainerRestartRuleOnExitCodesOperator{v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn}[r.IntN(2)],
					Values:   []int32{int32(r.IntN(3))},
				},
			})
		}
	}
}

// sketch is what a plan comes to.
type sketch struct {
	sandbox        bool            // a new one
	stops, removes map[string]bool // by ID
	starts         map[string]int  // by name: the number of the instance, begun now or later
	waits          map[string]bool // by name
}

func newSketch() sketch {
	return sketch{stops: map[string]bool{}, removes: map[string]bool{}, starts: map[string]int{}, waits: map[string]bool{}}
}

func (s sketch) words() (out []string) {
	if s.sandbox {
		out = append(out, "new sandbox")
	}
	for _, id := range slices.Sorted(maps.Keys(s.stops)) {
		out = append(out, "stop "+id)
	}
	for _, id := range slices.Sorted(maps.Keys(s.removes)) {
		out = append(out, "remove "+id)
	}
	for _, name := range slices.Sorted(maps.Keys(s.starts)) {
		out = append(out, fmt.Sprintf("start %s#%d, later: %v", name, s.starts[name], s.waits[name]))
	}
	return out
}

// outline is the sketch of a plan. What it removes for the sake of order is left out, but for the reset of all containers.
func outline(p Plan) sketch {
	s := newSketch()
	for _, a := range p.Stops {
		s.stops[a.ID] = true
	}
	starts := slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Verb == StartContainer || a.Verb == RunSandbox }) || len(p.Waiting) > 0
	for _, a := range p.Actions {
		switch {
		case a.Verb == RunSandbox:
			s.sandbox = true
		case a.Verb == StartContainer:
			s.starts[a.Container] = int(a.Attempt)
		case a.Verb == RemoveContainer && !starts:
			s.removes[a.ID] = true
		}
	}
	for name := range p.Waiting {
		s.starts[name], s.waits[name] = -1, true
	}
	return s
}

// naive is the second implementation.
func naive(in Input) sketch {
	s := newSketch()
	runs := func(c runtime.Container) bool { return c.State == runtime.Running || c.State == runtime.Unknown }
	newest := func(name, sandbox string) *runtime.Container {
		for i, c := range in.Seen.Containers {
			if c.Name == name && (sandbox == "" || c.SandboxID == sandbox) {
				return &in.Seen.Containers[i]
			}
		}
		return nil
	}
	stopAll := func() {
		for _, c := range in.Seen.Containers {
			if runs(c) {
				s.stops[c.ID] = true
			}
		}
		for _, b := range in.Seen.Sandboxes {
			s.stops[b.ID] = true
		}
	}
	start := func(c *v1.Container) {
		s.starts[c.Name] = 0
		if n := newest(c.Name, ""); n != nil {
			s.starts[c.Name] = n.Restarts + 1
		}
		if naiveWaits(in, c.Name) {
			s.starts[c.Name], s.waits[c.Name] = -1, true
		}
	}

	ready := 0
	for _, b := range in.Seen.Sandboxes {
		if b.Ready {
			ready++
		}
	}
	if ready != 1 || !in.Seen.Sandboxes[0].Ready || len(in.Seen.Sandboxes[0].IPs) == 0 {
		switch {
		case len(in.Seen.Sandboxes) == 0:
			naiveBegin(in, &s, newest, stopAll, start)
		case naiveReset(in, &s, in.Seen.Sandboxes[0].ID, newest, runs):
		default:
			for _, c := range naiveAsking(in, in.Seen.Sandboxes[0].ID, newest) {
				start(c) // later, and all begins with it
			}
			if len(s.waits) == 0 {
				naiveBegin(in, &s, newest, stopAll, start)
			}
		}
		return s
	}
	box := in.Seen.Sandboxes[0].ID

	for _, c := range in.Seen.Containers {
		if runs(c) && c.SandboxID != box {
			s.stops[c.ID] = true
		}
	}
	if len(s.stops) > 0 {
		return s
	}
	if naiveReset(in, &s, box, newest, runs) {
		return s
	}
	fails := naiveInits(in, &s, box, newest, start)
	if fails {
		s = newSketch()
		stopAll()
		return s
	}
	for i := range in.Pod.Spec.EphemeralContainers {
		if c := in.Pod.Spec.EphemeralContainers[i]; newest(c.Name, "") == nil {
			s.starts[c.Name] = 0
		}
	}
	if !naiveThrough(in, box, newest) {
		return s
	}
	busy := false
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		n := newest(c.Name, "")
		switch {
		case n == nil || n.State == runtime.Created:
			busy = true
			start(c)
		case n.State == runtime.Unknown:
			busy = true
			s.stops[n.ID] = true
			start(c)
		case n.State == runtime.Exited:
			if naiveAgain(in.Pod, c, n.ExitCode) {
				busy = true
				start(c)
			}
		case naiveIll(in, n.ID):
			busy = true
			s.stops[n.ID] = true
			if naivePolicy(in.Pod, c) != "Never" {
				start(c)
			}
		case naiveResized(in, c):
			busy = true
			s.stops[n.ID] = true
			start(c)
		default:
			busy = true
		}
	}
	if !busy {
		s = newSketch()
		stopAll()
	}
	return s
}

// naiveWaits says that a container ended too short a time ago to start again.
func naiveWaits(in Input, name string) bool {
	for _, e := range in.Seen.Containers {
		if e.Name != name || e.State != runtime.Exited {
			continue
		}
		b, known := in.Backoff[name]
		return known && e.Finished.Sub(b.Updated) <= 10*time.Minute && e.Finished.Add(b.Delay).After(in.Now)
	}
	return false
}

// naiveBegin is for a pod without a sandbox that serves.
func naiveBegin(in Input, s *sketch, newest func(name, sandbox string) *runtime.Container, stopAll func(), start func(*v1.Container)) {
	var left []*v1.Container
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		n := newest(c.Name, "")
		done := false
		switch {
		case n == nil || n.State == runtime.Created:
		case n.State == runtime.Exited:
			done = !naiveAgain(in.Pod, c, n.ExitCode)
		default:
			done = naivePolicy(in.Pod, c) == "Never"
		}
		if !done {
			left = append(left, c)
		}
	}
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		n := newest(c.Name, "")
		if c.RestartPolicy != nil && *c.RestartPolicy == "Always" || n == nil {
			continue
		}
		code := n.ExitCode
		if code == 0 && (n.Reason == "OOMKilled" || n.State == runtime.Unknown) {
			code = 137
		}
		if (n.State == runtime.Exited || n.State == runtime.Unknown) && code != 0 && !naiveAgain(in.Pod, c, code) {
			left = nil // it fails for good
			break
		}
	}
	if len(left) == 0 {
		if in.Seen.Running() {
			stopAll()
		}
		return
	}
	stopAll()
	s.sandbox = true
	if len(in.Pod.Spec.InitContainers) > 0 {
		left = []*v1.Container{&in.Pod.Spec.InitContainers[0]}
	}
	for _, c := range left {
		start(c)
	}
}

// naiveReset ends and removes everything when a container that ended asks for it, and did not end a moment ago.
func naiveReset(in Input, s *sketch, box string, newest func(name, sandbox string) *runtime.Container, runs func(runtime.Container) bool) bool {
	if !slices.ContainsFunc(naiveAsking(in, box, newest), func(c *v1.Container) bool { return !naiveWaits(in, c.Name) }) {
		return false
	}
	all := slices.Concat(in.Pod.Spec.InitContainers, in.Pod.Spec.Containers)
	for _, c := range in.Seen.Containers {
		if slices.ContainsFunc(all, func(spec v1.Container) bool { return spec.Name == c.Name }) {
			s.removes[c.ID] = true
			if runs(c) {
				s.stops[c.ID] = true
			}
		}
	}
	return true
}

// naiveAsking are the containers whose end asks for all to restart.
func naiveAsking(in Input, box string, newest func(name, sandbox string) *runtime.Container) (out []*v1.Container) {
	all := slices.Concat(in.Pod.Spec.InitContainers, in.Pod.Spec.Containers)
	for i := range all {
		n := newest(all[i].Name, "")
		if n != nil && n.State == runtime.Exited && n.SandboxID == box && naiveRule(&all[i], n.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers {
			out = append(out, &all[i])
		}
	}
	return out
}

// naiveThrough says that all init containers have done what regular ones wait for.
func naiveThrough(in Input, box string, newest func(name, sandbox string) *runtime.Container) bool {
	inits := in.Pod.Spec.InitContainers
	for _, c := range in.Pod.Spec.Containers {
		if newest(c.Name, box) != nil {
			return true // they had begun
		}
	}
	return len(inits) == 0 || naiveDone(in, &inits[len(inits)-1], newest(inits[len(inits)-1].Name, box))
}

// naiveDone says that what comes behind an init container may begin.
func naiveDone(in Input, c *v1.Container, n *runtime.Container) bool {
	switch {
	case n == nil:
		return false
	case c.RestartPolicy != nil && *c.RestartPolicy == "Always":
		return n.State == runtime.Running && (c.StartupProbe == nil || in.ProbeResults[n.ID].Startup == runtime.Passing)
	}
	return n.State == runtime.Exited && n.ExitCode == 0 && n.Reason != "OOMKilled"
}

// naiveInits looks after init containers, and says that one failed for good.
func naiveInits(in Input, s *sketch, box string, newest func(name, sandbox string) *runtime.Container, start func(*v1.Container)) (fails bool) {
	inits := in.Pod.Spec.InitContainers
	begun := slices.ContainsFunc(in.Pod.Spec.Containers, func(c v1.Container) bool { return newest(c.Name, box) != nil })
	front := len(inits) // the one that the pod is at
	if !begun {
		for front--; front >= 0 && newest(inits[front].Name, box) == nil; front-- {
		}
		if front < 0 && len(inits) > 0 {
			start(&inits[0])
		}
	}
	for i := range inits {
		c := &inits[i]
		n := newest(c.Name, box)
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == "Always"
		switch {
		case i > front:
		case sidecar && (n == nil || n.State == runtime.Created || n.State == runtime.Exited):
			start(c)
		case sidecar && (n.State == runtime.Unknown || naiveIll(in, n.ID) || naiveResized(in, c)):
			s.stops[n.ID] = true
			start(c)
		case sidecar, i < front, n.State == runtime.Running:
		case n.State == runtime.Created:
			start(c)
		case n.State == runtime.Unknown:
			if naivePolicy(in.Pod, c) == "Never" {
				return true
			}
			s.stops[n.ID] = true
			start(c)
		case n.ExitCode != 0 || n.Reason == "OOMKilled":
			code := n.ExitCode
			if code == 0 {
				code = 137
			}
			if !naiveAgain(in.Pod, c, code) {
				return true
			}
			start(c)
		}
		if i == front && i+1 < len(inits) && naiveDone(in, c, n) {
			start(&inits[i+1])
		}
	}
	return false
}

func naivePolicy(pod *v1.Pod, c *v1.Container) string {
	if c.RestartPolicy != nil {
		return string(*c.RestartPolicy)
	}
	return string(pod.Spec.RestartPolicy)
}

// naiveRule is what the first rule says that holds for an exit code.
func naiveRule(c *v1.Container, code int32) v1.ContainerRestartRuleAction {
	for _, r := range c.RestartPolicyRules {
		in := slices.Contains(r.ExitCodes.Values, code)
		if in == (r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return r.Action
		}
	}
	return ""
}

func naiveAgain(pod *v1.Pod, c *v1.Container, code int32) bool {
	policy := naivePolicy(pod, c)
	return naiveRule(c, code) != "" || policy == "Always" || policy == "OnFailure" && code != 0
}

func naiveIll(in Input, id string) bool {
	r := in.ProbeResults[id]
	return r.Liveness == runtime.Failing || r.Startup == runtime.Failing
}

// naiveResized says that a container has other sizes than it is to have and must be started anew to get them.
func naiveResized(in Input, c *v1.Container) bool {
	has, known := in.Seen.Applied[c.Name]
	want := SizesOf(in.Pod, c)
	return known && len(c.ResizePolicy) > 0 && (has.CPULimit != want.CPULimit || has.CPURequest != want.CPURequest)
}
