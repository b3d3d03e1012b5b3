package cri

import (
	"cmp"
	"fmt"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func sandboxSecurity(s runtime.Security, n runtime.Namespaces) *cri.LinuxSandboxSecurityContext {
	return &cri.LinuxSandboxSecurityContext{
		NamespaceOptions:         namespaces(n),
		SelinuxOptions:           selinux(s.SELinux),
		RunAsUser:                number(s.UID),
		RunAsGroup:               number(s.GID),
		ReadonlyRootfs:           s.ReadOnlyRoot,
		SupplementalGroups:       s.Groups,
		SupplementalGroupsPolicy: groupsPolicy(s.GroupsPolicy),
		Privileged:               s.Privileged,
		Seccomp:                  profile(s.Seccomp),
		Apparmor:                 profile(s.AppArmor),
	}
}

func containerSecurity(s runtime.Security, n runtime.Namespaces) *cri.LinuxContainerSecurityContext {
	k := &cri.LinuxContainerSecurityContext{
		Privileged:               s.Privileged,
		NamespaceOptions:         namespaces(n),
		SelinuxOptions:           selinux(s.SELinux),
		RunAsUser:                number(s.UID),
		RunAsGroup:               number(s.GID),
		ReadonlyRootfs:           s.ReadOnlyRoot,
		SupplementalGroups:       s.Groups,
		SupplementalGroupsPolicy: groupsPolicy(s.GroupsPolicy),
		NoNewPrivs:               s.NoNewPrivileges,
		MaskedPaths:              s.MaskedPaths,
		ReadonlyPaths:            s.ReadonlyPaths,
		Seccomp:                  profile(s.Seccomp),
		Apparmor:                 profile(s.AppArmor),
		ApparmorProfile:          appArmorName(s.AppArmor), //nolint:staticcheck // CRI-O of some versions reads this one alone
	}
	if s.UID == nil {
		k.RunAsUsername = s.Username
	}
	if s.AddCaps != nil || s.DropCaps != nil {
		k.Capabilities = &cri.Capability{AddCapabilities: s.AddCaps, DropCapabilities: s.DropCaps}
	}
	return k
}

func namespaces(n runtime.Namespaces) *cri.NamespaceOption {
	o := &cri.NamespaceOption{
		Network: cri.NamespaceMode_POD, Ipc: cri.NamespaceMode_POD, Pid: cri.NamespaceMode_CONTAINER,
		UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_NODE},
	}
	if n.HostNetwork {
		o.Network = cri.NamespaceMode_NODE
	}
	if n.HostIPC {
		o.Ipc = cri.NamespaceMode_NODE
	}
	switch {
	case n.HostPID:
		o.Pid = cri.NamespaceMode_NODE
	case n.SharePID:
		o.Pid = cri.NamespaceMode_POD
	case n.TargetPID != "":
		o.Pid, o.TargetId = cri.NamespaceMode_TARGET, n.TargetPID
	}
	if len(n.Users) > 0 {
		o.UsernsOptions = &cri.UserNamespace{
			Mode: cri.NamespaceMode_POD, Uids: idMappings(n.Users), Gids: idMappings(n.Users),
		}
	}
	return o
}

func idMappings(users []runtime.IDMapping) []*cri.IDMapping {
	var list []*cri.IDMapping
	for _, u := range users {
		list = append(list, &cri.IDMapping{ContainerId: u.Container, HostId: u.Host, Length: u.Length})
	}
	return list
}

func selinux(o *runtime.SELinux) *cri.SELinuxOption {
	if o == nil {
		return nil
	}
	return &cri.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func profile(p runtime.Profile) *cri.SecurityProfile {
	switch p.Type {
	case runtime.RuntimeDefault:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
	case runtime.Unconfined:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	case runtime.Localhost:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: p.Path}
	default:
		return nil
	}
}

func appArmorName(p runtime.Profile) string {
	switch p.Type {
	case runtime.RuntimeDefault:
		return "runtime/default"
	case runtime.Unconfined:
		return "unconfined"
	case runtime.Localhost:
		return "localhost/" + p.Path
	default:
		return ""
	}
}

func groupsPolicy(name string) cri.SupplementalGroupsPolicy {
	return cri.SupplementalGroupsPolicy(cri.SupplementalGroupsPolicy_value[cmp.Or(name, "Merge")])
}

func number(n *int64) *cri.Int64Value {
	if n == nil {
		return nil
	}
	return &cri.Int64Value{Value: *n}
}

// stopSignal knows SIGTERM, SIGRTMIN+3, SIGRTMAX-14; empty is the image's.
func stopSignal(name string) (cri.Signal, error) {
	if name == "" {
		return cri.Signal_SIGNAL_RUNTIME_DEFAULT, nil
	}
	spelled := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)
	signal, ok := cri.Signal_value["SIGNAL_"+spelled]
	if !ok || !strings.HasPrefix(name, "SIG") {
		return 0, fmt.Errorf("unknown stop signal %q", name)
	}
	return cri.Signal(signal), nil
}
