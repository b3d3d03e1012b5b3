package status

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Reasons in container states that are ours and not an engine's.
const (
	reasonInitializing  = "PodInitializing"
	reasonCreating      = "ContainerCreating"
	reasonUnknown       = "ContainerStatusUnknown"
	reasonRestartingAll = "RestartingAllContainers"
	reasonCrashing      = "CrashLoopBackOff"
	reasonCompleted     = "Completed"
)

const (
	lostWhenEnded  = "The container could not be located when the pod was terminated"
	lostWhileUp    = "The container could not be located when the pod was deleted.  The container used to be Running"
	removedForAll  = "The container is removed because RestartAllContainers in place"
	initDoneUnseen = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
)

// exitUnknown is the exit code of a container that is known to have ended, but not how.
const exitUnknown = 137

func lost(reason, message string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{Reason: reason, Message: message, ExitCode: exitUnknown}
}

// look is one look at the containers of a pod.
type look struct {
	in         *Input
	old        *v1.PodStatus // a copy: what it points to may go into the answer
	restarting bool          // all containers, in place
}

// containers fills the three lists: init containers in the order of the spec, the others by name.
func (l *look) containers(s *v1.PodStatus) {
	spec := &l.in.Pod.Spec
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		s.InitContainerStatuses = append(s.InitContainerStatuses, l.status(c, plan.InitKind(c), lookup(l.old.InitContainerStatuses, c.Name)))
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		s.ContainerStatuses = append(s.ContainerStatuses, l.status(c, plan.Regular, lookup(l.old.ContainerStatuses, c.Name)))
	}
	for i := range spec.EphemeralContainers {
		c := (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, l.status(c, plan.Ephemeral, lookup(l.old.EphemeralContainerStatuses, c.Name)))
	}
	byName := func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(s.ContainerStatuses, byName)
	slices.SortFunc(s.EphemeralContainerStatuses, byName)
}

// status of one container; old is its last one, nil when there is none.
func (l *look) status(c *v1.Container, kind plan.Kind, old *v1.ContainerStatus) v1.ContainerStatus {
	newest, before := l.instances(c.Name)
	if newest != nil && old != nil && kind == plan.Regular && plan.OverUnseen(l.in.Pod, c, old, newest) {
		newest = nil // its end stays as it was told
	}
	var s v1.ContainerStatus
	if newest != nil {
		s = l.seen(c, newest, before, old)
	} else {
		s = l.unseen(c, kind, old)
	}
	l.waiting(&s, c, kind, newest)
	l.healthy(&s, c, kind, newest, old)
	return s
}

// instances are the two newest containers of that name. What is older has nothing to say.
func (l *look) instances(name string) (newest, before *runtime.Container) {
	for i := range l.in.Seen.Containers {
		c := &l.in.Seen.Containers[i]
		switch {
		case c.Name != name:
		case newest == nil:
			newest = c
		default:
			return newest, c
		}
	}
	return newest, nil
}

// unseen is the status of a container of which the engine has no instance: it waits for its first start, or what was
// known of it still holds, or it is gone.
func (l *look) unseen(c *v1.Container, kind plan.Kind, old *v1.ContainerStatus) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image, State: l.firstWait(), VolumeMounts: mounts(c, nil)}
	if old == nil {
		return s
	}
	if old.State.Terminated != nil && !l.restarting {
		return *old
	}
	s.RestartCount = old.RestartCount
	s.LastTerminationState = old.LastTerminationState
	switch {
	case l.restarting && (old.State.Waiting == nil || old.State.Waiting.Reason == reasonCrashing):
		s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reasonRestartingAll, Message: removedForAll}}
		s.LastTerminationState = v1.ContainerState{Terminated: lost(reasonRestartingAll, removedForAll)}
		s.RestartCount++
	case old.State.Running != nil && kind == plan.Ephemeral: // which is never started again
		s.State = v1.ContainerState{Terminated: lost(reasonUnknown, lostWhileUp)}
	case old.State.Running != nil && s.LastTerminationState.Terminated == nil:
		// It ran and is gone. With a termination before it, it counts as stopped and not as never started.
		s.LastTerminationState.Terminated = lost(reasonUnknown, lostWhileUp)
		if l.in.Pod.DeletionTimestamp == nil {
			s.RestartCount++
		}
	}
	return s
}

