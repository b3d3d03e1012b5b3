package podruntime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

// sandboxConfig describes a pod's sandbox. It is the same at each call but for attempt, so that an agent that was
// restarted names the sandbox as the one before it did.
func (r *Runtime) sandboxConfig(pod *v1.Pod, attempt uint32, net runtime.Network) (*runtime.SandboxConfig, []string, error) {
	c := &runtime.SandboxConfig{
		Pod: refOf(pod), Attempt: attempt, LogDir: r.files.logDir(refOf(pod)), NetNS: net.NetNS,
		Namespaces: namespaces(pod), Security: sandboxSecurity(pod), Resources: podResources(pod),
		Ports: ports(pod), Annotations: pod.Annotations, Labels: maps.Clone(pod.Labels),
	}
	if r.cfg.Cgroups != nil {
		c.CgroupParent = r.cfg.Cgroups.Parent(pod)
	}
	dns := r.cfg.DNS()
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
	if name := pod.Spec.RuntimeClassName; name != nil && *name != "" {
		if r.cfg.Classes == nil {
			return nil, nil, fmt.Errorf("runtimeClassName %q: this agent knows no runtime classes", *name)
		}
		handler, err := r.cfg.Classes(*name)
		switch {
		case errors.Is(err, runtime.ErrNotFound):
			return nil, nil, fmt.Errorf("runtimeclass.node.k8s.io %q %w", *name, runtime.ErrNotFound)
		case err != nil:
			return nil, nil, fmt.Errorf("runtimeClassName %q: %w", *name, err)
		}
		c.Handler = handler
	}
	return c, warnings, nil
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
	images  map[string]string // IDs of images that are mounted, by volume
	undo    []func()          // when it is made or given up
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
	sec, err := security(pod, spec, m.img, r.cfg.Root)
	if err != nil {
		return nil, err
	}
	mounts, devices, err := r.mounts(ctx, m, env, ips)
	if err != nil {
		return nil, err
	}
	c := &runtime.ContainerConfig{
		Pod: refOf(pod), Name: spec.Name, Attempt: m.attempt, Image: m.img.ID, UserImage: spec.Image,
		Command: expandAll(spec.Command, env), Args: expandAll(spec.Args, env), Dir: spec.WorkingDir,
		Env: env.vars, Mounts: mounts, Devices: devices, LogPath: logFile(spec.Name, m.attempt),
		Stdin: spec.Stdin, StdinOnce: spec.StdinOnce, TTY: spec.TTY,
		Resources: resources(pod, spec, r.cfg.Memory), Namespaces: namespaces(pod), Security: sec, Sandbox: m.config,
		Annotations: annotations(pod, spec, m.attempt),
	}
	if m.kind == plan.Ephemeral {
		if err := r.target(pod, m, c); err != nil {
			return nil, err
		}
	}
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

// mounts are the volumes in the order of the spec, then /etc/hosts and the file for the termination message.
func (r *Runtime) mounts(ctx context.Context, m *making, env *environ, ips []string) (mounts []runtime.Mount, devices []runtime.Device, err error) {
	pod, spec := m.pod, m.spec
	for i := range spec.VolumeMounts {
		mount, err := r.volumeMount(ctx, m, i, env)
		if err != nil {
			return nil, nil, fmt.Errorf("mount %s: %w", spec.VolumeMounts[i].MountPath, err)
		}
		mounts = append(mounts, mount)
	}
	for _, d := range spec.VolumeDevices {
		v, ok := m.in.Volumes[d.Name]
		if !ok || v.Device == "" {
			return nil, nil, fmt.Errorf("block volume %q of device %s is not in place", d.Name, d.DevicePath)
		}
		permissions := "mrw"
		if v.ReadOnly {
			permissions = "r"
		}
		devices = append(devices, runtime.Device{HostPath: v.Device, ContainerPath: d.DevicePath, Permissions: permissions})
	}
	if hosts, err := r.hostsMount(pod, spec, ips); err != nil {
		return nil, nil, err
	} else if hosts != nil {
		mounts = append(mounts, *hosts)
	}
	if spec.TerminationMessagePath != "" && r.cfg.Root != "" {
		path, err := r.files.terminationFile(pod.UID, spec.Name)
		if err != nil {
			return nil, nil, err
		}
		mounts = append(mounts, runtime.Mount{HostPath: path, ContainerPath: spec.TerminationMessagePath})
	}
	return mounts, devices, nil
}

// volumeMount is mount number i of the container.
func (r *Runtime) volumeMount(ctx context.Context, m *making, i int, env *environ) (runtime.Mount, error) {
	vm := &m.spec.VolumeMounts[i]
	v, ok := m.in.Volumes[vm.Name]
	if !ok {
		return runtime.Mount{}, fmt.Errorf("volume %q is not in place", vm.Name)
	}
	mount := runtime.Mount{HostPath: v.Path, Image: cmp.Or(m.images[vm.Name], v.Image), ContainerPath: vm.MountPath, ReadOnly: vm.ReadOnly || v.ReadOnly, Relabel: v.Relabel}
	if vm.MountPropagation != nil {
		mount.Propagation = string(*vm.MountPropagation)
	}
	mount.Recursive = vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled
	path, err := subpath(vm, env)
	switch {
	case err != nil || path == "":
		return mount, err
	case v.Image != "":
		mount.SubPath = path
		return mount, nil
	case r.cfg.Subpaths == nil:
		return mount, errors.New("subPath needs a volume manager, and this agent has none")
	}
	host, done, err := r.cfg.Subpaths.Subpath(ctx, m.pod.UID, vm.Name, m.spec.Name, i, path)
	if err != nil {
		return mount, err
	}
	m.undo = append(m.undo, done)
	mount.HostPath = host
	return mount, nil
}

// subpath is the path within the volume. In an expression every variable must be there and say something.
func subpath(vm *v1.VolumeMount, env *environ) (string, error) {
	if vm.SubPathExpr == "" {
		return vm.SubPath, nil
	}
	missing := ""
	path := podspec.Expand(vm.SubPathExpr, func(name string) (string, bool) {
		value, ok := env.lookup(name)
		if !ok || value == "" {
			missing = name
		}
		return value, ok
	})
	if missing != "" {
		return "", fmt.Errorf("subPathExpr %q: environment variable %s is not set or empty", vm.SubPathExpr, missing)
	}
	return path, nil
}

// hostsMount writes the pod's /etc/hosts, unless the container brings its own or the pod has no address to put there.
func (r *Runtime) hostsMount(pod *v1.Pod, c *v1.Container, ips []string) (*runtime.Mount, error) {
	const path = "/etc/hosts"
	own := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return filepath.Clean(m.MountPath) == path })
	if own || r.cfg.Root == "" || len(ips) == 0 && !pod.Spec.HostNetwork {
		return nil, nil
	}
	name, domain, err := network.Hostname(pod, r.cfg.DNS().Domain)
	if err != nil {
		return nil, err
	}
	var host []byte
	if pod.Spec.HostNetwork {
		if host, err = os.ReadFile(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read the host's %s: %w", path, err)
		}
	}
	file := r.files.hosts(pod.UID)
	if err := os.WriteFile(file, network.Hosts(pod, ips, name, domain, host), 0o644); err != nil {
		return nil, fmt.Errorf("write the pod's %s: %w", path, err)
	}
	return &runtime.Mount{HostPath: file, ContainerPath: path, Relabel: true}, nil
}

func expandAll(in []string, env *environ) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = podspec.Expand(s, env.lookup)
	}
	return out
}

// allContainers are containers of every kind.
func allContainers(pod *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range pod.Spec.InitContainers {
		out = append(out, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}
