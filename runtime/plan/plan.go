package plan

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Input is all that a decision depends on.
type Input struct {
	Pod          *v1.Pod // with the allocated resources
	Seen         runtime.Pod
	ProbeResults runtime.ProbeResults
	Backoff      map[string]Backoff // by container name, as earlier actions gave them
	BackoffMax   time.Duration      // the longest wait before a restart; 0: BackoffMax
	Now          time.Time

	// Noticed is when the end of a container was seen first, by its ID, on the clock of Now. It counts in place of an end that
	// the engine tells and that cannot be true: the engine's clock, or everybody's, may have been set. One that is not in it is
	// believed.
	Noticed map[string]time.Time
}

// Verb of an Action.
type Verb uint8

const (
	StopSandbox     Verb = iota + 1 // give back network and processes of sandbox ID
	RunSandbox                      // make and start sandbox number Attempt
	StopContainer                   // stop container ID
	RemoveContainer                 // forget container ID, with its log if Logs
	StartContainer                  // bring the image, create instance number Attempt, remove Unstarted, start
	UpdateContainer                 // give container ID the amount of Resource in its spec; when one fails, no further one is taken
)

func (v Verb) String() string {
	return [...]string{"", "stop sandbox", "run sandbox", "stop", "remove", "start", "update"}[min(v, UpdateContainer)]
}

// Action is one thing to do. Fields a verb does not need are zero.
type Action struct {
	Verb      Verb
	ID        string // of what is acted upon; empty for what is yet to be made
	Container string // name
	Kind      Kind
	Attempt   uint32

	Grace     time.Duration   // StopContainer: how long it may take to end; never zero
	Logs      bool            // RemoveContainer: the log file goes too
	Hookless  bool            // StopContainer: its preStop hook does not run
	Backoff   Backoff         // StartContainer, RemoveContainer: to be remembered for this name; zero: nothing is
	Unstarted []string        // StartContainer: instances of the name, newest first, that were made and not started; they go
	After     []int           // among stops: indices of those that come first, for as long as grace lasts
	Resource  v1.ResourceName // UpdateContainer: memory or cpu
	Less      bool            // UpdateContainer: of which it gets less than it has
	Vital     bool            // when it fails, the actions behind it are not taken
	Why       string          // for people; empty when there is nothing to tell
}

// Plan is what a pod needs next.
type Plan struct {
	Stops   []Action                   // first, side by side but for After; when one fails nothing else is done
	Actions []Action                   // then, in this order, one at a time
	Waiting map[string]runtime.Waiting // containers that have to wait, and why
	RetryAt time.Time                  // when the first of them is due; zero: none waits
}

// Sync plans one step of a pod that is to run. It never asks for a container of which an instance runs, starts init
// containers one by one before all others, and sidecars before what comes behind them. An empty plan means that the pod
// is as it should be, or that something must happen first.
func Sync(in Input) Plan {
	p := &planner{Input: in, grace: Grace(in.Pod, runtime.Termination{})}
	ok, _ := SandboxOK(in.Pod, in.Seen)
	if len(in.Seen.Sandboxes) > 0 {
		p.sandbox = in.Seen.Sandboxes[0].ID
	}
	switch {
	case ok && p.strays(), p.restartAll(ok):
	case ok:
		p.running()
	default:
		p.newSandbox()
	}
	return p.plan
}

// planner collects the plan of one step.
type planner struct {
	Input
	plan    Plan
	sandbox string // the newest; empty when there is none
	grace   time.Duration
}

// start is a wish that may have to wait.
type start struct {
	container *v1.Container
	kind      Kind
}

// newSandbox plans the end of all that is left and a sandbox to begin again in.
func (p *planner) newSandbox() {
	pod, attempt := p.Pod, uint32(0)
	if len(p.Seen.Sandboxes) > 0 {
		attempt = p.Seen.Sandboxes[0].Attempt + 1
	}
	starts, wanted := p.firstStarts()
	wanted = wanted && pod.DeletionTimestamp == nil
	if wanted || p.Seen.Running() {
		p.stopAll()
	}
	if !wanted {
		return
	}
	p.pruneInits(true)
	why := ""
	if attempt > 0 && !p.networkChanged() {
		why = "Pod sandbox changed, it will be killed and re-created."
	}
	p.do(Action{Verb: RunSandbox, Attempt: attempt, Vital: true, Why: why})
	for _, s := range starts {
		p.start(s)
	}
}

