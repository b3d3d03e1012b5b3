package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
)

// Runtime is a syncloop.Runtime over the cloud: a pod is a machine, a container an application on it. It keeps no state;
// what it needs to know again it writes into the machine's tags.
type Runtime struct{ cloud *Cloud }

// Pods are all machines.
func (r Runtime) Pods(ctx context.Context) ([]runtime.Pod, error) {
	at := time.Now()
	machines, err := r.cloud.Machines(ctx)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var out []runtime.Pod
	for _, m := range machines {
		out = append(out, seen(m, at))
	}
	return out, nil
}

// Pod is the machine of one pod.
func (r Runtime) Pod(ctx context.Context, uid types.UID) (runtime.Pod, error) {
	at := time.Now()
	pods, err := r.Pods(ctx)
	return one(pods, uid, at), err
}

// one is the pod of that uid. One that was not there at that moment is empty.
func one(pods []runtime.Pod, uid types.UID, at time.Time) runtime.Pod {
	if i := slices.IndexFunc(pods, func(p runtime.Pod) bool { return p.UID == uid }); i >= 0 {
		return pods[i]
	}
	return runtime.Pod{PodRef: runtime.PodRef{UID: uid}, At: at}
}

// seen tells of a machine in the words of this project.
func seen(m Machine, at time.Time) runtime.Pod {
	ref := runtime.PodRef{Namespace: m.Tags["namespace"], Name: m.Tags["name"], UID: types.UID(m.Name)}
	p := runtime.Pod{PodRef: ref, At: at, IPs: []string{m.IP}, Sandboxes: []runtime.Sandbox{{
		PodRef: ref, ID: m.Name, Ready: !m.Down, Created: m.Up, IPs: []string{m.IP}, NetworkKnown: true,
	}}}
	for _, a := range m.Apps {
		c := runtime.Container{
			Pod: ref, ID: strings.Join([]string{m.Name, a.Name, strconv.Itoa(a.Starts)}, "/"), Name: a.Name, Image: a.Image, SandboxID: m.Name,
			Restarts: a.Starts, State: runtime.Running, Created: m.Up, Started: a.Started,
		}
		switch {
		case !a.Ended.IsZero():
			c.State, c.Finished, c.ExitCode, c.Reason = runtime.Exited, a.Ended, int32(a.Code), "Completed"
		case a.Started.After(at):
			c.State, c.Started = runtime.Created, time.Time{}
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

// Sync orders the machine of a pod, and starts again what ended or is not well. An order that fails comes back as an error:
// the loop tells of it and tries again.
func (r Runtime) Sync(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
	if len(in.Seen.Sandboxes) == 0 {
		if err := r.cloud.Order(ctx, order(pod)); err != nil {
			return runtime.SyncResult{}, fmt.Errorf("order a machine: %w", err)
		}
		return runtime.SyncResult{Acted: true}, nil
	}
	var result runtime.SyncResult
	for _, c := range in.Seen.Containers {
		ended := c.State == runtime.Exited && (pod.Spec.RestartPolicy == v1.RestartPolicyAlways || pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure && c.ExitCode != 0)
		if ended || c.State == runtime.Running && in.ProbeResults[c.ID].Liveness == runtime.Failing {
			if err := r.cloud.Restart(string(pod.UID), c.Name); err != nil {
				return result, fmt.Errorf("restart %s: %w", c.Name, err)
			}
			result.Acted = true
		}
	}
	return result, nil
}

func order(pod *v1.Pod) Machine {
	m := Machine{Name: string(pod.UID), Tags: map[string]string{"namespace": pod.Namespace, "name": pod.Name}}
	for _, c := range pod.Spec.Containers {
		m.Apps = append(m.Apps, App{Name: c.Name, Image: c.Image, Command: append(slices.Clone(c.Command), c.Args...)})
	}
	return m
}

// Stop shuts the machine down. The cloud has no notion of grace.
func (r Runtime) Stop(ctx context.Context, _ *v1.Pod, seen runtime.Pod, _ runtime.Termination) error {
	return r.cloud.Shut(ctx, string(seen.UID))
}

// Remove gives the machine back, once how its applications ended needs not be read any more.
func (r Runtime) Remove(ctx context.Context, uid types.UID, what runtime.Removal) error {
	if what == runtime.Release {
		return nil
	}
	return r.cloud.GiveBack(ctx, string(uid))
}

// Exec runs a command, for probes.
func (r Runtime) Exec(ctx context.Context, id string, cmd []string) (runtime.ExecResult, error) {
	part := strings.Split(id, "/")
	if len(part) != 3 {
		return runtime.ExecResult{}, runtime.ErrNotFound
	}
	out, code, err := r.cloud.Run(ctx, part[0], part[1], cmd)
	if errors.Is(err, ErrNoMachine) {
		err = runtime.ErrNotFound
	}
	return runtime.ExecResult{Code: code, Output: []byte(out)}, err
}

// Logs is the log of an application; the cloud keeps none of the start before.
func (r Runtime) Logs(ctx context.Context, pod *v1.Pod, container string, previous bool, _ logs.Options) (io.ReadCloser, error) {
	if previous {
		return nil, fmt.Errorf("the log before the last start: %w", errors.ErrUnsupported)
	}
	text, err := r.cloud.Log(ctx, string(pod.UID), container)
	return io.NopCloser(strings.NewReader(text)), err
}
