package cri

import (
	"fmt"
	"maps"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// sandboxConfig says in CRI what a sandbox is to be.
func sandboxConfig(c *runtime.SandboxConfig) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{
			Name: c.Pod.Name, Namespace: c.Pod.Namespace, Uid: string(c.Pod.UID), Attempt: c.Attempt,
		},
		Hostname:     c.Hostname,
		LogDirectory: c.LogDir,
		DnsConfig:    dnsConfig(c.DNS),
		PortMappings: portMappings(c.Ports),
		Labels:       identity(c.Labels, c.Pod, ""),
		Annotations:  c.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    c.CgroupParent,
			SecurityContext: sandboxSecurity(c.Security, c.Namespaces),
			Sysctls:         c.Sysctls,
			Overhead:        always(c.Overhead),
			Resources:       resources(c.Resources),
		},
	}
}

// containerConfig says in CRI what a container is to be.
func containerConfig(c *runtime.ContainerConfig) (*cri.ContainerConfig, error) {
	signal, err := stopSignal(c.StopSignal)
	if err != nil {
		return nil, err
	}
	mounts, err := mounts(c)
	if err != nil {
		return nil, err
	}
	k := &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
		Image:       &cri.ImageSpec{Image: c.Image, UserSpecifiedImage: c.UserImage},
		Command:     c.Command,
		Args:        c.Args,
		WorkingDir:  c.Dir,
		Mounts:      mounts,
		Labels:      identity(c.Labels, c.Pod, c.Name),
		Annotations: c.Annotations,
		LogPath:     c.LogPath,
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  signal,
		Linux: &cri.LinuxContainerConfig{
			Resources:       resources(c.Resources),
			SecurityContext: containerSecurity(c.Security, c.Namespaces),
		},
	}
	for _, v := range c.Env {
		k.Envs = append(k.Envs, &cri.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	for _, d := range c.Devices {
		k.Devices = append(k.Devices, &cri.Device{HostPath: d.HostPath, ContainerPath: d.ContainerPath, Permissions: d.Permissions})
	}
	for _, name := range c.CDI {
		k.CDIDevices = append(k.CDIDevices, &cri.CDIDevice{Name: name})
	}
	return k, nil
}

// identity is the given labels, and over them those by which everybody finds a pod again.
func identity(given map[string]string, pod runtime.PodRef, container string) map[string]string {
	m := make(map[string]string, len(given)+4)
	maps.Copy(m, given)
	m[runtime.LabelPodName] = pod.Name
	m[runtime.LabelPodNamespace] = pod.Namespace
	m[runtime.LabelPodUID] = string(pod.UID)
	if container != "" {
		m[runtime.LabelContainerName] = container
	}
	return m
}

func dnsConfig(d *runtime.DNS) *cri.DNSConfig {
	if d == nil {
		return nil
	}
	return &cri.DNSConfig{Servers: d.Servers, Searches: d.Searches, Options: d.Options}
}

func portMappings(ports []runtime.PortMapping) []*cri.PortMapping {
	var list []*cri.PortMapping
	for _, p := range ports {
		list = append(list, &cri.PortMapping{
			Protocol:      cri.Protocol(cri.Protocol_value[p.Protocol]), // one that is not known is TCP
			ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
		})
	}
	return list
}

// mounts says in CRI what is mounted; in a user namespace each mount shows its owners as the pod sees them.
func mounts(c *runtime.ContainerConfig) ([]*cri.Mount, error) {
	users := c.Namespaces.Users
	var out []*cri.Mount
	for _, m := range c.Mounts {
		propagation, ok := propagations()[m.Propagation]
		if !ok {
			return nil, fmt.Errorf("mount %s: unknown propagation %q", m.ContainerPath, m.Propagation)
		}
		k := &cri.Mount{
			ContainerPath: m.ContainerPath, HostPath: m.HostPath, Readonly: m.ReadOnly, RecursiveReadOnly: m.Recursive,
			SelinuxRelabel: m.Relabel, Propagation: propagation, ImageSubPath: m.SubPath,
			UidMappings: idMappings(users), GidMappings: idMappings(users),
		}
		if m.Image != "" {
			k.Image = &cri.ImageSpec{Image: m.Image, UserSpecifiedImage: m.UserImage}
			if c.Sandbox != nil {
				k.Image.Annotations = c.Sandbox.Annotations
			}
		}
		out = append(out, k)
	}
	return out, nil
}

func propagations() map[string]cri.MountPropagation {
	return map[string]cri.MountPropagation{
		"":                cri.MountPropagation_PROPAGATION_PRIVATE,
		"None":            cri.MountPropagation_PROPAGATION_PRIVATE,
		"HostToContainer": cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
		"Bidirectional":   cri.MountPropagation_PROPAGATION_BIDIRECTIONAL,
	}
}

func propagationNames() map[cri.MountPropagation]string {
	return map[cri.MountPropagation]string{
		cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: "HostToContainer",
		cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:     "Bidirectional",
	}
}