func (p *planner) networkChanged() bool {
	_, why := SandboxOK(p.Pod, p.Seen)
	return why == SandboxNetwork
}

// firstStarts is what begins in a new sandbox, and whether there is any point in having one.
func (p *planner) firstStarts() (starts []start, wanted bool) {
	pod := p.Pod
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; InitKind(c) == Init && initEndsPod(pod, c, p.Seen.Newest(c.Name)) {
			return nil, false
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; p.begins(c) {
			starts = append(starts, start{c, Regular})
		}
	}
	if len(starts) == 0 {
		return nil, false
	}
	if inits := pod.Spec.InitContainers; len(inits) > 0 {
		return []start{{&inits[0], InitKind(&inits[0])}}, true
	}
	return starts, true
}

// begins says whether a regular container is among those that run in a new sandbox: not if it ended for good, nor if it runs and never
// restarts. One that never ran does: a machine that went down before its start is no reason to wait for ever.
func (p *planner) begins(c *v1.Container) bool {
	seen := p.Seen.Newest(c.Name)
	if seen != nil && (seen.State == runtime.Running || seen.State == runtime.Unknown) {
		return policyOf(p.Pod, c) != v1.RestartPolicyNever && !overBefore(p.Pod, c, seen)
	}
	return Restarts(p.Pod, c, seen)
}

// strays plans the end of what runs in a sandbox that does not serve any more, and nothing else: whatever comes in its
// place comes after it.
func (p *planner) strays() bool {
	for i := range p.Seen.Containers {
		c := &p.Seen.Containers[i]
		if c.SandboxID != "" && c.SandboxID != p.sandbox && (c.State == runtime.Running || c.State == runtime.Unknown) {
			_, kind := Find(p.Pod, c.Name)
			p.plan.Stops = append(p.plan.Stops, *p.stopOne(c, kind, p.grace, "Container "+c.Name+" runs in an older sandbox, it will be stopped"))
		}
	}
	return len(p.plan.Stops) > 0
}

