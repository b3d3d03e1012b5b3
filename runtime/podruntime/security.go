package podruntime

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
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
func (r *Runtime) security(pod *v1.Pod, c *v1.Container, img runtime.Image, volumes map[string]runtime.Volume) (s runtime.Security, err error) {
	ps, cs := podSecurity(pod), c.SecurityContext
	if cs == nil {
		cs = &v1.SecurityContext{}
	}
	s.UID, s.GID = or(cs.RunAsUser, ps.RunAsUser), or(cs.RunAsGroup, ps.RunAsGroup)
	if err := imageUser(&s, img, or(cs.RunAsNonRoot, ps.RunAsNonRoot)); err != nil {
		return s, fmt.Errorf("%w (pod: %q, container: %s)", err, pod.Name+"_"+pod.Namespace+"("+string(pod.UID)+")", c.Name)
	}
	if err := podGroups(&s, ps, nil); err != nil {
		return s, err
	}
	s.Groups = append(s.Groups, volumeGroups(volumes)...)
	s.Privileged, s.ReadOnlyRoot = isTrue(cs.Privileged), isTrue(cs.ReadOnlyRootFilesystem)
	s.NoNewPrivileges = cs.AllowPrivilegeEscalation != nil && !*cs.AllowPrivilegeEscalation
	if cs.Capabilities != nil {
		s.AddCaps, s.DropCaps = capabilities(cs.Capabilities.Add), capabilities(cs.Capabilities.Drop)
	}
	if s.Seccomp, err = r.seccomp(or(cs.SeccompProfile, ps.SeccompProfile)); err != nil {
		return s, err
	}
	if s.AppArmor, err = appArmor(pod, c); err != nil {
		return s, err
	}
	s.SELinux = seLinux(or(cs.SELinuxOptions, ps.SELinuxOptions))
	if cs.ProcMount == nil || *cs.ProcMount != v1.UnmaskedProcMount {
		s.MaskedPaths, s.ReadonlyPaths = append(maskedPaths(), r.cfg.Kernel.Masked...), readonlyPaths()
	}
	return s, nil
}

// imageUser fills in the image's user and refuses root where the pod must not be root.
func imageUser(s *runtime.Security, img runtime.Image, nonRoot *bool) error {
	mustNot := isTrue(nonRoot)
	if s.UID != nil {
		if mustNot && *s.UID == 0 {
			return errors.New("container's runAsUser breaks non-root policy")
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
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root", s.Username)
	case *s.UID == 0:
		return errors.New("container has runAsNonRoot and image will run as root")
	case *s.UID < 0 || *s.UID > math.MaxInt32: // who cuts such a number down may get root
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)); set runAsUser", *s.UID, math.MaxInt32)
	}
	return nil
}

// sandboxSecurity is what the sandbox itself may do: the pod's fields alone.
func sandboxSecurity(pod *v1.Pod, volumes map[string]runtime.Volume) (runtime.Security, error) {
	ps := podSecurity(pod)
	s := runtime.Security{UID: ps.RunAsUser, GID: ps.RunAsGroup, SELinux: seLinux(ps.SELinuxOptions), Seccomp: runtime.Profile{Type: runtime.RuntimeDefault}}
	for _, c := range podspec.Containers(pod) {
		s.Privileged = s.Privileged || c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
	}
	err := podGroups(&s, ps, volumeGroups(volumes))
	return s, err
}

// volumeGroups are those by which volumes are readable.
func volumeGroups(volumes map[string]runtime.Volume) (groups []int64) {
	for _, v := range volumes {
		groups = append(groups, v.ExtraGroups...)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// podGroups are those of the pod beside the user's own: that of its files, others, those it names.
func podGroups(s *runtime.Security, ps *v1.PodSecurityContext, others []int64) error {
	if ps.FSGroup != nil {
		s.Groups = append(s.Groups, *ps.FSGroup)
	}
	s.Groups = append(s.Groups, others...)
	s.Groups = append(s.Groups, ps.SupplementalGroups...)
	if p := ps.SupplementalGroupsPolicy; p != nil {
		s.GroupsPolicy = string(*p)
		if *p != v1.SupplementalGroupsPolicyMerge && *p != v1.SupplementalGroupsPolicyStrict {
			return fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *p)
		}
	}
	return nil
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

func (r *Runtime) seccomp(p *v1.SeccompProfile) (runtime.Profile, error) {
	switch {
	case p == nil && r.cfg.SeccompDefault, p != nil && p.Type == v1.SeccompProfileTypeRuntimeDefault:
		return runtime.Profile{Type: runtime.RuntimeDefault}, nil
	case p == nil || p.Type != v1.SeccompProfileTypeLocalhost:
		return runtime.Profile{Type: runtime.Unconfined}, nil
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		return runtime.Profile{}, errors.New("localhostProfile must be set if seccompProfile type is Localhost")
	}
	return runtime.Profile{Type: runtime.Localhost, Path: filepath.Join(r.cfg.Root, "seccomp", filepath.Join("/", *p.LocalhostProfile))}, nil
}

// appArmor is the container's field, else the annotation that came before fields, else the pod's field.
func appArmor(pod *v1.Pod, c *v1.Container) (runtime.Profile, error) {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return appArmorOf(c.SecurityContext.AppArmorProfile)
	}
	switch old := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; {
	case old == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return runtime.Profile{Type: runtime.RuntimeDefault}, nil
	case old == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return runtime.Profile{Type: runtime.Unconfined}, nil
	case strings.HasPrefix(old, v1.DeprecatedAppArmorBetaProfileNamePrefix):
		return runtime.Profile{Type: runtime.Localhost, Path: strings.TrimPrefix(old, v1.DeprecatedAppArmorBetaProfileNamePrefix)}, nil
	}
	if p := podSecurity(pod).AppArmorProfile; p != nil {
		return appArmorOf(p)
	}
	return runtime.Profile{}, nil
}

func appArmorOf(p *v1.AppArmorProfile) (runtime.Profile, error) {
	switch p.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return runtime.Profile{Type: runtime.RuntimeDefault}, nil
	case v1.AppArmorProfileTypeUnconfined:
		return runtime.Profile{Type: runtime.Unconfined}, nil
	case v1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return runtime.Profile{}, errors.New("missing localhost apparmor profile name")
		}
		return runtime.Profile{Type: runtime.Localhost, Path: *p.LocalhostProfile}, nil
	}
	return runtime.Profile{}, fmt.Errorf("unknown apparmor profile type: %q", p.Type)
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
