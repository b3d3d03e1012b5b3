package nodestatus

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Machine is what is known of the host. stats.Machine has the same fields and converts to it.
type Machine struct {
	Cores     int             // logical ones
	Memory    int64           // bytes
	Swap      int64           // bytes; 0: none
	HugePages map[int64]int64 // number of pages by their size in bytes

	UserNamespace bool // this process is root only in a user namespace

	MachineID, SystemUUID, BootID string
	Kernel, OSImage               string
}

// MachineInfo sets what NodeInfo says of the host. machine is asked in each round: it may answer from memory.
func MachineInfo(machine func() (Machine, error)) Setter {
	return func(_ context.Context, node *v1.Node) error {
		m, err := machine()
		if err != nil {
			return fmt.Errorf("look at the machine: %w", err)
		}
		info := &node.Status.NodeInfo
		info.MachineID, info.SystemUUID, info.BootID = m.MachineID, m.SystemUUID, m.BootID
		info.KernelVersion, info.OSImage = m.Kernel, m.OSImage
		info.OperatingSystem, info.Architecture = goruntime.GOOS, goruntime.GOARCH
		info.RunningInUserNamespace = &m.UserNamespace
		info.Swap = nil
		if m.Swap > 0 {
			info.Swap = &v1.NodeSwapStatus{Capacity: &m.Swap}
		}
		return nil
	}
}

// VersionInfo sets the version by which schedulers and upgrades judge the node's abilities: that of the kubelet whose
// behaviour it has, like "v1.37.2". It clears the version of kube-proxy, which a kubelet does not know any more.
func VersionInfo(kubelet string) Setter {
	return func(_ context.Context, node *v1.Node) error {
		node.Status.NodeInfo.KubeletVersion = kubelet
		node.Status.NodeInfo.KubeProxyVersion = "" //nolint:staticcheck // deprecated: an older kubelet may have left one here
		return nil
	}
}

// DeclaredFeatures sets what a scheduler must know to place pods that need it: names of features, in any order.
func DeclaredFeatures(names ...string) Setter {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	return func(_ context.Context, node *v1.Node) error {
		node.Status.DeclaredFeatures = slices.Clone(names)
		return nil
	}
}

// VolumesInUse forgets the volumes that a kubelet before this agent had mounted, for which a controller waits before it
// detaches them from the node, as soon as none of them is mounted any more. mounted is asked only while there are any.
func VolumesInUse(mounted func() (bool, error)) Setter {
	return func(_ context.Context, node *v1.Node) error {
		if len(node.Status.VolumesInUse) == 0 {
			return nil
		}
		still, err := mounted()
		if err != nil {
			return fmt.Errorf("look for volumes in use: %w", err)
		}
		if !still {
			node.Status.VolumesInUse = nil
		}
		return nil
	}
}

// DaemonEndpoints sets the port of the node's HTTP API.
func DaemonEndpoints(port int32) Setter {
	return func(_ context.Context, node *v1.Node) error {
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
		return nil
	}
}