func (l *look) firstWait() v1.ContainerState {
	reason := reasonCreating
	if len(l.in.Pod.Spec.InitContainers) > 0 {
		reason = reasonInitializing
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

// seen is the status of a container of which the engine shows instances.
func (l *look) seen(c *v1.Container, newest, before *runtime.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	id := l.id(newest)
	s := v1.ContainerStatus{
		Name:                     c.Name,
		State:                    l.state(newest, old),
		RestartCount:             l.restarts(newest, old),
		Image:                    newest.Image,
		ImageID:                  newest.ImageRef,
		ContainerID:              id,
		VolumeMounts:             mounts(c, newest),
		Resources:                containerResources(c, newest, l.applied(c.Name)),
		AllocatedResources:       c.Resources.Requests.DeepCopy(),
		AllocatedResourcesStatus: deviceHealth(newest),
		User:                     userOf(newest, old, id),
	}
	switch {
	case old == nil:
	case old.ContainerID != id && old.State.Terminated != nil:
		s.LastTerminationState.Terminated = old.State.Terminated
	case old.LastTerminationState.Terminated != nil && old.LastTerminationState.Terminated.ContainerID != id:
		s.LastTerminationState.Terminated = old.LastTerminationState.Terminated
	}
	if before != nil {
		if end := l.state(before, old).Terminated; end != nil {
			s.LastTerminationState.Terminated = end
		}
	}
	return s
}

// applied are the sizes that the container of that name was given last, nil when they are not known.
func (l *look) applied(name string) *runtime.Sizes {
	if s, known := l.in.Seen.Applied[name]; known {
		return &s
	}
	return nil
}

func (l *look) id(c *runtime.Container) string {
	return cmp.Or(l.in.RuntimeName, "unknown") + "://" + c.ID
}

// state of one instance.
func (l *look) state(c *runtime.Container, old *v1.ContainerStatus) v1.ContainerState {
	known := recorded(old, l.id(c))
	switch {
	case c.State == runtime.Running:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: stamp(c.Started)}}
	case known != nil && (c.State == runtime.Unknown || !known.FinishedAt.IsZero() && c.Finished.IsZero()):
		return v1.ContainerState{Terminated: known} // the engine has forgotten how it ended, we have not
	case c.State == runtime.Exited:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode:    c.ExitCode,
			Reason:      c.Reason,
			Message:     c.Message,
			StartedAt:   stamp(c.Started),
			FinishedAt:  stamp(c.Finished),
			ContainerID: l.id(c),
		}}
	case l.lost(c, old):
		// Waiting would let a pod that runs once run twice: it did start.
		reason := reasonUnknown
		if l.restarting {
			reason = reasonRestartingAll
		}
		return v1.ContainerState{Terminated: lost(reason, lostWhenEnded)}
	default:
		return l.firstWait() // made and not started yet, which readers would not understand without a reason
	}
}

// userOf is whom the container runs as; what was told of the same container stays when the engine has forgotten.
func userOf(c *runtime.Container, old *v1.ContainerStatus, id string) *v1.ContainerUser {
	switch {
	case c.User != nil:
		return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: c.User.UID, GID: c.User.GID, SupplementalGroups: slices.Clone(c.User.Groups)}}
	case old != nil && old.ContainerID == id:
		return old.User.DeepCopy()
	}
	return nil
}

// recorded is the termination of that container that was told before.
func recorded(old *v1.ContainerStatus, id string) *v1.ContainerStateTerminated {
	if old == nil {
		return nil
	}
	if old.State.Terminated != nil && old.ContainerID == id {
		return old.State.Terminated
	}
	if last := old.LastTerminationState.Terminated; last != nil && last.ContainerID == id {
		return last
	}
	return nil
}

// lost says that a container was running and that the engine can no longer tell.
func (l *look) lost(c *runtime.Container, old *v1.ContainerStatus) bool {
	return c.State == runtime.Unknown && old != nil && old.State.Running != nil
}

