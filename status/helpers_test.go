package status

import (
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// pod has the containers of the names: "app" is a regular one, "i-…" an init container, "s-…" a sidecar, "e-…" an
// ephemeral one.
func pod(policy v1.RestartPolicy, names ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID, p.Generation = "ns", "web", "u1", 3
	p.Spec.RestartPolicy = policy
	for _, name := range names {
		c := v1.Container{Name: name, Image: "spec/" + name}
		switch {
		case strings.HasPrefix(name, "i-"):
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case strings.HasPrefix(name, "s-"):
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case strings.HasPrefix(name, "e-"):
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers,
				v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(c)})
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// with changes a pod.
func with(p *v1.Pod, changes ...func(*v1.Pod)) *v1.Pod {
	for _, c := range changes {
		c(p)
	}
	return p
}

func deleted(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now)) }

// deletedAt asks for the end of a pod at some moment, with a grace of ten seconds.
func deletedAt(at time.Time) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(at.Add(10*time.Second))), new(int64(10))
	}
}

func fromFile(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }

// on changes the named container of a pod.
func on(name string, change func(*v1.Container)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for c := range restartables(p) {
			if c.Name == name {
				change(c)
			}
		}
	}
}

func ownPolicy(policy v1.ContainerRestartPolicy) func(*v1.Container) {
	return func(c *v1.Container) { c.RestartPolicy = &policy }
}

func rule(action v1.ContainerRestartRuleAction, codes ...int32) func(*v1.Container) {
	return func(c *v1.Container) {
		c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
			Action:    action,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: codes},
		})
	}
}

func readiness(c *v1.Container) { c.ReadinessProbe = &v1.Probe{} }

func startup(c *v1.Container) { c.StartupProbe = &v1.Probe{} }

// seen is a look: a ready sandbox with an address and these containers in it, newest first.
func seen(containers ...runtime.Container) runtime.Pod {
	p := runtime.Pod{
		IPs:       []string{"10.0.0.7"},
		Sandboxes: []runtime.Sandbox{{ID: "sb", Ready: true, NetworkKnown: true, IPs: []string{"10.0.0.7"}}},
	}
	for _, c := range containers {
		c.SandboxID = "sb"
		p.Containers = append(p.Containers, c)
	}
	return p
}

func waits(p runtime.Pod, name, reason string) runtime.Pod {
	p = p.Clone()
	if p.Waiting == nil {
		p.Waiting = map[string]runtime.Waiting{}
	}
	p.Waiting[name] = runtime.Waiting{Reason: reason, Message: "message of " + reason}
	return p
}

// instance of a container: its ID is "name-n", n its restart count.
func instance(name string, n int, state runtime.State) runtime.Container {
	return runtime.Container{
		ID: name + "-" + strconv.Itoa(n), Name: name, Restarts: n, State: state,
		Image: "seen/" + name, ImageID: "sha256:1", ImageRef: "seen/" + name + "@sha256:2",
	}
}

func running(name string, n int) runtime.Container {
	c := instance(name, n, runtime.Running)
	c.Started = now.Add(-time.Minute)
	return c
}

func exited(name string, n int, code int32) runtime.Container {
	c := instance(name, n, runtime.Exited)
	c.Started, c.Finished, c.ExitCode = now.Add(-time.Minute), now.Add(-time.Second), code
	c.Reason = "Error"
	if code == 0 {
		c.Reason = "Completed"
	}
	return c
}

// short writes a container status as "state last count flags": run, wait=Reason, exit=code/Reason; R ready, S started.
func short(cs v1.ContainerStatus) string {
	words := []string{shortState(cs.State)}
	if last := shortState(cs.LastTerminationState); last != "-" {
		words = append(words, "last:"+last)
	}
	words = append(words, "#"+strconv.Itoa(int(cs.RestartCount)))
	if cs.Ready {
		words = append(words, "R")
	}
	if cs.Started != nil && *cs.Started {
		words = append(words, "S")
	}
	return strings.Join(words, " ")
}

func shortState(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "run"
	case s.Waiting != nil:
		return "wait=" + s.Waiting.Reason
	case s.Terminated != nil:
		return "exit=" + strconv.Itoa(int(s.Terminated.ExitCode)) + "/" + s.Terminated.Reason
	}
	return "-"
}

// told is a status computed before.
func told(p *v1.Pod, looks ...runtime.Pod) (last v1.PodStatus) {
	for _, l := range looks {
		last = Compute(Input{Pod: p, Last: last, Seen: l, RuntimeName: "rt", Now: now.Add(-time.Hour)})
	}
	return last
}
