package podruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/network"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

func refOf(pod *v1.Pod) runtime.PodRef {
	return runtime.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// sandboxConfig describes a pod's sandbox. It is the same at each call but for attempt and handler, so that an agent that was
// restarted names the sandbox as the one before it did.
func (r *Runtime) sandboxConfig(ctx context.Context, pod *v1.Pod, attempt uint32, handler string, in runtime.SyncInput) (*runtime.SandboxConfig, []string, error) {
	c := &runtime.SandboxConfig{
		Pod: refOf(pod), Attempt: attempt, LogDir: r.files.logDir(refOf(pod)), NetNS: in.Network.NetNS, Handler: handler,
		Namespaces: namespaces(pod), Resources: r.sizing().sandbox(pod), Overhead: r.sizing().overhead(pod),
		Ports: ports(pod), Annotations: pod.Annotations, Labels: maps.Clone(pod.Labels),
	}
	if r.cfg.Cgroups != nil {
		c.CgroupParent = r.cfg.Cgroups.Parent(pod)
	}
	dns := r.cfg.DNS()
	var err error
	if !pod.Spec.HostNetwork {
		name, domain, err := network.Hostname(pod, dns.Domain)
		if err != nil {
			return nil, nil, err
		}
		if c.Hostname, err = network.KernelHostname(pod, name, domain); err != nil {
			return nil, nil, err
		}
	}
	resolv, warnings := dns.For(pod)
	c.DNS = &runtime.DNS{Servers: resolv.Servers, Searches: resolv.Searches, Options: resolv.Options}
	if s := podSecurity(pod); len(s.Sysctls) > 0 {
		c.Sysctls = map[string]string{}
		for _, ctl := range s.Sysctls {
			c.Sysctls[strings.ReplaceAll(ctl.Name, "/", ".")] = ctl.Value
		}
	}
	if c.Security, err = sandboxSecurity(pod, in.Volumes); err != nil {
		return nil, nil, err
	}
	if c.Namespaces.Users, err = r.users(ctx, pod, c.Handler); err != nil {
		return nil, nil, err
	}
	return c, warnings, nil
}

// class is the handler of the pod's runtime class.
func (r *Runtime) class(pod *v1.Pod) (handler string, err error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	if r.cfg.Classes == nil {
		return "", fmt.Errorf("runtimeClassName %q: this agent knows no runtime classes", *name)
	}
	switch handler, err = r.cfg.Classes(*name); {
	case errors.Is(err, runtime.ErrNotFound):
		return "", fmt.Errorf("runtimeclass.node.k8s.io %q %w", *name, runtime.ErrNotFound)
	case err != nil:
		return "", fmt.Errorf("runtimeClassName %q: %w", *name, err)
	}
	return handler, nil
}

// ports are those of the regular containers, each once.
func ports(pod *v1.Pod) []runtime.PortMapping {
	var out []runtime.PortMapping
	for _, c := range pod.Spec.Containers {
		names := map[string]bool{}
		for _, p := range c.Ports {
			key := p.Name
			if key == "" {
				key = fmt.Sprintf("%s-%s-%d:%d", p.Protocol, p.HostIP, p.ContainerPort, p.HostPort)
			}
			if names[key] {
				continue
			}
			names[key] = true
			out = append(out, runtime.PortMapping{Protocol: string(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIP: p.HostIP})
		}
	}
	return out
}

// making is all that goes into one container instance.
type making struct {
	pod     *v1.Pod
	spec    *v1.Container
	kind    plan.Kind
	attempt uint32
	img     runtime.Image
	sandbox runtime.Sandbox
	config  *runtime.SandboxConfig
	in      runtime.SyncInput
	images  map[string]runtime.Mount // what there is of images that are mounted, by volume
	undo    []func()                 // when it is made or given up
}

func (m *making) done() {
	for _, f := range slices.Backward(m.undo) {
		f()
	}
}

// containerConfig describes one container instance. It makes the files the container is shown.
func (r *Runtime) containerConfig(ctx context.Context, m *making) (*runtime.ContainerConfig, error) {
	pod, spec := m.pod, m.spec
	ips := m.sandbox.IPs
	if len(m.in.Network.IPs) > 0 {
		ips = m.in.Network.IPs
	}
	f := facts{}
	if r.cfg.Node != nil {
		f.node = r.cfg.Node()
	}
	if r.cfg.HostIPs != nil {
		f.hostIPs = r.cfg.HostIPs()
	}
	ips = inOrder(ips, f.hostIPs)
	if f.ips = ips; pod.Spec.HostNetwork && len(ips) == 0 {
		f.ips = f.hostIPs
	}
	env, err := environment(ctx, &r.cfg, m, f)
	if err != nil {
		return nil, err
	}
	grant, err := r.grant(ctx, pod, spec)
	if err != nil {
		return nil, err
	}
	mounts, devices, err := r.mounts(ctx, m, env, ips)
	if err != nil {
		return nil, err
	}
	sec, err := r.security(pod, spec, m.img, m.in.Volumes)
	if err != nil {
		return nil, err
	}
	c := &runtime.ContainerConfig{
		Pod: refOf(pod), Name: spec.Name, Attempt: m.attempt, Image: m.img.ID, UserImage: spec.Image,
		Command: expandAll(spec.Command, env), Args: expandAll(spec.Args, env), Dir: spec.WorkingDir,
		Env: env.vars, Mounts: mounts, Devices: devices, LogPath: logFile(spec.Name, m.attempt),
		Stdin: spec.Stdin, StdinOnce: spec.StdinOnce, TTY: spec.TTY,
		Resources: r.sizing().container(pod, spec), Namespaces: m.config.Namespaces, Security: sec, Sandbox: m.config,
		Annotations: annotations(pod, spec, m.attempt),
	}
	if m.kind == plan.Ephemeral {
		if err := r.target(pod, m, c); err != nil {
			return nil, err
		}
	}
	grant.into(c)
	return c, nil
}

// target lets a debug container see the processes of the container it is to debug.
func (r *Runtime) target(pod *v1.Pod, m *making, c *runtime.ContainerConfig) error {
	for i := range pod.Spec.EphemeralContainers {
		e := &pod.Spec.EphemeralContainers[i]
		if e.Name != m.spec.Name || e.TargetContainerName == "" || c.Namespaces.HostPID || c.Namespaces.SharePID {
			continue
		}
		seen := m.in.Seen.Newest(e.TargetContainerName)
		if seen == nil {
			return fmt.Errorf("target container %q does not exist yet", e.TargetContainerName)
		}
		c.Namespaces.TargetPID = seen.ID
	}
	return nil
}

// annotations are what crictl and the next agent read back.
func annotations(pod *v1.Pod, c *v1.Container, attempt uint32) map[string]string {
	out := map[string]string{
		runtime.AnnotationHash:                     plan.Hash(c),
		runtime.AnnotationRestartCount:             strconv.FormatUint(uint64(attempt), 10),
		runtime.AnnotationTerminationMessagePath:   c.TerminationMessagePath,
		runtime.AnnotationTerminationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		out[runtime.AnnotationDeletionGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		out[runtime.AnnotationTerminationGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		out[runtime.AnnotationPreStopHandler] = jsonOf(c.Lifecycle.PreStop)
	}
	if len(c.Ports) > 0 {
		out[runtime.AnnotationPorts] = jsonOf(c.Ports)
	}
	return out
}

func jsonOf(v any) string {
	b, _ := json.Marshal(v) // API types: cannot fail
	return string(b)
}

func expandAll(in []string, env *environ) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = podspec.Expand(s, env.lookup)
	}
	return out
}
