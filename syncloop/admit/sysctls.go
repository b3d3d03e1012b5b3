package admit

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
)

// Sysctls refuses pods that set kernel parameters they must not. Allowed are those that are safe (a pod has them for
// itself and cannot harm others with them) and those of Unsafe; of both only what is not shared with the host.
type Sysctls struct {
	Unsafe []string // names the operator allows too; * at the end stands for any rest
	Kernel string   // release of the kernel, as uname says it; empty means new enough for all safe ones
}

// safe are the safe sysctls and the kernel since which each is a pod's own, empty for as long as anyone remembers.
var safe = map[string]string{ //nolint:gochecknoglobals // constant
	"kernel.shm_rmid_forced":              "",
	"net.ipv4.ip_local_port_range":        "",
	"net.ipv4.ip_unprivileged_port_start": "",
	"net.ipv4.ping_group_range":           "",
	"net.ipv4.tcp_syncookies":             "",
	"net.ipv4.ip_local_reserved_ports":    "3.16",
	"net.ipv4.tcp_keepalive_intvl":        "4.5",
	"net.ipv4.tcp_keepalive_probes":       "4.5",
	"net.ipv4.tcp_keepalive_time":         "4.5",
	"net.ipv4.tcp_fin_timeout":            "4.6",
	"net.ipv4.tcp_notsent_lowat":          "4.6",
	"net.ipv4.tcp_rmem":                   "4.15",
	"net.ipv4.tcp_slow_start_after_idle":  "4.15",
	"net.ipv4.tcp_wmem":                   "4.15",
}

// patternForm is a name of parts with dots or slashes between them; the last part may end in *.
var patternForm = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`)

// Check says what is wrong with Unsafe: names that are none, or of parameters that no pod has for itself. It is for the
// program to call before it starts; Admit takes what is wrong for allowing nothing.
func (s Sysctls) Check() error {
	for _, pattern := range s.Unsafe {
		if len(pattern) > 253 || !patternForm.MatchString(pattern) {
			return fmt.Errorf("unsafe sysctl %q is not a name, nor one with * at the end", pattern)
		}
		if ns, name, _ := sysctl.GetNamespace(pattern); ns == sysctl.UnknownNamespace {
			return fmt.Errorf("unsafe sysctl %q belongs to the whole node: no pod has %s for itself", pattern, name)
		}
	}
	return nil
}

// Admit refuses with SysctlForbidden.
func (s Sysctls) Admit(_ context.Context, pod *v1.Pod, _ []*v1.Pod) error {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	shared := map[sysctl.Namespace]bool{
		sysctl.NetNamespace: pod.Spec.HostNetwork, sysctl.IPCNamespace: pod.Spec.HostIPC,
		sysctl.UserNamespace: pod.Spec.HostUsers == nil || *pod.Spec.HostUsers,
	}
	for _, one := range pod.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(one.Name)
		ns, allowed := s.allows(name)
		if !allowed {
			return refuse("SysctlForbidden", "forbidden sysctl: %q not allowlisted", name)
		}
		if shared[ns] {
			return refuse("SysctlForbidden", "forbidden sysctl: %q not allowed with host %s enabled", name, ns)
		}
	}
	return nil
}

// allows says whether a sysctl may be set, and in which namespace it lies.
func (s Sysctls) allows(name string) (sysctl.Namespace, bool) {
	if since, ok := safe[name]; ok && s.kernelSince(since) {
		ns, _, _ := sysctl.GetNamespace(name)
		return ns, true
	}
	i := slices.IndexFunc(s.Unsafe, func(pattern string) bool {
		_, known, rest := sysctl.GetNamespace(pattern)
		return name == known || rest && strings.HasPrefix(name, known)
	})
	if i < 0 {
		return "", false
	}
	ns, _, _ := sysctl.GetNamespace(s.Unsafe[i])
	return ns, ns != sysctl.UnknownNamespace
}

func (s Sysctls) kernelSince(release string) bool {
	if release == "" || s.Kernel == "" {
		return true
	}
	have, err := version.ParseGeneric(s.Kernel)
	return err == nil && have.AtLeast(version.MustParseGeneric(release))
}
