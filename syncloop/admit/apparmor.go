package admit

import (
	"context"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// AppArmor refuses pods that ask for a profile which nobody could enforce. A pod that ran before, under an earlier agent, is
// not asked again.
type AppArmor struct {
	Enabled bool // the kernel enforces profiles
}

// AppArmorEnabled says whether the kernel of this machine enforces profiles.
func AppArmorEnabled() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(b), "Y")
}

// Admit refuses with AppArmor.
func (a AppArmor) Admit(_ context.Context, pod *v1.Pod, _ []*v1.Pod) error {
	if phase := pod.Status.Phase; phase != v1.PodPending && phase != "" {
		return nil
	}
	profiles := profilesOf(pod)
	enforced := func(p *v1.AppArmorProfile) bool { return p.Type != v1.AppArmorProfileTypeUnconfined }
	if !a.Enabled && slices.ContainsFunc(profiles, enforced) {
		return refuse("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
	}
	for _, p := range profiles {
		if p.Type == v1.AppArmorProfileTypeLocalhost && (p.LocalhostProfile == nil || strings.TrimSpace(*p.LocalhostProfile) == "") {
			return refuse("AppArmor", "Cannot enforce AppArmor: invalid empty AppArmor profile name")
		}
	}
	return nil
}

// profilesOf are all that a pod asks for, also by the annotations that came before the fields.
func profilesOf(pod *v1.Pod) (out []*v1.AppArmorProfile) {
	add := func(p *v1.AppArmorProfile) {
		if p != nil {
			out = append(out, p)
		}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		add(sc.AppArmorProfile)
	}
	container := func(sc *v1.SecurityContext) {
		if sc != nil {
			add(sc.AppArmorProfile)
		}
	}
	for i := range pod.Spec.InitContainers {
		container(pod.Spec.InitContainers[i].SecurityContext)
	}
	for i := range pod.Spec.Containers {
		container(pod.Spec.Containers[i].SecurityContext)
	}
	for i := range pod.Spec.EphemeralContainers {
		container(pod.Spec.EphemeralContainers[i].SecurityContext)
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			add(annotated(value))
		}
	}
	return out
}

// annotated is the profile that an annotation means. One that means none asks for enforcement all the same: whoever wrote it wanted
// something.
func annotated(value string) *v1.AppArmorProfile {
	name, local := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case value == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return nil
	case local:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
}
