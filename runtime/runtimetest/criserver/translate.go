package criserver

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// This file reads what is asked of the runtime and writes what it shows, as far as the engine has use for it.

func sandboxConfig(c *cri.PodSandboxConfig) *runtime.SandboxConfig {
	m := c.GetMetadata()
	r := &runtime.SandboxConfig{
		Pod:     runtime.PodRef{Namespace: m.GetNamespace(), Name: m.GetName(), UID: types.UID(m.GetUid())},
		Attempt: m.GetAttempt(), Hostname: c.GetHostname(), LogDir: c.GetLogDirectory(),
		Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		CgroupParent: c.GetLinux().GetCgroupParent(), Sysctls: c.GetLinux().GetSysctls(),
		Resources: resources(c.GetLinux().GetResources()), Overhead: resources(c.GetLinux().GetOverhead()),
	}
	if o := c.GetLinux().GetSecurityContext().GetNamespaceOptions(); o != nil {
		r.Namespaces.HostNetwork = o.GetNetwork() == cri.NamespaceMode_NODE
		r.Namespaces.HostPID = o.GetPid() == cri.NamespaceMode_NODE
		r.Namespaces.HostIPC = o.GetIpc() == cri.NamespaceMode_NODE
		r.Namespaces.SharePID = o.GetPid() == cri.NamespaceMode_POD
	}
	if d := c.GetDnsConfig(); d != nil {
		r.DNS = &runtime.DNS{Servers: d.GetServers(), Searches: d.GetSearches(), Options: d.GetOptions()}
	}
	return r
}

func containerConfig(c *cri.ContainerConfig, of *cri.PodSandboxConfig) *runtime.ContainerConfig {
	r := &runtime.ContainerConfig{
		Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
		Image: c.GetImage().GetImage(), UserImage: c.GetImage().GetUserSpecifiedImage(),
		Command: c.GetCommand(), Args: c.GetArgs(), Dir: c.GetWorkingDir(),
		Labels: c.GetLabels(), Annotations: c.GetAnnotations(), LogPath: c.GetLogPath(),
		Stdin: c.GetStdin(), StdinOnce: c.GetStdinOnce(), TTY: c.GetTty(),
		Resources: resources(c.GetLinux().GetResources()), Sandbox: sandboxConfig(of),
	}
	r.Pod = r.Sandbox.Pod
	for _, v := range c.GetEnvs() {
		r.Env = append(r.Env, runtime.Env{Name: v.GetKey(), Value: string(v.GetValue())})
	}
	for _, m := range c.GetMounts() {
		r.Mounts = append(r.Mounts, runtime.Mount{
			HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), ReadOnly: m.GetReadonly(),
			Recursive: m.GetRecursiveReadOnly(), Relabel: m.GetSelinuxRelabel(),
			Image: m.GetImage().GetImage(), SubPath: m.GetImageSubPath(), Propagation: propagation(m.GetPropagation()),
		})
	}
	return r
}

func propagation(p cri.MountPropagation) string {
	switch p {
	case cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		return "HostToContainer"
	case cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return "Bidirectional"
	default:
		return ""
	}
}

func resources(k *cri.LinuxContainerResources) runtime.Resources {
	r := runtime.Resources{
		CPUShares: k.GetCpuShares(), CPUQuota: k.GetCpuQuota(), CPUPeriod: k.GetCpuPeriod(),
		Memory: k.GetMemoryLimitInBytes(), MemorySwap: k.GetMemorySwapLimitInBytes(), OOMScoreAdj: k.GetOomScoreAdj(),
		CPUs: k.GetCpusetCpus(), Mems: k.GetCpusetMems(), Unified: k.GetUnified(),
	}
	for _, h := range k.GetHugepageLimits() {
		if r.Hugepages == nil {
			r.Hugepages = map[string]uint64{}
		}
		r.Hugepages[h.GetPageSize()] = h.GetLimit()
	}
	return r
}

func metadata(p runtime.PodRef, attempt uint32) *cri.PodSandboxMetadata {
	return &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt}
}

