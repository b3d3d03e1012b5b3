package podruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podsizes"
	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Sync takes a pod one step nearer to what it is to be. Containers that do not start stand in Waiting and are tried again
// at SyncResult.RetryAt; they keep no other container from starting, except where the order demands it. The error is about
// the pod as a whole: no sandbox, or something that would not stop.
func (r *Runtime) Sync(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
	if err := checkUID(pod.UID); err != nil {
		return runtime.SyncResult{}, err
	}
	s := &step{Runtime: r, pod: pod, in: in, now: time.Now()}
	var noticed map[string]time.Time
	if in.Seen.UID == pod.UID {
		r.memory.trim(in.Seen)
		noticed = r.memory.notice(in.Seen, s.now)
	}
	r.adopt(pod)
	p := plan.Sync(plan.Input{
		Pod: pod, Seen: in.Seen, ProbeResults: in.ProbeResults, Backoff: r.memory.backoff(pod.UID), BackoffMax: r.cfg.Backoff,
		Now: s.now, Noticed: noticed,
	})
	s.retry(p.RetryAt)
	s.wait(p)
	if s.held(p) {
		return s.result, nil
	}
	s.result.Acted = len(p.Stops) > 0
	if err := r.stop(ctx, pod, p.Stops); err != nil {
		return s.result, err
	}
	if len(in.Seen.Sandboxes) > 0 {
		s.sandbox = in.Seen.Sandboxes[0]
	}
	if err := s.grow(ctx, p); err != nil {
		return s.result, err
	}
	if s.hooksDue(ctx, p); ctx.Err() != nil {
		return s.result, context.Cause(ctx)
	}
	for _, a := range p.Actions {
		err := s.do(ctx, a)
		if ctx.Err() != nil {
			return s.result, context.Cause(ctx)
		}
		if err != nil && a.Vital {
			if a.Verb == plan.StartContainer || errors.Is(err, errGated) {
				return s.result, nil // known already: it stands in Waiting, or was told when it failed
			}
			return s.result, err
		}
	}
	s.settle(ctx, p)
	if !s.result.Acted {
		r.memory.complete(pod.UID)
	}
	return s.result, nil
}

// held says that a new sandbox is due but must wait after a failure, and that nothing is left to be stopped for it.
func (s *step) held(p plan.Plan) bool {
	if len(p.Actions) == 0 || s.in.Seen.Running() {
		return false
	}
	due := slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.RunSandbox })
	if !due {
		return false
	}
	until := s.memory.gate(s.pod.UID, "", func() uint64 { return specOf(s.pod, "") }, s.now)
	if until.IsZero() {
		return false
	}
	s.retry(until)
	return true
}

// step is one Sync under way.
type step struct {
	*Runtime
	pod     *v1.Pod
	in      runtime.SyncInput
	now     time.Time
	sandbox runtime.Sandbox
	config  *runtime.SandboxConfig // of sandbox, once it was needed
	result  runtime.SyncResult
	idle    map[string]bool // image volumes that no container mounts, and that were seen to in this step

	sizes        podsizes.Pod // that the pod is to have
	began, stuck bool         // running containers get new sizes; that failed
	grown        bool         // the pod's cgroup was given what it lacks
	newUsers     bool         // the sandbox is made in this step with a user namespace of its own, and nothing has failed yet
}

// retry asks to be called again at that time, if no earlier one is set.
func (s *step) retry(at time.Time) {
	if !at.IsZero() && (s.result.RetryAt.IsZero() || at.Before(s.result.RetryAt)) {
		s.result.RetryAt = at
	}
}

// wait shows which containers have to wait after a crash, and that the others do not.
func (s *step) wait(p plan.Plan) {
	starting, busy := map[string]bool{}, len(p.Waiting) > 0
	for _, a := range p.Actions {
		starts := a.Verb == plan.StartContainer
		starting[a.Container], busy = starting[a.Container] || starts, busy || starts
	}
	changed := false
	for _, c := range podspec.Containers(s.pod) {
		w, waits := p.Waiting[c.Name]
		switch {
		case waits:
			if s.memory.set(s.pod.UID, c.Name, &w) {
				changed = true
				s.tell(c.Name, true, "BackOff", "Back-off restarting failed container "+c.Name+" in pod "+s.pod.Name+"_"+s.pod.Namespace+"("+string(s.pod.UID)+")")
			}
		case starting[c.Name], busy && s.in.Seen.Newest(c.Name) == nil:
			// What starts keeps its reason until it runs, and so does what never ran while another has its turn.
		default:
			changed = s.memory.set(s.pod.UID, c.Name, nil) || changed
			s.memory.unfollow(s.pod.UID, c.Name)
		}
	}
	if changed {
		s.cfg.Changed(s.pod.UID)
	}
}

func (s *step) do(ctx context.Context, a plan.Action) error {
	switch a.Verb {
	case plan.RunSandbox:
		return s.gated(ctx, "", func() error { return s.runSandbox(ctx, a) })
	case plan.RemoveContainer:
		s.result.Acted = true
		err := s.removeContainer(ctx, a.ID, a.Logs)
		if err == nil {
			s.memory.remember(s.pod.UID, a.Container, a.Backoff)
		}
		return err
	case plan.StartContainer:
		return s.gated(ctx, a.Container, func() error { return s.startContainer(ctx, a) })
	case plan.UpdateContainer:
		s.update(ctx, a)
		return nil
	case plan.StopSandbox, plan.StopContainer: // a plan's stops come apart
	}
	return fmt.Errorf("the plan asks to %s, which is no single action", a.Verb)
}

