package podruntime

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// maskedPaths are what a container must not see of /proc and /sys, unless it asks for procMount Unmasked.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

// readonlyPaths are what it must not write to.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// security is what a container may do, from its own fields, else its pod's, else the image's user.
func security(pod *v1.Pod, c *v1.Container, img runtime.Image, root string) (s runtime.Security, err error) {
	ps, cs := podSecurity(pod), c.SecurityContext
	if cs == nil {
		cs = &v1.SecurityContext{}
	}
	s.UID, s.GID = or(cs.RunAsUser, ps.RunAsUser), or(cs.RunAsGroup, ps.RunAsGroup)
	if err := imageUser(&s, img, or(cs.RunAsNonRoot, ps.RunAsNonRoot)); err != nil {
		return s, err
	}
	if ps.FSGroup != nil {
		s.Groups = append(s.Groups, *ps.FSGroup)
	}
	s.Groups = append(s.Groups, ps.SupplementalGroups...)
	if ps.SupplementalGroupsPolicy != nil {
		s.GroupsPolicy = string(*ps.SupplementalGroupsPolicy)
	}
	s.Privileged, s.ReadOnlyRoot = isTrue(cs.Privileged), isTrue(cs.ReadOnlyRootFilesystem)
	s.NoNewPrivileges = cs.AllowPrivilegeEscalation != nil && !*cs.AllowPrivilegeEscalation
	if cs.Capabilities != nil {
		s.AddCaps, s.DropCaps = capabilities(cs.Capabilities.Add), capabilities(cs.Capabilities.Drop)
	}
	if s.Seccomp, err = seccomp(or(cs.SeccompProfile, ps.SeccompProfile), root); err != nil {
		return s, err
	}
	if s.AppArmor, err = appArmor(pod, c.Name, or(cs.AppArmorProfile, ps.AppArmorProfile)); err != nil {
		return s, err
	}
	s.SELinux = seLinux(or(cs.SELinuxOptions, ps.SELinuxOptions))
	if cs.ProcMount == nil || *cs.ProcMount != v1.UnmaskedProcMount {
		s.MaskedPaths, s.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	return s, nil
}

// imageUser fills in the image's user and refuses root where the pod must not be root.
func imageUser(s *runtime.Security, img runtime.Image, nonRoot *bool) error {
	mustNot := isTrue(nonRoot)
	if s.UID != nil {
		if mustNot && *s.UID == 0 {
			return errors.New("runAsNonRoot is set, but runAsUser is 0; choose another user")
		}
		return nil
	}
	switch {
	case img.UID != nil:
		s.UID = img.UID
	case img.User != "":
		s.Username = img.User
	default:
		s.UID = new(int64(0))
	}
	switch {
	case !mustNot:
	case s.Username != "":
		return fmt.Errorf("runAsNonRoot is set, and the image's user %q is a name, so it cannot be told whether it is root; set runAsUser to a number", s.Username)
	case *s.UID == 0:
		return errors.New("runAsNonRoot is set, and the image runs as root; set runAsUser")
	}
	return nil
}

// sandboxSecurity is what the sandbox itself may do: the pod's fields alone.
func sandboxSecurity(pod *v1.Pod) runtime.Security {
	ps := podSecurity(pod)
	s := runtime.Security{UID: ps.RunAsUser, GID: ps.RunAsGroup, SELinux: seLinux(ps.SELinuxOptions), Seccomp: runtime.Profile{Type: runtime.RuntimeDefault}}
	if ps.FSGroup != nil {
		s.Groups = append(s.Groups, *ps.FSGroup)
	}
	s.Groups = append(s.Groups, ps.SupplementalGroups...)
	for _, c := range allContainers(pod) {
		s.Privileged = s.Privileged || c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
	}
	return s
}

func namespaces(pod *v1.Pod) runtime.Namespaces {
	return runtime.Namespaces{
		HostNetwork: pod.Spec.HostNetwork, HostPID: pod.Spec.HostPID, HostIPC: pod.Spec.HostIPC,
		SharePID: !pod.Spec.HostPID && isTrue(pod.Spec.ShareProcessNamespace),
	}
}

func podSecurity(pod *v1.Pod) *v1.PodSecurityContext {
	if pod.Spec.SecurityContext == nil {
		return &v1.PodSecurityContext{}
	}
	return pod.Spec.SecurityContext
}

func seccomp(p *v1.SeccompProfile, root string) (runtime.Profile, error) {
	if p == nil {
		return runtime.Profile{Type: runtime.Unconfined}, nil
	}
	switch p.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		return runtime.Profile{Type: runtime.RuntimeDefault}, nil
	case v1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return runtime.Profile{}, errors.New("seccomp profile Localhost names no localhostProfile")
		}
		return runtime.Profile{Type: runtime.Localhost, Path: filepath.Join(root, "seccomp", filepath.Join("/", *p.LocalhostProfile))}, nil
	default:
		return runtime.Profile{Type: runtime.Unconfined}, nil
	}
}

// appArmor reads the field, else the annotation that came before it.
func appArmor(pod *v1.Pod, container string, p *v1.AppArmorProfile) (runtime.Profile, error) {
	if p == nil {
		switch old := pod.Annotations["container.apparmor.security.beta.kubernetes.io/"+container]; {
		case old == "runtime/default":
			return runtime.Profile{Type: runtime.RuntimeDefault}, nil
		case old == "unconfined":
			return runtime.Profile{Type: runtime.Unconfined}, nil
		case strings.HasPrefix(old, "localhost/"):
			return runtime.Profile{Type: runtime.Localhost, Path: strings.TrimPrefix(old, "localhost/")}, nil
		}
		return runtime.Profile{}, nil
	}
	switch p.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return runtime.Profile{Type: runtime.RuntimeDefault}, nil
	case v1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return runtime.Profile{}, errors.New("AppArmor profile Localhost names no localhostProfile")
		}
		return runtime.Profile{Type: runtime.Localhost, Path: *p.LocalhostProfile}, nil
	default:
		return runtime.Profile{Type: runtime.Unconfined}, nil
	}
}

func seLinux(o *v1.SELinuxOptions) *runtime.SELinux {
	if o == nil {
		return nil
	}
	return &runtime.SELinux{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func capabilities(in []v1.Capability) []string {
	out := make([]string, 0, len(in))
	for _, c := range in {
		out = append(out, string(c))
	}
	return out
}

func or[T any](own, pod *T) *T {
	if own != nil {
		return own
	}
	return pod
}

func isTrue(b *bool) bool { return b != nil && *b }
