package status

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Random pods live through random troubles, each step as package plan has it. Once all is calm, a pod comes to an end, or runs if
// it is to run for ever; what is told of it on the way can be true, and agrees with what is done.
func TestEachPodComesToItsEnd(t *testing.T) {
	for seed := range uint64(3_000) {
		l := newLife(rand.New(rand.NewPCG(seed, 1)))
		if fault := l.live(); fault != "" {
			t.Fatalf("seed %d: %s\n%s", seed, fault, strings.Join(l.log, "\n"))
		}
	}
}

// life is a pod on a machine without a runtime.
type life struct {
	r     *rand.Rand
	pod   *v1.Pod
	seen  runtime.Pod
	clock time.Time
	calm  bool
	boxes int
	log   []string
}

func newLife(r *rand.Rand) *life {
	var names []string
	for _, n := range []string{"i-1", "s-1", "i-2", "s-2", "app", "log"} {
		if n == "app" || r.IntN(2) == 0 {
			names = append(names, n)
		}
	}
	l := &life{r: r, clock: now, pod: pod([]v1.RestartPolicy{always, onFailure, never}[r.IntN(3)], names...)}
	for c := range restartables(l.pod) {
		if kind := r.IntN(8); c.RestartPolicy == nil && kind < 3 {
			[]func(*v1.Container){
				ownPolicy(v1.ContainerRestartPolicyNever), ownPolicy(v1.ContainerRestartPolicyOnFailure), rule(v1.ContainerRestartRuleActionRestart, 1),
			}[kind](c)
		}
		l.note("%s %s %v %v", l.pod.Spec.RestartPolicy, c.Name, c.RestartPolicy != nil, len(c.RestartPolicyRules))
	}
	return l
}

func (l *life) note(format string, args ...any) { l.log = append(l.log, fmt.Sprintf(format, args...)) }

func (l *life) live() (fault string) {
	for round := range 60 {
		l.clock, l.calm = l.clock.Add(11*time.Minute), round > 20
		if !l.calm {
			l.trouble()
		}
		l.run()
		s := Compute(Input{Pod: l.pod, Seen: l.seen, RuntimeName: "rt", Now: l.clock})
		l.note("%s, %s", s.Phase, strings.Join(strings.Fields(lines(s)), " "))
		if err := legal(l.pod, &l.pod.Status, &s); err != nil {
			return err.Error()
		}
		l.pod.Status = s
		runs := slices.ContainsFunc(l.seen.Containers, func(c runtime.Container) bool {
			_, kind := plan.Find(l.pod, c.Name)
			return c.State == runtime.Running && kind == plan.Regular
		})
		if terminal(s.Phase) {
			if runs {
				return "it is over, and runs"
			}
			return ""
		}
		l.step()
	}
	for _, c := range l.pod.Status.ContainerStatuses {
		if spec, _ := plan.Find(l.pod, c.Name); l.pod.Spec.RestartPolicy != always || spec.RestartPolicy == nil && c.State.Running == nil {
			return c.Name + " has neither ended for good, nor does it run"
		}
	}
	return ""
}

// trouble is what happens to a machine now and then.
func (l *life) trouble() {
	switch l.r.IntN(8) {
	case 0:
		l.note("the machine goes down")
		for i := range l.seen.Sandboxes {
			l.seen.Sandboxes[i].Ready = false
		}
		for i := range l.seen.Containers {
			if c := &l.seen.Containers[i]; c.State == runtime.Running {
				l.end(c, 255, "Unknown")
				if l.r.IntN(3) == 0 {
					c.State = runtime.Unknown
				}
			}
		}
	case 1:
		names := l.pod.Spec.Containers
		name := slices.Concat(l.pod.Spec.InitContainers, names)[l.r.IntN(len(names)+len(l.pod.Spec.InitContainers))].Name
		l.note("records of %s are removed", name)
		l.seen.Containers = slices.DeleteFunc(l.seen.Containers, func(c runtime.Container) bool {
			return c.Name == name && c.State == runtime.Exited
		})
	}
}

// run lets containers end.
func (l *life) run() {
	for i := range l.seen.Containers {
		c := &l.seen.Containers[i]
		_, kind := plan.Find(l.pod, c.Name)
		switch {
		case c.State != runtime.Running || l.r.IntN(3) == 0:
		case l.calm && (kind == plan.Init || kind == plan.Regular && l.pod.Spec.RestartPolicy != always):
			l.end(c, 0, "Completed")
		case !l.calm:
			how := l.r.IntN(4)
			l.end(c, []int32{0, 1, 0, 137}[how], []string{"Completed", "Error", "OOMKilled", "OOMKilled"}[how])
		}
	}
}

func (l *life) end(c *runtime.Container, code int32, reason string) {
	c.State, c.ExitCode, c.Reason, c.Finished = runtime.Exited, code, reason, l.clock
}

// step does what the pod needs next, with less luck while there is trouble.
func (l *life) step() {
	p := plan.Sync(plan.Input{Pod: l.pod, Seen: l.seen, Now: l.clock})
	for _, a := range p.Stops {
		for i := range l.seen.Containers {
			if c := &l.seen.Containers[i]; c.ID == a.ID {
				l.end(c, 143, "Error")
			}
		}
		for i := range l.seen.Sandboxes {
			if s := &l.seen.Sandboxes[i]; s.ID == a.ID {
				s.Ready = false
			}
		}
	}
	for _, a := range p.Actions {
		failed := !l.calm && l.r.IntN(6) == 0
		l.note("  %v %s%s failed %v", a.Verb, a.Container, a.ID, failed)
		switch {
		case failed && a.Vital:
			return
		case failed:
		case a.Verb == plan.RunSandbox:
			l.boxes++
			box := runtime.Sandbox{ID: fmt.Sprint("sb", l.boxes), Attempt: a.Attempt, Ready: true, NetworkKnown: true, IPs: []string{"10.0.0.7"}}
			l.seen.Sandboxes = slices.Insert(l.seen.Sandboxes, 0, box)
		case a.Verb == plan.RemoveContainer:
			l.seen.Containers = slices.DeleteFunc(l.seen.Containers, func(c runtime.Container) bool { return c.ID == a.ID })
		case a.Verb == plan.StartContainer:
			c := instance(a.Container, int(a.Attempt), runtime.Running)
			c.Started, c.SandboxID = l.clock, l.seen.Sandboxes[0].ID
			switch luck := l.r.IntN(8); {
			case l.calm || luck > 1:
			case luck == 1:
				l.end(&c, 128, "StartError")
			default:
				c.State, c.Started = runtime.Created, time.Time{}
			}
			l.seen.Containers = slices.Insert(l.seen.Containers, 0, c)
		}
	}
}