// errGated is about something that failed a short time ago.
var errGated = errors.New("failed a short time ago and is tried again later")

// gated does something unless it failed a short time ago. That it was cut says nothing of it: it may be tried again at once.
func (s *step) gated(ctx context.Context, what string, act func() error) error {
	if until := s.memory.gate(s.pod.UID, what, func() uint64 { return specOf(s.pod, what) }, s.now); !until.IsZero() {
		s.retry(until)
		return errGated
	}
	s.result.Acted = true
	err := act()
	if err == nil {
		s.memory.unfollow(s.pod.UID, what)
		s.memory.works(s.pod.UID, what)
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	now, spec := time.Now(), specOf(s.pod, what)
	until := retryOf(err, s.memory.failing(s.pod.UID, what, spec, now), now)
	s.memory.shut(s.pod.UID, what, spec, now, until)
	s.memory.taken(s.pod.UID, what, errors.Is(err, runtime.ErrInUse), now)
	if what != "" {
		s.follow(s.pod, what, err)
	}
	s.retry(until)
	return err
}

// usersFailed counts a new pod with a user namespace of its own that does not come up: that shows in its containers at the
// latest.
func (s *step) usersFailed() {
	if s.newUsers {
		s.newUsers = false
		s.metrics.userPodErrors.Record(1)
	}
}

func (s *step) runSandbox(ctx context.Context, a plan.Action) error {
	if a.Why != "" {
		s.tell("", false, "SandboxChanged", a.Why)
	}
	if s.newUsers = ownUsers(s.pod); s.newUsers {
		s.metrics.userPods.Record(1)
	}
	id, err := s.makeSandbox(ctx, a.Attempt)
	if err != nil {
		if ctx.Err() == nil {
			s.usersFailed()
			s.metrics.podErrors.Record(1)
			if !errors.Is(err, runtime.ErrNetworkNotReady) { // that one is asked for every second, and told by the caller
				s.tell("", true, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
			}
		}
		return fmt.Errorf("sandbox of pod %s: %w", refOf(s.pod), err)
	}
	s.metrics.pods.Record(1)
	if ctx.Err() != nil {
		return context.Cause(ctx) // the next step finds it
	}
	at := time.Now()
	if s.sandbox, err = s.cfg.Engine.Sandbox(ctx, id); err != nil {
		s.tell("", true, "FailedPodSandBoxStatus", "Unable to get pod sandbox status: "+err.Error())
		return fmt.Errorf("look at the new sandbox of pod %s: %w", refOf(s.pod), err)
	}
	s.pictures.add(at, s.sandbox)
	s.cfg.Changed(s.pod.UID)
	if c := s.sandbox; !s.pod.Spec.HostNetwork && s.in.Network.NetNS == "" && c.NetworkKnown && len(c.IPs) == 0 {
		return fmt.Errorf("sandbox of pod %s: the runtime gave it no address", refOf(s.pod))
	}
	return nil
}

func (s *step) makeSandbox(ctx context.Context, attempt uint32) (string, error) {
	if !s.pod.Spec.HostNetwork && s.in.Network.NetNS == "" {
		if err := s.network.up(ctx, s.cfg.Engine.Info); err != nil {
			return "", err
		}
	}
	if s.cfg.Root != "" {
		if err := s.files.makePod(s.pod.UID); err != nil {
			return "", err
		}
	}
	handler, err := s.class(s.pod)
	if err != nil {
		return "", err
	}
	if err := s.cfg.DNS().Unknown(s.pod); err != nil {
		return "", err
	}
	config, warnings, err := s.sandboxConfig(ctx, s.pod, attempt, handler, s.in)
	if err != nil {
		return "", err
	}
	for _, w := range warnings {
		s.tell("", true, "DNSConfigForming", w)
	}
	if s.cfg.DNS().Missing(s.pod) {
		s.tell("", true, "MissingClusterDNS", fmt.Sprintf("pod: \"%s_%s(%s)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
			s.pod.Name, s.pod.Namespace, s.pod.UID, v1.DNSClusterFirst, v1.DNSDefault)) // the kubelet's words, which people look for
	}
	if err := makeLogDir(config.LogDir); err != nil {
		return "", err
	}
	done, err := s.begin(ctx, s.pod)
	if err != nil {
		return "", err
	}
	defer done()
	config.Attempt = s.memory.number(s.pod.UID, "", attempt)
	ctx, trace := s.cfg.Observe.Begin(ctx, s.ref(""), "run sandbox")
	own, stop := outlast(ctx, startGrace)
	defer stop()
	id, err := s.cfg.Engine.RunSandbox(own, config)
	s.pictures.makes(s.pod.UID, err)
	trace.End(err)
	if err != nil {
		return "", err
	}
	s.config = config
	return id, nil
}

// ref names the pod, or one container of it, for events and steps.
func (s *step) ref(container string) observe.Ref { return s.refOf(s.pod, container) }

func (r *Runtime) refOf(pod *v1.Pod, container string) observe.Ref {
	ref := observe.Pod(pod.Namespace, pod.Name, string(pod.UID))
	if container != "" {
		_, kind := plan.Find(pod, container)
		ref.FieldPath = kind.FieldPath(container)
	}
	return ref
}

func (s *step) tell(container string, warning bool, reason, message string) {
	s.Runtime.tell(s.pod, container, warning, reason, message)
}

func (r *Runtime) tell(pod *v1.Pod, container string, warning bool, reason, message string) {
	r.cfg.Observe.Event(observe.Event{About: r.refOf(pod, container), Warning: warning, Reason: reason, Message: message})
}
