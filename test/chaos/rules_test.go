package chaos

import (
	"fmt"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels of the kubelet on what it makes.
const (
	labelUID       = "io.kubernetes.pod.uid"
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelContainer = "io.kubernetes.container.name"
)

// once begins the names of containers that must run at most once.
const once = "once"

// view is what exists at one time. Containers were listed before sandboxes.
type view struct {
	containers []*cri.Container
	sandboxes  []*cri.PodSandbox
}

// of names a container whatever its instance.
type of struct{ uid, container string }

// rules hold one view after the other against what must always be true. The zero value has seen nothing.
type rules struct {
	attempts map[of]uint32            // the newest instance that ran
	ran      map[of]map[uint32]string // IDs of those that were started, by attempt
	running  map[of]string            // ID of the last one that ran
	homeless map[string]string        // running containers whose sandbox was not right in the last view
	firm     map[of]string            // IDs of containers that must go on running as they are
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
		r.attempts, r.ran, r.running = map[of]uint32{}, map[of]map[uint32]string{}, map[of]string{}
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
		return // it may have ended without having run: when the agent was killed while it was being started
	}
	if before, again := r.running[n]; again && before != id && strings.HasPrefix(n.container, once) {
		bad("container %s of pod %s is to run once and runs again: first %s, now %s", n.container, full(c.GetLabels()), before, id)
	}
	r.running[n] = id
	if attempt < r.attempts[n] {
		bad("restart count of container %s of pod %s went from %d to %d", n.container, full(c.GetLabels()), r.attempts[n], attempt)
	}
	r.attempts[n] = max(r.attempts[n], attempt)
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

func TestRules(t *testing.T) {
	const up, dead = cri.ContainerState_CONTAINER_RUNNING, cri.ContainerState_CONTAINER_EXITED
	container := func(id, uid, pod, name string, attempt uint32, state cri.ContainerState) *cri.Container {
		return &cri.Container{
			Id: id, PodSandboxId: "s-" + uid, State: state, Metadata: &cri.ContainerMetadata{Name: name, Attempt: attempt},
			Labels: map[string]string{labelUID: uid, labelPod: pod, labelNamespace: "n", labelContainer: name},
		}
	}
	sandbox := func(uid string, state cri.PodSandboxState) *cri.PodSandbox {
		return &cri.PodSandbox{Id: "s-" + uid, State: state, Labels: map[string]string{labelUID: uid}}
	}
	good, other := sandbox("u", cri.PodSandboxState_SANDBOX_READY), sandbox("v", cri.PodSandboxState_SANDBOX_READY)
	of := func(c ...*cri.Container) view { return view{c, []*cri.PodSandbox{good, other}} }
	for rule, c := range map[string]struct {
		views []view
		want  string // empty: nothing is broken
	}{
		"a container runs, ends, and the next one runs": {[]view{
			of(container("a", "u", "p", "c", 0, up)),
			of(container("a", "u", "p", "c", 0, dead), container("b", "u", "p", "c", 1, up)),
		}, ""},
		"one name, two pods": {[]view{of(container("a", "u", "p", "c", 0, up), container("b", "v", "q", "c", 0, up))}, ""},
		"two instances run":  {[]view{of(container("a", "u", "p", "c", 0, up), container("b", "u", "p", "c", 1, up))}, "two instances"},
		"two pods of a name": {[]view{of(container("a", "u", "p", "c", 0, up), container("b", "v", "p", "d", 0, up))}, "two pods"},
		"a count that falls": {[]view{of(container("a", "u", "p", "c", 2, up)), of(container("b", "u", "p", "c", 1, up))}, "from 2 to 1"},
		"a count used again": {[]view{
			of(container("a", "u", "p", "c", 0, up)), of(container("a", "u", "p", "c", 0, dead)), of(container("b", "u", "p", "c", 0, up)),
		}, "used twice"},
		"a sandbox that ends while a container ends": {[]view{
			{[]*cri.Container{container("a", "u", "p", "c", 0, up)}, []*cri.PodSandbox{sandbox("u", cri.PodSandboxState_SANDBOX_NOTREADY)}},
			of(container("a", "u", "p", "c", 0, dead)),
		}, ""},
		"a sandbox that ended under a container": {[]view{
			{[]*cri.Container{container("a", "u", "p", "c", 0, up)}, []*cri.PodSandbox{sandbox("u", cri.PodSandboxState_SANDBOX_NOTREADY)}},
			of(container("a", "u", "p", "c", 0, up)),
		}, "not ready"},
		"a sandbox that is lost": {[]view{
			{[]*cri.Container{container("a", "u", "p", "c", 0, up)}, nil},
			{[]*cri.Container{container("a", "u", "p", "c", 0, up)}, nil},
		}, "is gone"},
		"a job that runs again":           {[]view{of(container("a", "u", "p", "once", 0, up)), of(container("b", "u", "p", "once", 1, up))}, "to run once"},
		"a job whose first start was cut": {[]view{of(container("a", "u", "p", "once", 0, dead)), of(container("b", "u", "p", "once", 1, up))}, ""},
		"a bystander that ends":           {[]view{of(container("firm", "u", "p", "c", 0, dead))}, "1 of 1 containers that nobody touched"},
	} {
		var r rules
		if strings.Contains(rule, "bystander") {
			r.stay(container("firm", "u", "p", "c", 0, up))
		}
		for _, v := range c.views {
			r.look(v)
		}
		if got := strings.Join(r.broken, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: broken %q, want %q", rule, got, c.want)
		}
	}
}
