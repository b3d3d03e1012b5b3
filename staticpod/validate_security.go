package staticpod

import (
	"math"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func isTrue(b *bool) bool { return b != nil && *b }

func privileged(c *v1.Container) *bool {
	if c.SecurityContext == nil {
		return nil
	}
	return c.SecurityContext.Privileged
}

func (v *validator) podSecurity() {
	s, at := v.spec, field.NewPath("spec")
	if isTrue(s.ShareProcessNamespace) && s.HostPID {
		v.add(at.Child("shareProcessNamespace"), "cannot be combined with hostPID")
	}
	if s.HostUsers != nil && !*s.HostUsers {
		for _, host := range []struct {
			field string
			set   bool
		}{{"hostNetwork", s.HostNetwork}, {"hostPID", s.HostPID}, {"hostIPC", s.HostIPC}} {
			if host.set {
				v.add(at.Child(host.field), "cannot be combined with hostUsers false")
			}
		}
	}
	sc := s.SecurityContext
	at = at.Child("securityContext")
	v.id(at.Child("runAsUser"), sc.RunAsUser)
	v.id(at.Child("runAsGroup"), sc.RunAsGroup)
	v.id(at.Child("fsGroup"), sc.FSGroup)
	for i := range sc.SupplementalGroups {
		v.id(at.Child("supplementalGroups").Index(i), &sc.SupplementalGroups[i])
	}
	if sc.SupplementalGroupsPolicy != nil {
		oneOf(v.report, at.Child("supplementalGroupsPolicy"), *sc.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	}
	if sc.FSGroupChangePolicy != nil {
		oneOf(v.report, at.Child("fsGroupChangePolicy"), *sc.FSGroupChangePolicy, v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)
	}
	if sc.SELinuxChangePolicy != nil {
		oneOf(v.report, at.Child("seLinuxChangePolicy"), *sc.SELinuxChangePolicy, v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption)
	}
	v.seccomp(sc.SeccompProfile, at.Child("seccompProfile"))
	v.appArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))
	v.sysctls(sc.Sysctls, at.Child("sysctls"))
	v.windows(sc.WindowsOptions, at.Child("windowsOptions"))
}

func (v *validator) security(sc *v1.SecurityContext, at *field.Path) {
	if sc == nil {
		return
	}
	v.id(at.Child("runAsUser"), sc.RunAsUser)
	v.id(at.Child("runAsGroup"), sc.RunAsGroup)
	if sc.ProcMount != nil {
		oneOf(v.report, at.Child("procMount"), *sc.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
		if *sc.ProcMount == v1.UnmaskedProcMount && (v.spec.HostUsers == nil || *v.spec.HostUsers) {
			v.add(at.Child("procMount"), "Unmasked needs hostUsers false in the pod")
		}
	}
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if isTrue(sc.Privileged) {
			v.add(at.Child("allowPrivilegeEscalation"), "cannot be false in a privileged container")
		}
		if sc.Capabilities != nil {
			for i, c := range sc.Capabilities.Add {
				if c == "CAP_SYS_ADMIN" {
					v.add(at.Child("capabilities", "add").Index(i), "CAP_SYS_ADMIN cannot be combined with allowPrivilegeEscalation false")
				}
			}
		}
	}
	v.seccomp(sc.SeccompProfile, at.Child("seccompProfile"))
	v.appArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))
	v.windows(sc.WindowsOptions, at.Child("windowsOptions"))
}

func (v *validator) id(at *field.Path, id *int64) {
	if id != nil && (*id < 0 || *id > math.MaxInt32) {
		v.add(at, "%d is out of range; 0 to %d", *id, math.MaxInt32)
	}
}

func (v *validator) seccomp(p *v1.SeccompProfile, at *field.Path) {
	if p == nil {
		return
	}
	oneOf(v.report, at.Child("type"), p.Type, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeUnconfined)
	v.localProfile(p.LocalhostProfile, p.Type == v1.SeccompProfileTypeLocalhost, at.Child("localhostProfile"))
	if p.LocalhostProfile != nil {
		v.descending(at.Child("localhostProfile"), *p.LocalhostProfile)
	}
}

func (v *validator) appArmor(p *v1.AppArmorProfile, at *field.Path) {
	if p == nil {
		return
	}
	oneOf(v.report, at.Child("type"), p.Type, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeUnconfined)
	v.localProfile(p.LocalhostProfile, p.Type == v1.AppArmorProfileTypeLocalhost, at.Child("localhostProfile"))
	if l := p.LocalhostProfile; l != nil && (*l != strings.TrimSpace(*l) || len(*l) > 4095) {
		v.add(at.Child("localhostProfile"), "is too long or has blanks around it")
	}
}

func (v *validator) localProfile(p *string, local bool, at *field.Path) {
	switch {
	case local && (p == nil || *p == ""):
		v.add(at, "is missing; type Localhost needs it")
	case !local && p != nil:
		v.add(at, "only counts with type Localhost; remove it")
	}
}

// Parts of letters and digits, with dots or slashes between them.
var sysctlForm = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

// sysctls checks the names; which are allowed on this node is for admission to say.
func (v *validator) sysctls(list []v1.Sysctl, at *field.Path) {
	seen := map[string]bool{}
	for i, s := range list {
		at := at.Index(i).Child("name")
		switch {
		case s.Name == "":
			v.add(at, "is missing")
		case len(s.Name) > 253 || !sysctlForm.MatchString(s.Name):
			v.add(at, "%s is not the name of a sysctl, like net.ipv4.ip_forward", quote(s.Name))
		case seen[s.Name]:
			v.add(at, "%s is set twice", quote(s.Name))
		}
		seen[s.Name] = true
	}
}

// windows refuses what is for Windows in a pod that says it is for Linux, and host processes without the
// network they need.
func (v *validator) windows(o *v1.WindowsSecurityContextOptions, at *field.Path) {
	if o == nil {
		return
	}
	if v.spec.OS != nil && v.spec.OS.Name == v1.Linux {
		v.add(at, "is for Windows, and this pod is for linux; remove it")
	}
	if isTrue(o.HostProcess) && !v.spec.HostNetwork {
		v.add(at.Child("hostProcess"), "needs hostNetwork true in the pod")
	}
}