func listedSandbox(b runtime.Sandbox) *cri.PodSandbox {
	return &cri.PodSandbox{
		Id: b.ID, Metadata: metadata(b.PodRef, b.Attempt), State: sandboxState(b), CreatedAt: nanos(b.Created),
		Labels: b.Labels, Annotations: b.Annotations, RuntimeHandler: b.Handler,
	}
}

func sandboxStatus(b runtime.Sandbox) *cri.PodSandboxStatus {
	s := &cri.PodSandboxStatus{
		Id: b.ID, Metadata: metadata(b.PodRef, b.Attempt), State: sandboxState(b), CreatedAt: nanos(b.Created),
		Labels: b.Labels, Annotations: b.Annotations, RuntimeHandler: b.Handler,
	}
	if b.NetworkKnown {
		s.Network = &cri.PodSandboxNetworkStatus{}
		for i, ip := range b.IPs {
			if i == 0 {
				s.Network.Ip = ip
				continue
			}
			s.Network.AdditionalIps = append(s.Network.AdditionalIps, &cri.PodIP{Ip: ip})
		}
	}
	if b.HostNetwork {
		s.Linux = &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}}}
	}
	return s
}

func sandboxState(b runtime.Sandbox) cri.PodSandboxState {
	if b.Ready {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

func listedContainer(c runtime.Container) *cri.Container {
	return &cri.Container{
		Id: c.ID, PodSandboxId: c.SandboxID, Metadata: &cri.ContainerMetadata{Name: c.Name, Attempt: uint32(c.Restarts)},
		Image: &cri.ImageSpec{Image: c.ImageID, UserSpecifiedImage: c.Image}, ImageRef: c.ImageID, ImageId: c.ImageID,
		State: state(c.State), CreatedAt: nanos(c.Created), Labels: c.Labels, Annotations: c.Annotations,
	}
}

func containerStatus(c runtime.Container) *cri.ContainerStatus {
	s := &cri.ContainerStatus{
		Id: c.ID, Metadata: &cri.ContainerMetadata{Name: c.Name, Attempt: uint32(c.Restarts)},
		State: state(c.State), CreatedAt: nanos(c.Created), StartedAt: nanos(c.Started), FinishedAt: nanos(c.Finished),
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
		Image: &cri.ImageSpec{Image: c.Image}, ImageRef: c.ImageRef, ImageId: c.ImageID,
		Labels: c.Labels, Annotations: c.Annotations, LogPath: c.LogPath,
	}
	if r := c.Resources; r != nil {
		s.Resources = &cri.ContainerResources{Linux: linuxResources(r)}
	}
	for _, m := range c.Mounts {
		s.Mounts = append(s.Mounts, &cri.Mount{
			HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.ReadOnly, RecursiveReadOnly: m.Recursive,
			SelinuxRelabel: m.Relabel, Image: &cri.ImageSpec{Image: m.Image}, ImageSubPath: m.SubPath,
			Propagation: mountPropagation(m.Propagation),
		})
	}
	return s
}

func mountPropagation(name string) cri.MountPropagation {
	switch name {
	case "HostToContainer":
		return cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case "Bidirectional":
		return cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return cri.MountPropagation_PROPAGATION_PRIVATE
	}
}

func linuxResources(r *runtime.Resources) *cri.LinuxContainerResources {
	k := &cri.LinuxContainerResources{
		CpuShares: r.CPUShares, CpuQuota: r.CPUQuota, CpuPeriod: r.CPUPeriod, MemoryLimitInBytes: r.Memory,
		MemorySwapLimitInBytes: r.MemorySwap, OomScoreAdj: r.OOMScoreAdj, CpusetCpus: r.CPUs, CpusetMems: r.Mems, Unified: r.Unified,
	}
	for size, limit := range r.Hugepages {
		k.HugepageLimits = append(k.HugepageLimits, &cri.HugepageLimit{PageSize: size, Limit: limit})
	}
	return k
}

func state(s runtime.State) cri.ContainerState {
	switch s {
	case runtime.Created:
		return cri.ContainerState_CONTAINER_CREATED
	case runtime.Running:
		return cri.ContainerState_CONTAINER_RUNNING
	case runtime.Exited:
		return cri.ContainerState_CONTAINER_EXITED
	default:
		return cri.ContainerState_CONTAINER_UNKNOWN
	}
}

// nanos since 1970; no time is zero.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
