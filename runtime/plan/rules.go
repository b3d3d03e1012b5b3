package plan

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Kind of a container within its pod.
type Kind uint8

const (
	Regular   Kind = iota
	Init           // runs to its end before the next one starts
	Sidecar        // an init container with restartPolicy Always
	Ephemeral      // added for debugging; never restarted
)

func (k Kind) String() string {
	return [...]string{"container", "init container", "sidecar", "ephemeral container"}[min(k, Ephemeral)]
}

// FieldPath is how events name a container of that kind.
func (k Kind) FieldPath(name string) string {
	switch k {
	case Init, Sidecar:
		return "spec.initContainers{" + name + "}"
	case Ephemeral:
		return "spec.ephemeralContainers{" + name + "}"
	default:
		return "spec.containers{" + name + "}"
	}
}

// InitKind is the kind of a member of spec.initContainers.
func InitKind(c *v1.Container) Kind {
	if podspec.Sidecar(c) {
		return Sidecar
	}
	return Init
}

// Find returns the container of that name and its kind, nil when the pod has none.
func Find(pod *v1.Pod, name string) (*v1.Container, Kind) {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c, Regular
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c, InitKind(c)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return (*v1.Container)(&c.EphemeralContainerCommon), Ephemeral
		}
	}
	return nil, Regular
}

// RestartsAfter says whether a container that ended with that exit code is started again: by the first matching rule,
// then the policy of the container, then that of the pod. Rules count only beside a policy of the container (KEP-5307).
func RestartsAfter(pod *v1.Pod, c *v1.Container, exit int32) bool {
	if c.RestartPolicy == nil {
		return policyRestarts(pod.Spec.RestartPolicy, exit)
	}
	if rule := matchingRule(c, exit); rule != nil {
		switch rule.Action {
		case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
			return true
		}
	}
	return policyRestarts(v1.RestartPolicy(*c.RestartPolicy), exit)
}

// RestartsAll says whether a container that ended with that exit code asks for all containers of its pod to restart.
func RestartsAll(c *v1.Container, exit int32) bool {
	if c.RestartPolicy == nil {
		return false
	}
	rule := matchingRule(c, exit)
	return rule != nil && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

func matchingRule(c *v1.Container, exit int32) *v1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		r := &c.RestartPolicyRules[i]
		if r.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(r.ExitCodes.Values, exit)
		switch r.ExitCodes.Operator {
		case v1.ContainerRestartRuleOnExitCodesOpIn:
			if listed {
				return r
			}
		case v1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !listed {
				return r
			}
		}
	}
	return nil
}

func policyRestarts(p v1.RestartPolicy, exit int32) bool {
	switch p {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exit != 0
	default:
		return true
	}
}

// CouldRestartAll says that a rule of the pod may ask for all its containers to restart.
func CouldRestartAll(pod *v1.Pod) bool {
	return slices.ContainsFunc(specContainers(pod), func(c *v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// Restarts says whether a container is to be started (again), seen being its newest instance or nil when there is none.
// A pod that is being deleted starts nothing, and what is known to have ended for good does not start when somebody has removed
// its last instance.
func Restarts(pod *v1.Pod, c *v1.Container, seen *runtime.Container) bool {
	switch {
	case pod.DeletionTimestamp != nil, overBefore(pod, c, seen):
		return false
	case seen == nil:
		return true
	case seen.State == runtime.Running:
		return false
	case seen.State != runtime.Exited:
		return true
	default:
		return RestartsAfter(pod, c, seen.ExitCode)
	}
}

// overBefore says that the pod's status tells of a regular container that it ended for good, after what was seen of it.
func overBefore(pod *v1.Pod, c *v1.Container, seen *runtime.Container) bool {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.Name == c.Name })
	return i >= 0 && OverUnseen(pod, c, &pod.Status.ContainerStatuses[i], seen)
}

// OverUnseen says that a status tells of an end for good of a regular container of which the newest instance there is, nil for none, is an
// older one: somebody removed the record of what ended. Where all are made to restart, instances are removed on purpose.
func OverUnseen(pod *v1.Pod, c *v1.Container, told *v1.ContainerStatus, seen *runtime.Container) bool {
	end := told.State.Terminated
	switch {
	case end == nil, CouldRestartAll(pod), seen != nil && !olderThan(seen, told):
		return false
	}
	return !RestartsAfter(pod, c, end.ExitCode)
}

// olderThan says that an instance is one before that whose end is told. Both its number and its time have to say so: numbers begin
// anew once all records of a container are gone.
func olderThan(seen *runtime.Container, told *v1.ContainerStatus) bool {
	end := told.State.Terminated.FinishedAt
	return seen.State != runtime.Running && !strings.HasSuffix(told.ContainerID, "//"+seen.ID) &&
		seen.Restarts < int(told.RestartCount) && (end.IsZero() || seen.Created.Before(end.Add(time.Second)))
}

// ranBefore says that a status tells of a container of that name that it ran.
func ranBefore(list []v1.ContainerStatus, name string) bool {
	return slices.ContainsFunc(list, func(s v1.ContainerStatus) bool {
		return s.Name == name && (s.State.Running != nil || s.State.Terminated != nil)
	})
}

// The messages of condition PodReadyToStartContainers.
const (
	NoSandbox       = "no pod sandbox exists"
	ManySandboxes   = "multiple pod sandboxes are ready and need to be reconciled"
	SandboxNotReady = "pod sandbox is not ready"
	SandboxNetwork  = "network namespace mode changed and sandbox needs to be recreated"
	SandboxNoIP     = "pod sandbox has no IP address"
)

// SandboxOK says whether the newest sandbox serves the pod as it is, and if not why.
func SandboxOK(pod *v1.Pod, seen runtime.Pod) (ok bool, why string) {
	ready := 0
	for _, s := range seen.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	switch {
	case len(seen.Sandboxes) == 0:
		return false, NoSandbox
	case ready > 1:
		return false, ManySandboxes
	case !seen.Sandboxes[0].Ready:
		return false, SandboxNotReady
	case seen.Sandboxes[0].HostNetwork != pod.Spec.HostNetwork:
		return false, SandboxNetwork
	case !pod.Spec.HostNetwork && seen.Sandboxes[0].NetworkKnown && len(seen.Sandboxes[0].IPs) == 0:
		return false, SandboxNoIP
	}
	return true, ""
}

// policyOf is the restart policy that holds for a container: its own, else the pod's.
func policyOf(pod *v1.Pod, c *v1.Container) v1.RestartPolicy {
	switch {
	case c.RestartPolicy != nil:
		return v1.RestartPolicy(*c.RestartPolicy)
	case pod.Spec.RestartPolicy == "":
		return v1.RestartPolicyAlways
	}
	return pod.Spec.RestartPolicy
}

// specContainers are the init and regular containers in the order of the spec.
func specContainers(pod *v1.Pod) []*v1.Container {
	out := make([]*v1.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		out = append(out, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	return out
}

// fullName is how messages name a pod.
func fullName(pod *v1.Pod) string {
	return pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")"
}