// restarts is the engine's count, raised to what was told before: RestartAllContainers takes the instances away that
// the engine counts by.
func (l *look) restarts(c *runtime.Container, old *v1.ContainerStatus) int32 {
	n := int32(c.Restarts)
	if old == nil {
		return n
	}
	end := old.State.Terminated
	switch {
	case l.lost(c, old):
		return old.RestartCount + 1
	case c.State == runtime.Running && end != nil && old.ContainerID != l.id(c) && end.Reason != reasonUnknown && old.RestartCount >= n:
		return old.RestartCount + 1
	default:
		return max(n, old.RestartCount)
	}
}

// waiting puts the reason why a container does not run in place of how it ended, once it is to be started (again).
func (l *look) waiting(s *v1.ContainerStatus, c *v1.Container, kind plan.Kind, newest *runtime.Container) {
	if newest != nil && newest.State == runtime.Exited && newest.ExitCode == 0 {
		if kind == plan.Sidecar || kind == plan.Init && !plan.InitFailed(newest.ExitCode, newest.Reason) {
			return
		}
	}
	if kind == plan.Init && newest == nil && s.State.Waiting != nil && l.pastInit() {
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reasonCompleted, Message: initDoneUnseen}}
		return
	}
	why, ok := l.in.Seen.Waiting[c.Name]
	if !ok || !l.again(c, kind, newest) {
		return
	}
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

// again says that a container is to be started (again).
func (l *look) again(c *v1.Container, kind plan.Kind, newest *runtime.Container) bool {
	if kind == plan.Init && newest != nil && newest.State == runtime.Exited { // it has failed
		return l.in.Pod.DeletionTimestamp == nil && plan.InitRestarts(l.in.Pod, c, newest.ExitCode)
	}
	return plan.Restarts(l.in.Pod, c, newest)
}

// pastInit says that a regular container was created, which happens only once all init containers succeeded.
func (l *look) pastInit() bool {
	return slices.ContainsFunc(l.in.Pod.Spec.Containers, func(c v1.Container) bool {
		newest, _ := l.instances(c.Name)
		return newest != nil && newest.State != runtime.Unknown
	})
}

// healthy sets Started and Ready from what probes say of the newest instance.
func (l *look) healthy(s *v1.ContainerStatus, c *v1.Container, kind plan.Kind, newest *runtime.Container, old *v1.ContainerStatus) {
	if kind == plan.Ephemeral {
		return
	}
	var result runtime.ProbeResult
	if newest != nil {
		result = l.in.ProbeResults[newest.ID]
	}
	started := s.State.Running != nil && hasStarted(s, c, result.Startup, old)
	s.Started = &started
	if kind == plan.Init {
		s.Ready = s.State.Terminated != nil && !initFailed(s.State.Terminated)
		return
	}
	s.Ready = started && (c.ReadinessProbe == nil || result.Readiness == runtime.Passing)
}

func hasStarted(s *v1.ContainerStatus, c *v1.Container, startup runtime.Outcome, old *v1.ContainerStatus) bool {
	switch {
	case c.StartupProbe == nil || startup == runtime.Passing:
		return true
	case startup == runtime.Failing:
		return false
	default: // nothing decided since: a container that had started stays so
		return old != nil && old.ContainerID == s.ContainerID && old.Started != nil && *old.Started
	}
}

// mounts are the volume mounts of the spec. Whether a mount that is read-only recursively if possible became so is
// known once the container exists.
func mounts(c *v1.Container, seen *runtime.Container) (out []v1.VolumeMountStatus) {
	for _, m := range c.VolumeMounts {
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && (*m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled ||
				*m.RecursiveReadOnly == v1.RecursiveReadOnlyIfPossible && recursive(seen, m.MountPath)) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}

func recursive(c *runtime.Container, path string) bool {
	return c != nil && slices.ContainsFunc(c.Mounts, func(m runtime.Mount) bool { return m.ContainerPath == path && m.Recursive })
}

// deviceHealth lists the devices a container holds, by resource.
func deviceHealth(c *runtime.Container) (out []v1.ResourceStatus) {
	for _, d := range c.Devices {
		name := v1.ResourceName(d.Resource)
		i := slices.IndexFunc(out, func(r v1.ResourceStatus) bool { return r.Name == name })
		if i < 0 {
			i = len(out)
			out = append(out, v1.ResourceStatus{Name: name})
		}
		out[i].Resources = append(out[i].Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(d.ID), Health: v1.ResourceHealthStatus(d.Health)})
	}
	return out
}
