package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// fault is one way to disturb a node.
type fault struct {
	name   string
	target string                      // who it hits; one target has one fault at a time
	do     func(context.Context) error // the fault begins
	mend   func(context.Context) error // it ends
}

// step is one thing that happens in a plan: a change of a pod, or a fault that begins or ends.
type step struct {
	at    time.Duration // since the plan began
	op    op            // when fault is nil
	fault *fault
	ends  bool // the fault does
}

func (s step) String() string {
	switch {
	case s.fault == nil:
		return s.op.String()
	case s.ends:
		return fmt.Sprintf("%v: no longer: %s", round(s.at), s.fault.name)
	}
	return fmt.Sprintf("%v: %s", round(s.at), s.fault.name)
}

// plan makes up out of a seed what happens in a time: who of the targets is disturbed at all, when, and which pods come and
// go meanwhile. Faults last up to three seconds; those of different targets overlap. All have ended at the end.
func plan(seed uint64, lasts time.Duration, kinds []kind, faults []fault) []step {
	random := rand.New(rand.NewPCG(seed, 1))
	faults = disturbed(random, faults)
	var steps []step
	busy := map[string]time.Duration{} // until when, by target
	for at := time.Duration(0); len(faults) > 0; {
		if at += time.Duration(random.Int64N(int64(2500 * time.Millisecond))); at >= lasts {
			break
		}
		f := faults[random.IntN(len(faults))]
		end := min(at+time.Duration(random.Int64N(int64(3*time.Second))), lasts)
		if at <= busy[f.target] {
			continue
		}
		busy[f.target] = end
		steps = append(steps, step{at: at, fault: &f}, step{at: end, fault: &f, ends: true})
	}
	churn := churn{random: random, kinds: kinds}
	for at := time.Duration(0); ; {
		if at += time.Duration(random.Int64N(int64(time.Second))); at >= lasts {
			break
		}
		steps = append(steps, step{at: at, op: churn.next(at)})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return steps
}

// disturbed chooses targets, at least one of them, and returns their faults.
func disturbed(random *rand.Rand, faults []fault) []fault {
	var targets []string
	for _, f := range faults {
		if !slices.Contains(targets, f.target) {
			targets = append(targets, f.target)
		}
	}
	if len(targets) == 0 {
		return nil
	}
	sure := targets[random.IntN(len(targets))]
	targets = slices.DeleteFunc(targets, func(t string) bool { return t != sure && random.IntN(2) == 0 })
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !slices.Contains(targets, f.target) })
}

func TestPlans(t *testing.T) {
	faults := []fault{{name: "a1", target: "a"}, {name: "a2", target: "a"}, {name: "b", target: "b"}, {name: "c", target: "c"}}
	kinds := slices.Concat(services, jobs)
	const lasts = 20 * time.Second
	targets := map[string]int{}
	for seed := range uint64(200) {
		p := plan(seed, lasts, kinds, faults)
		if again := plan(seed, lasts, kinds, faults); !reflect.DeepEqual(text(p), text(again)) {
			t.Fatalf("seed %d makes two plans:\n%v\n%v", seed, p, again)
		}
		active, hit := map[string]string{}, map[string]bool{}
		last := time.Duration(0)
		for _, s := range p {
			if s.at < last || s.at > lasts {
				t.Fatalf("seed %d: %s is not in its place", seed, s)
			}
			last = s.at
			if s.fault == nil {
				continue
			}
			switch now := active[s.fault.target]; {
			case s.ends && now != s.fault.name, !s.ends && now != "":
				t.Fatalf("seed %d: %s while %s has %q", seed, s, s.fault.target, now)
			case s.ends:
				delete(active, s.fault.target)
			default:
				active[s.fault.target] = s.fault.name
				hit[s.fault.target] = true
			}
		}
		if len(active) > 0 {
			t.Fatalf("seed %d: in the end there is %v", seed, active)
		}
		targets[fmt.Sprint(len(hit))]++
	}
	if targets["0"] > 2 || targets["1"] == 0 || targets["2"] == 0 || targets["3"] == 0 {
		t.Errorf("numbers of targets: %v", targets)
	}
}

func text(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}
