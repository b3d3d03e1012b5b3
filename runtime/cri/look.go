package cri

import (
	"cmp"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// This file reads what a runtime answers.

func listedSandbox(s *cri.PodSandbox) runtime.Sandbox {
	return runtime.Sandbox{
		PodRef: sandboxPod(s.GetMetadata()), ID: s.GetId(), Attempt: s.GetMetadata().GetAttempt(),
		Ready:   s.GetState() == cri.PodSandboxState_SANDBOX_READY,
		Created: at(s.GetCreatedAt()),
		Labels:  s.GetLabels(), Annotations: s.GetAnnotations(), Handler: s.GetRuntimeHandler(),
	}
}

func seenSandbox(s *cri.PodSandboxStatus) runtime.Sandbox {
	return runtime.Sandbox{
		PodRef: sandboxPod(s.GetMetadata()), ID: s.GetId(), Attempt: s.GetMetadata().GetAttempt(),
		Ready:   s.GetState() == cri.PodSandboxState_SANDBOX_READY,
		Created: at(s.GetCreatedAt()),
		Labels:  s.GetLabels(), Annotations: s.GetAnnotations(), Handler: s.GetRuntimeHandler(),
		IPs: addresses(s.GetNetwork()), NetworkKnown: s.GetNetwork() != nil,
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_NODE,
	}
}

// addresses are all addresses of a sandbox, or none when one makes no sense.
func addresses(n *cri.PodSandboxNetworkStatus) []string {
	var list []string
	if n.GetIp() != "" {
		list = append(list, n.GetIp())
	}
	for _, a := range n.GetAdditionalIps() {
		list = append(list, a.GetIp())
	}
	for _, a := range list {
		if _, err := netip.ParseAddr(a); err != nil {
			return nil
		}
	}
	return list
}

func listedContainer(c *cri.Container) runtime.Container {
	return runtime.Container{
		Pod: containerPod(c.GetLabels()), ID: c.GetId(), Name: c.GetMetadata().GetName(),
		SandboxID: c.GetPodSandboxId(), Restarts: int(c.GetMetadata().GetAttempt()),
		Image: userImage(c.GetImage()), ImageID: cmp.Or(c.GetImageId(), c.GetImage().GetImage()),
		State: state(c.GetState()), Created: at(c.GetCreatedAt()),
		Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
	}
}

// seenContainer is all but the sandbox's ID, which the answer does not have.
func seenContainer(s *cri.ContainerStatus) runtime.Container {
	c := runtime.Container{
		Pod: containerPod(s.GetLabels()), ID: s.GetId(), Name: s.GetMetadata().GetName(),
		Restarts: int(s.GetMetadata().GetAttempt()),
		Image:    userImage(s.GetImage()), ImageID: cmp.Or(s.GetImageId(), s.GetImage().GetImage()), ImageRef: s.GetImageRef(),
		State: state(s.GetState()), Created: at(s.GetCreatedAt()),
		Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		Resources: seenResources(s.GetResources().GetLinux()), LogPath: s.GetLogPath(),
	}
	for _, m := range s.GetMounts() {
		c.Mounts = append(c.Mounts, seenMount(m))
	}
	if u := s.GetUser().GetLinux(); u != nil {
		c.User = &runtime.User{UID: u.GetUid(), GID: u.GetGid(), Groups: u.GetSupplementalGroups()}
	}
	if c.State != runtime.Created {
		c.Started = at(s.GetStartedAt())
	}
	if c.State == runtime.Exited {
		c.Finished, c.ExitCode = at(s.GetFinishedAt()), s.GetExitCode()
		c.Reason, c.Message = s.GetReason(), s.GetMessage()
	}
	return c
}

func seenMount(m *cri.Mount) runtime.Mount {
	return runtime.Mount{
		HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(),
		Image: m.GetImage().GetImage(), SubPath: m.GetImageSubPath(),
		ReadOnly: m.GetReadonly(), Recursive: m.GetRecursiveReadOnly(), Relabel: m.GetSelinuxRelabel(),
		Propagation: propagationNames()[m.GetPropagation()],
	}
}

func sandboxPod(m *cri.PodSandboxMetadata) runtime.PodRef {
	return runtime.PodRef{Namespace: m.GetNamespace(), Name: m.GetName(), UID: types.UID(m.GetUid())}
}

// containerPod reads the labels: a container's metadata does not name its pod.
func containerPod(labels map[string]string) runtime.PodRef {
	return runtime.PodRef{
		Namespace: labels[runtime.LabelPodNamespace], Name: labels[runtime.LabelPodName],
		UID: types.UID(labels[runtime.LabelPodUID]),
	}
}

func userImage(i *cri.ImageSpec) string { return cmp.Or(i.GetUserSpecifiedImage(), i.GetImage()) }

func state(s cri.ContainerState) runtime.State {
	switch s {
	case cri.ContainerState_CONTAINER_CREATED:
		return runtime.Created
	case cri.ContainerState_CONTAINER_RUNNING:
		return runtime.Running
	case cri.ContainerState_CONTAINER_EXITED:
		return runtime.Exited
	default:
		return runtime.Unknown
	}
}

// at reads nanoseconds since 1970; zero is no time.
func at(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}