// running plans for a pod whose sandbox serves.
func (p *planner) running() {
	var stops []Action
	var starts []start
	for i := range p.Pod.Spec.EphemeralContainers {
		c := (*v1.Container)(&p.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if p.Seen.Newest(c.Name) == nil && !ranBefore(p.Pod.Status.EphemeralContainerStatuses, c.Name) {
			starts = append(starts, start{c, Ephemeral})
		}
	}
	inits := p.inits()
	if inits.failed {
		p.stopAll()
		return
	}
	stops = append(stops, inits.stops...)
	starts = append(starts, inits.starts...)
	if inits.done {
		kept := 0
		var regular []start
		for i := range p.Pod.Spec.Containers {
			c := &p.Pod.Spec.Containers[i]
			stop, again, keep := p.regular(c)
			if stop != nil {
				stops = append(stops, *stop)
			}
			if again {
				regular = append(regular, start{c, Regular})
			}
			if keep {
				kept++
			}
		}
		if kept == 0 && len(regular) == 0 && !p.pending(stops) {
			p.stopAll()
			return
		}
		starts = append(starts, regular...)
	}
	p.plan.Stops = stops
	p.plan.Actions = p.updates(stops)
	if len(starts) > 0 {
		p.pruneInits(false)
	}
	for _, s := range starts {
		p.start(s)
	}
}

// pending says that one of these stops concerns a regular container: until it has ended the pod goes on.
func (p *planner) pending(stops []Action) bool {
	for _, s := range stops {
		if s.Kind == Regular {
			return true
		}
	}
	return false
}

// regular decides about one regular container of a pod that is initialised.
func (p *planner) regular(c *v1.Container) (stop *Action, again, keep bool) {
	seen := p.Seen.Newest(c.Name)
	if seen == nil || seen.State != runtime.Running {
		again = Restarts(p.Pod, c, seen)
		if seen != nil && seen.State == runtime.Unknown {
			stop = p.stopOne(seen, Regular, p.grace, "Container "+c.Name+" is in an unknown state, it will be stopped")
		}
		return stop, again, false
	}
	why, grace, again := p.unfit(c, seen, Regular)
	if why == "" {
		return nil, false, true
	}
	stop = p.stopOne(seen, Regular, grace, why)
	return stop, again && p.Pod.DeletionTimestamp == nil, false
}

// unfit says why a running container must end, and whether another one takes its place.
func (p *planner) unfit(c *v1.Container, seen *runtime.Container, kind Kind) (why string, grace time.Duration, again bool) {
	name := "Container " + c.Name
	if kind == Sidecar {
		name = "Init container " + c.Name
	}
	res := p.ProbeResults[seen.ID]
	restarts := kind == Sidecar || policyOf(p.Pod, c) != v1.RestartPolicyNever
	tail := ", will be restarted"
	if !restarts || kind == Sidecar {
		tail = ""
	}
	switch {
	case seen.Hash() != "" && seen.Hash() != Hash(c):
		if kind != Sidecar {
			tail = ", will be restarted"
		}
		return name + " definition changed" + tail, p.grace, true
	case res.Liveness == runtime.Failing:
		return name + " failed liveness probe" + tail, p.probeGrace(c.LivenessProbe), restarts
	case res.Startup == runtime.Failing:
		return name + " failed startup probe" + tail, p.probeGrace(c.StartupProbe), restarts
	case p.restartsToResize(c):
		return "Container " + c.Name + " resize requires restart", p.grace, true
	}
	return "", 0, false
}

// probeGrace is a probe's own grace; none and zero are the pod's.
func (p *planner) probeGrace(probe *v1.Probe) time.Duration {
	if p.Pod.DeletionGracePeriodSeconds != nil || probe == nil {
		return p.grace
	}
	if own := probe.TerminationGracePeriodSeconds; own != nil && *own > 0 {
		return max(MinGrace, podspec.Seconds(*own))
	}
	return p.grace
}

// start asks for a container, unless it ended too short a time ago.
func (p *planner) start(s start) {
	name := s.container.Name
	seen := p.Seen.Newest(name)
	attempt := uint32(0)
	if seen != nil {
		attempt = uint32(seen.Restarts) + 1
	}
	a := Action{Verb: StartContainer, Container: name, Kind: s.kind, Attempt: attempt, Vital: s.kind == Init}
	next, until := p.backoff(s.container)
	if until.After(p.Now) {
		p.wait(s.container, next, until)
		return
	}
	a.Backoff = next
	for i := range p.Seen.Containers {
		if c := &p.Seen.Containers[i]; c.Name == name && c.State == runtime.Created { // whoever made it may still be about to start it
			a.Unstarted = append(a.Unstarted, c.ID)
		}
	}
	p.do(a)
}

// backoff is until when a container has to wait that is to start, and what is then to be remembered: nothing if none ended yet.
func (p *planner) backoff(c *v1.Container) (next Backoff, until time.Time) {
	finished := p.lastEnd(c.Name)
	if finished.IsZero() {
		return Backoff{}, time.Time{}
	}
	return p.Backoff[c.Name].next(backoffKey(c), finished, p.Now, cmp.Or(p.BackoffMax, BackoffMax))
}

// lastEnd is when the newest instance that ended did so, zero when none has. None has ended after that was seen, and none has
// started before it was asked for: what says otherwise is a clock that is wrong.
func (p *planner) lastEnd(name string) time.Time {
	for i := range p.Seen.Containers {
		c := &p.Seen.Containers[i]
		if c.Name != name || c.State != runtime.Exited {
			continue
		}
		noticed, known := p.Noticed[c.ID]
		if !known {
			return c.Finished
		}
		asked := p.Backoff[name].Updated
		if c.Finished.After(noticed) || c.Finished.Before(asked) || !c.Started.IsZero() && c.Started.Before(asked) {
			return noticed
		}
		return c.Finished
	}
	return time.Time{}
}

func (p *planner) wait(c *v1.Container, b Backoff, until time.Time) {
	if p.plan.Waiting == nil {
		p.plan.Waiting = map[string]runtime.Waiting{}
	}
	p.plan.Waiting[c.Name] = runtime.Waiting{
		Reason:  "CrashLoopBackOff",
		Message: "back-off " + b.Delay.String() + " restarting failed container=" + c.Name + " pod=" + fullName(p.Pod),
		Until:   until,
	}
	if p.plan.RetryAt.IsZero() || until.Before(p.plan.RetryAt) {
		p.plan.RetryAt = until
	}
}

// stopAll ends all that runs. With nothing seen it plans nothing.
func (p *planner) stopAll() {
	p.plan.Stops = Stop(p.Pod, p.Seen, p.grace)
}

func (p *planner) do(a Action) { p.plan.Actions = append(p.plan.Actions, a) }

func (p *planner) stopOne(c *runtime.Container, kind Kind, grace time.Duration, why string) *Action {
	return &Action{Verb: StopContainer, ID: c.ID, Container: c.Name, Kind: kind, Grace: max(grace, MinGrace), Why: why}
}

// pruneInits forgets old instances of init containers: all that ended but the newest of them, whose log people may want when
// another one runs, or all of them when they begin again.
func (p *planner) pruneInits(all bool) {
	for i := range p.Pod.Spec.InitContainers {
		first := true
		for j := range p.Seen.Containers {
			c := &p.Seen.Containers[j]
			if c.Name != p.Pod.Spec.InitContainers[i].Name || c.State == runtime.Running || c.State == runtime.Created {
				continue
			}
			keep := first && !all
			first = false
			if keep {
				continue
			}
			p.do(Action{Verb: RemoveContainer, ID: c.ID, Container: c.Name, Kind: Init, Logs: true})
		}
	}
}

// restartAll plans the removal of every instance after a container ended in a way that asks for it (KEP-5532). The ones
// that asked go last: should the work be cut short, they still ask. While all of these ended too short a time ago they wait as
// if they were to start again alone, and the others go on; without a sandbox that serves, nothing begins before that.
func (p *planner) restartAll(serves bool) bool {
	asks, due := map[string]Backoff{}, false
	var waits []start
	for _, c := range specContainers(p.Pod) {
		seen := p.Seen.Newest(c.Name)
		if seen == nil || seen.State != runtime.Exited || seen.SandboxID != p.sandbox || !RestartsAll(c, seen.ExitCode) {
			continue
		}
		next, until := p.backoff(c)
		asks[c.Name], due = next, due || !until.After(p.Now)
		waits = append(waits, start{container: c})
	}
	switch {
	case len(asks) == 0 || p.Pod.DeletionTimestamp != nil, !due && serves:
		return false
	case !due:
		for _, s := range waits {
			p.start(s) // later
		}
		return true
	}
	for _, source := range []bool{false, true} {
		for _, regular := range []bool{true, false} {
			p.reset(asks, func(name string, kind Kind) bool {
				_, asked := asks[name]
				return asked == source && (kind == Regular) == regular
			})
		}
	}
	return true
}

func (p *planner) reset(asks map[string]Backoff, which func(name string, kind Kind) bool) {
	for i := range slices.Backward(p.Seen.Containers) { // of one name the newest goes last: it is the one that asked
		c := &p.Seen.Containers[i]
		spec, kind := Find(p.Pod, c.Name)
		if spec == nil || kind == Ephemeral || !which(c.Name, kind) {
			continue
		}
		if c.State == runtime.Running || c.State == runtime.Unknown {
			stop := p.stopOne(c, kind, MinGrace, "Stopping container "+c.Name+" to restart all containers")
			stop.Hookless = true
			p.plan.Stops = append(p.plan.Stops, *stop)
		}
		p.do(Action{Verb: RemoveContainer, ID: c.ID, Container: c.Name, Kind: kind, Vital: true, Backoff: asks[c.Name]})
	}
}
