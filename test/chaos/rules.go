package chaos

import (
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels of the kubelet on what it makes.
const (
	labelUID       = "io.kubernetes.pod.uid"
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelContainer = "io.kubernetes.container.name"
)

// view is what exists at one time. Containers were listed before sandboxes.
type view struct {
	containers []*cri.Container
	sandboxes  []*cri.PodSandbox
}

// of names a container whatever its instance.
type of struct{ uid, container string }

// rules hold one view after the other against what must always be true. The zero value has seen nothing.
type rules struct {
	once func(pod string) bool // pods of that name must run each container at most once; nil: none must

	attempts map[of]uint32            // the newest instance that ran
	ran      map[of]map[uint32]string // IDs of those that ran, by attempt
	homeless map[string]string        // running containers whose sandbox was not right in the last view
	firm     map[of]string            // containers that must run, by ID
	broken   []string                 // rules that were broken, in the order of sight
}

// stay adds containers that must go on running as they are.
func (r *rules) stay(c *cri.Container) {
	if r.firm == nil {
		r.firm = map[of]string{}
	}
	r.firm[name(c)] = c.GetId()
}

func name(c *cri.Container) of {
	return of{c.GetLabels()[labelUID], c.GetLabels()[labelContainer]}
}

func full(labels map[string]string) string { return labels[labelNamespace] + "/" + labels[labelPod] }

// look takes the next view and tells which rules it breaks.
func (r *rules) look(v view) (broken []string) {
	if r.attempts == nil {
		r.attempts, r.ran = map[of]uint32{}, map[of]map[uint32]string{}
	}
	bad := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	running, owner := map[of]string{}, map[string]string{}
	firm := len(r.firm)
	homeless := map[string]string{}
	sandboxes := map[string]*cri.PodSandbox{}
	for _, s := range v.sandboxes {
		sandboxes[s.GetId()] = s
	}
	for _, c := range v.containers {
		r.instance(c, bad)
		if c.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			continue
		}
		n := name(c)
		if other, twice := running[n]; twice {
			bad("two instances of container %s of pod %s run: %s and %s", n.container, full(c.GetLabels()), other, c.GetId())
		}
		running[n] = c.GetId()
		if r.firm[n] == c.GetId() {
			firm--
		}
		if uid, known := owner[full(c.GetLabels())]; known && uid != n.uid {
			bad("two pods %s have running containers: %s and %s", full(c.GetLabels()), uid, n.uid)
		}
		owner[full(c.GetLabels())] = n.uid
		if why := home(c, sandboxes[c.GetPodSandboxId()]); why != "" {
			homeless[c.GetId()] = why
		}
		if why := r.homeless[c.GetId()]; why != "" { // and it still runs, after that was seen
			bad("container %s of pod %s runs, but %s", n.container, full(c.GetLabels()), why)
		}
	}
	if firm > 0 {
		bad("%d of %d containers that nobody touched do not run any more", firm, len(r.firm))
	}
	r.homeless = homeless
	r.broken = append(r.broken, broken...)
	return broken
}

// instance checks the count of restarts of a container that runs or has run.
func (r *rules) instance(c *cri.Container, bad func(string, ...any)) {
	switch c.GetState() {
	case cri.ContainerState_CONTAINER_RUNNING, cri.ContainerState_CONTAINER_EXITED:
	default:
		return
	}
	n, attempt, id := name(c), c.GetMetadata().GetAttempt(), c.GetId()
	if r.ran[n] == nil {
		r.ran[n] = map[uint32]string{}
	}
	if other, used := r.ran[n][attempt]; used && other != id {
		bad("restart count %d of container %s of pod %s was used twice: %s and %s", attempt, n.container, full(c.GetLabels()), other, id)
	}
	r.ran[n][attempt] = id
	if c.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		return
	}
	if attempt < r.attempts[n] {
		bad("restart count of container %s of pod %s went from %d to %d", n.container, full(c.GetLabels()), r.attempts[n], attempt)
	}
	r.attempts[n] = max(r.attempts[n], attempt)
	if len(r.ran[n]) > 1 && r.once != nil && r.once(c.GetLabels()[labelPod]) {
		bad("container %s of pod %s is to run once and runs again: %v", n.container, full(c.GetLabels()), r.ran[n])
	}
}

// home tells what is wrong with the sandbox of a running container; empty: nothing.
func home(c *cri.Container, s *cri.PodSandbox) string {
	switch {
	case s == nil:
		return "its sandbox " + c.GetPodSandboxId() + " is gone"
	case s.GetState() != cri.PodSandboxState_SANDBOX_READY:
		return "its sandbox " + s.GetId() + " is not ready"
	case s.GetLabels()[labelUID] != c.GetLabels()[labelUID]:
		return "its sandbox " + s.GetId() + " is another pod's"
	}
	return ""
}
