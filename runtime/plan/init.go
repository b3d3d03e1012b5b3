package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// initState is how far the init containers are, and what they need.
type initState struct {
	done   bool // regular containers may run
	failed bool // they never will
	starts []start
	stops  []Action
}

// inits walks the init containers from the last to the first, looking only at what the serving sandbox has seen: the
// last one with an instance tells how far the pod is, those before it are over unless they are sidecars.
func (p *planner) inits() (s initState) {
	specs := p.Pod.Spec.InitContainers
	s.done = len(specs) == 0 || p.initialised()
	reached := s.done // one behind has been reached, so this one is over
	for i := len(specs) - 1; i >= 0; i-- {
		c, kind := &specs[i], InitKind(&specs[i])
		seen := p.here(c.Name)
		switch {
		case seen == nil && reached && kind == Sidecar:
			s.starts = append(s.starts, start{c, Sidecar})
		case seen == nil || reached && kind == Init:
		case kind == Sidecar:
			p.sidecar(&s, i, seen, reached)
		default:
			p.init(&s, i, seen)
		}
		if s.failed {
			return initState{failed: true}
		}
		reached = reached || seen != nil
	}
	if !reached {
		s.starts = append(s.starts, start{&specs[0], InitKind(&specs[0])})
	}
	slices.Reverse(s.starts) // into the order of the spec
	if p.Pod.DeletionTimestamp != nil {
		s.starts = nil
	}
	return s
}

// initialised says that a regular container was made in the serving sandbox, so that init is over.
func (p *planner) initialised() bool {
	for i := range p.Pod.Spec.Containers {
		if p.here(p.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// here is the newest instance in the serving sandbox.
func (p *planner) here(name string) *runtime.Container {
	for i := range p.Seen.Containers {
		if c := &p.Seen.Containers[i]; c.Name == name && c.SandboxID == p.sandbox {
			return c
		}
	}
	return nil
}

// next lets begin what comes behind init container i.
func (p *planner) next(s *initState, i int) {
	specs := p.Pod.Spec.InitContainers
	switch {
	case s.done:
	case i == len(specs)-1:
		s.done = true
	default:
		s.starts = append(s.starts, start{&specs[i+1], InitKind(&specs[i+1])})
	}
}

func (p *planner) init(s *initState, i int, seen *runtime.Container) {
	c := &p.Pod.Spec.InitContainers[i]
	switch seen.State {
	case runtime.Created:
		s.starts = append(s.starts, start{c, Init})
	case runtime.Running:
	case runtime.Exited:
		switch {
		case !initFailed(seen):
			p.next(s, i)
		case initRestarts(p.Pod, c, seen):
			s.starts = append(s.starts, start{c, Init})
		default:
			s.failed = true
		}
	default:
		if policyOf(p.Pod, c) == v1.RestartPolicyNever {
			s.failed = true
			return
		}
		p.replace(s, c, Init, seen, "Init container "+c.Name+" is in an unknown state, it will be stopped")
	}
}

// sidecar decides about one that has an instance. What comes behind it begins once: reached says that it has.
func (p *planner) sidecar(s *initState, i int, seen *runtime.Container, reached bool) {
	c := &p.Pod.Spec.InitContainers[i]
	switch seen.State {
	case runtime.Running:
	case runtime.Created, runtime.Exited:
		s.starts = append(s.starts, start{c, Sidecar})
		return
	default:
		p.replace(s, c, Sidecar, seen, "Init container "+c.Name+" is in an unknown state, it will be stopped")
		return
	}
	if !reached && (c.StartupProbe == nil || p.ProbeResults[seen.ID].Startup == runtime.Passing) {
		p.next(s, i)
	}
	if why, grace, _ := p.unfit(c, seen, Sidecar); why != "" {
		stop := p.stopOne(seen, Sidecar, grace, why)
		s.stops = append(s.stops, *stop)
		s.starts = append(s.starts, start{c, Sidecar})
	}
}

func (p *planner) replace(s *initState, c *v1.Container, kind Kind, seen *runtime.Container, why string) {
	stop := p.stopOne(seen, kind, p.grace, why)
	s.stops = append(s.stops, *stop)
	s.starts = append(s.starts, start{c, kind})
}

// InitFailed says that an init container which ended so did not do its work. Being killed for memory is a failure whatever
// the exit code.
func InitFailed(exit int32, reason string) bool {
	return exit != 0 || reason == "OOMKilled"
}

// InitRestarts says whether an init container that failed is started again.
func InitRestarts(pod *v1.Pod, c *v1.Container, exit int32) bool {
	if exit == 0 { // killed for memory
		exit = 137
	}
	return RestartsAfter(pod, c, exit)
}

func initFailed(c *runtime.Container) bool {
	return c.State == runtime.Unknown || InitFailed(c.ExitCode, c.Reason)
}

// initEndsPod says that an init container has failed and does not run again.
func initEndsPod(pod *v1.Pod, c *v1.Container, seen *runtime.Container) bool {
	return seen != nil && (seen.State == runtime.Exited || seen.State == runtime.Unknown) && initFailed(seen) && !initRestarts(pod, c, seen)
}

func initRestarts(pod *v1.Pod, c *v1.Container, seen *runtime.Container) bool {
	return pod.DeletionTimestamp == nil && InitRestarts(pod, c, seen.ExitCode)
}
