package plan

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var seed = flag.Uint64("seed", 0, "look at this one situation; 0: at many")

// TestWhateverIsSeen looks at random situations, many of which a healthy runtime never shows, and holds what must be true
// of every plan.
func TestWhateverIsSeen(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for i := range uint64(20_000) {
			seeds = append(seeds, i+1)
		}
	}
	for _, s := range seeds {
		in := situation(rand.New(rand.NewPCG(s, 0)))
		if fault := broken(in, Sync(in)); fault != "" {
			t.Fatalf("seed %d: %s\nplan %v", s, fault, Sync(in).words())
		}
	}
}

func situation(r *rand.Rand) Input {
	names := []string{"init1", "side1", "init2", "side2-probed", "a", "b", "debug"}
	var spec []string
	for _, n := range names {
		if n == "a" || r.IntN(2) == 0 {
			spec = append(spec, n)
		}
	}
	pod := podOf([]v1.RestartPolicy{always, onFailure, never}[r.IntN(3)], spec...)
	var seen []string
	boxes := r.IntN(3)
	for i := range boxes {
		seen = append(seen, fmt.Sprintf("sandbox#%d:%s", boxes-i, []string{"ready", "ready", "notready", "noip"}[r.IntN(4)]))
	}
	for _, n := range spec {
		for i := r.IntN(3); i > 0; i-- {
			state := []string{"running", "exited=0@1h", "exited=1@5s", "created", "unknown", "oom"}[r.IntN(6)]
			if i == 1 && state == "running" && r.IntN(3) > 0 {
				state = "exited=0@1h"
			}
			w := fmt.Sprintf("%s#%d:%s", n, i, state)
			if r.IntN(4) == 0 {
				w += "/old"
			}
			seen = append(seen, w)
		}
	}
	in := Input{Pod: pod, Seen: look(seen...), Now: t0, ProbeResults: runtime.ProbeResults{}}
	for i := range in.Seen.Containers {
		in.ProbeResults[in.Seen.Containers[i].ID] = runtime.ProbeResult{Liveness: runtime.Outcome(r.IntN(3)), Startup: runtime.Outcome(r.IntN(3))}
	}
	in.Seen.Applied = map[string]runtime.Sizes{}
	for _, c := range specContainers(pod) {
		c.Resources = sizes(fmt.Sprint(r.IntN(2), " ", r.IntN(2), " ", r.IntN(2), " ", r.IntN(2)))
		if r.IntN(2) == 0 {
			c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
		}
		switch r.IntN(4) {
		case 0:
		case 1:
			in.Seen.Applied[c.Name] = runtime.Sizes{CPULimit: int64(r.IntN(2)), MemoryRequest: int64(r.IntN(2)), MemoryLimit: int64(r.IntN(2))}
		default:
			in.Seen.Applied[c.Name] = SizesOf(pod, c)
		}
	}
	return in
}

// broken says what is wrong with a plan, empty when nothing is.
func broken(in Input, p Plan) string {
	stopped := map[string]bool{}
	for i, a := range p.Stops {
		if stopped[a.ID] {
			return a.ID + " is stopped twice"
		}
		stopped[a.ID] = true
		if slices.Contains(a.After, i) {
			return a.ID + " waits for itself"
		}
		if a.Verb == StopContainer && a.Grace < MinGrace {
			return a.ID + " gets too little grace"
		}
	}
	started := map[string]bool{}
	inits, regular := 0, 0
	for _, a := range p.Actions {
		if a.Verb == UpdateContainer {
			if fault := brokenUpdate(in, p, a); fault != "" {
				return fault
			}
		}
		if a.Verb != StartContainer {
			continue
		}
		if started[a.Container] {
			return a.Container + " is started twice"
		}
		started[a.Container] = true
		for _, c := range in.Seen.Containers {
			if c.Name == a.Container && int(a.Attempt) <= c.Restarts {
				return a.Container + " takes a number that is taken"
			}
		}
		if c := in.Seen.Newest(a.Container); c != nil && (c.State == runtime.Running || c.State == runtime.Unknown) && !stopped[c.ID] {
			return a.Container + " is started although one may run"
		}
		switch a.Kind {
		case Init:
			inits++
		case Regular:
			regular++
		case Sidecar, Ephemeral:
		}
		if _, waits := p.Waiting[a.Container]; waits {
			return a.Container + " starts and waits"
		}
	}
	if inits > 1 || inits > 0 && regular > 0 {
		return "init containers do not come one by one before the rest"
	}
	if len(p.Waiting) > 0 == p.RetryAt.IsZero() {
		return "who waits is not looked after"
	}
	return ""
}

// brokenUpdate says what is wrong with an update.
func brokenUpdate(in Input, p Plan, a Action) string {
	c := in.Seen.Newest(a.Container)
	spec, _ := Find(in.Pod, a.Container)
	switch {
	case c == nil || c.ID != a.ID || c.State != runtime.Running:
		return a.Container + " is updated and does not run"
	case slices.ContainsFunc(p.Stops, func(s Action) bool { return s.ID == a.ID }):
		return a.Container + " is updated although it is stopped"
	case slices.ContainsFunc(p.Actions, func(s Action) bool { return s.Verb == StartContainer && s.Container == a.Container }):
		return a.Container + " is updated and started"
	case !slices.ContainsFunc(changes(in.Pod, spec, in.Seen), func(ch change) bool { return ch.resource == a.Resource && (ch.more < 0) == a.Less }):
		return a.Container + " is updated without need"
	case slices.ContainsFunc(in.Pod.Spec.Containers, func(r v1.Container) bool { return r.Name == a.Container && len(r.ResizePolicy) > 0 }) && a.Resource == v1.ResourceCPU:
		return a.Container + " is updated and must be restarted"
	}
	return ""
}
