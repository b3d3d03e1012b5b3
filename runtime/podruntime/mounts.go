package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/network"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// mounts are the volumes in the order of the spec, then /etc/hosts.
func (r *Runtime) mounts(ctx context.Context, m *making, env *environ, ips []string) (mounts []runtime.Mount, devices []runtime.Device, err error) {
	pod, spec := m.pod, m.spec
	for i := range spec.VolumeMounts {
		mount, err := r.volumeMount(ctx, m, i, env)
		if err != nil {
			return nil, nil, err
		}
		mounts = append(mounts, mount)
	}
	for _, d := range spec.VolumeDevices {
		v, ok := m.in.Volumes[d.Name]
		if !ok || v.Device == "" {
			return nil, nil, fmt.Errorf("cannot find volume %q to pass into container %q: it is no block device in place", d.Name, spec.Name)
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
	return mounts, devices, nil
}

// mountLastWords adds the file for the termination message. It comes last: of a container that cannot be described no file is left,
// however often it is tried.
func (r *Runtime) mountLastWords(c *runtime.ContainerConfig, spec *v1.Container) error {
	if spec.TerminationMessagePath == "" || r.cfg.Root == "" {
		return nil
	}
	place, err := r.files.terminationFile(c.Pod.UID, spec.Name)
	if err != nil {
		return err
	}
	c.Mounts = append(c.Mounts, runtime.Mount{HostPath: place, ContainerPath: lastWordsPath(spec.TerminationMessagePath), Relabel: r.cfg.Kernel.SELinux})
	return nil
}

// lastWordsPath is where a container finds that file: from its root on, in whatever way it is written.
func lastWordsPath(p string) string { return path.Join("/", p) }

// volumeMount is mount number i of the container.
func (r *Runtime) volumeMount(ctx context.Context, m *making, i int, env *environ) (runtime.Mount, error) {
	vm := &m.spec.VolumeMounts[i]
	v, ok := m.in.Volumes[vm.Name]
	if !ok {
		return runtime.Mount{}, fmt.Errorf("cannot find volume %q to mount into container %q: it is not in place", vm.Name, m.spec.Name)
	}
	if v.Check != nil {
		if err := v.Check(); err != nil {
			return runtime.Mount{}, fmt.Errorf("volume %q of container %q: %w", vm.Name, m.spec.Name, err)
		}
	}
	mount := runtime.Mount{
		HostPath: v.Path, Image: v.Image, ContainerPath: path.Join("/", vm.MountPath), ReadOnly: vm.ReadOnly || v.ReadOnly,
		Relabel: v.Relabel && r.cfg.Kernel.SELinux,
	}
	if vm.MountPath != "" && path.IsAbs(vm.MountPath) {
		mount.ContainerPath = vm.MountPath
	}
	if pulled, ok := m.images[vm.Name]; ok {
		mount.Image, mount.UserImage = pulled.Image, pulled.UserImage
	}
	if vm.MountPropagation != nil {
		mount.Propagation = string(*vm.MountPropagation)
	}
	within, err := subpath(vm, env)
	if err != nil {
		return mount, err
	}
	if mount.Recursive, err = r.recursive(ctx, m, vm); err != nil {
		return mount, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	switch {
	case within == "":
		return mount, nil
	case mount.Image != "":
		mount.SubPath = within
		return mount, nil
	case r.cfg.Subpaths == nil:
		return mount, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: it needs a volume manager, and this agent has none", vm.Name, m.spec.Name)
	}
	host, done, err := r.cfg.Subpaths.Subpath(ctx, m.pod.UID, vm.Name, m.spec.Name, i, within)
	if err != nil {
		return mount, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name, m.spec.Name, err)
	}
	m.undo = append(m.undo, done)
	mount.HostPath = host
	return mount, nil
}

// subpath is the path within the volume, one that needs no look at the volume to be refused. In an expression every variable
// must be there and say something.
func subpath(vm *v1.VolumeMount, env *environ) (string, error) {
	within := vm.SubPath
	var missing []string
	if vm.SubPathExpr != "" {
		within = podspec.Expand(vm.SubPathExpr, func(name string) (string, bool) {
			value, ok := env.lookup(name)
			if value == "" {
				missing = append(missing, name)
			}
			return value, ok
		})
	}
	switch {
	case len(missing) > 0:
		slices.Sort(missing)
		return "", fmt.Errorf("missing value for %s", strings.Join(slices.Compact(missing), ", "))
	case path.IsAbs(within):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", within)
	case slices.Contains(strings.Split(within, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", within)
	}
	return within, nil
}

// recursive says whether mounts below a read-only one are to be read-only, too.
func (r *Runtime) recursive(ctx context.Context, m *making, vm *v1.VolumeMount) (bool, error) {
	if vm.RecursiveReadOnly == nil || *vm.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	switch p := vm.MountPropagation; {
	case !vm.ReadOnly:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	case p != nil && *p != v1.MountPropagationNone:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", vm.Name, *p)
	}
	h, err := r.handler(ctx, m.config.Handler)
	switch {
	case err != nil:
		return false, fmt.Errorf("ask the runtime: %w", err)
	case *vm.RecursiveReadOnly == v1.RecursiveReadOnlyIfPossible:
		return h.RecursiveRO, nil
	case *vm.RecursiveReadOnly != v1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("unknown recursive read-only mode %q", *vm.RecursiveReadOnly)
	case !h.RecursiveRO:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", vm.Name)
	}
	return true, nil
}

// hostsMount writes the pod's /etc/hosts, unless the container brings its own or the pod has no address to put there.
func (r *Runtime) hostsMount(pod *v1.Pod, c *v1.Container, ips []string) (*runtime.Mount, error) {
	const place = "/etc/hosts"
	own := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return path.Clean(m.MountPath) == place })
	if own || r.cfg.Root == "" || len(ips) == 0 && !pod.Spec.HostNetwork {
		return nil, nil
	}
	name, domain, err := network.Hostname(pod, r.cfg.DNS().Domain)
	if err != nil {
		return nil, err
	}
	var host []byte
	if pod.Spec.HostNetwork {
		if host, err = os.ReadFile(place); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read the host's %s: %w", place, err)
		}
	}
	file := r.files.hosts(pod.UID)
	if err := writeShared(file, network.Hosts(pod, ips, name, domain, host)); err != nil {
		return nil, fmt.Errorf("write the pod's %s: %w", place, err)
	}
	return &runtime.Mount{HostPath: file, ContainerPath: place, Relabel: r.cfg.Kernel.SELinux}, nil
}
