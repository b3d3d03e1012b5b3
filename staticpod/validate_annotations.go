package staticpod

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// appArmorAnnotations checks the profiles that annotations name, as manifests of old do: they count where a container has no field.
func (v *validator) appArmorAnnotations(at *field.Path) {
	profiles := map[string]*v1.AppArmorProfile{} // by container
	eachContainer(v.spec, func(c *v1.Container, _ *field.Path) {
		profiles[c.Name] = nil
		if sc := v.spec.SecurityContext; sc != nil {
			profiles[c.Name] = sc.AppArmorProfile
		}
		if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
			profiles[c.Name] = sc.AppArmorProfile
		}
	})
	for _, key := range slices.Sorted(maps.Keys(v.pod.Annotations)) {
		name, ok := strings.CutPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		at, value := at.Key(short(key)), v.pod.Annotations[key]
		profile, there := profiles[name]
		named, known := annotatedProfile(value)
		switch {
		case !there:
			v.add(at, "%s is no container of this pod; name one, or remove it", quote(name))
		case !known:
			v.add(at, "%s is no profile; use runtime/default, unconfined or localhost/name", quote(value))
		case profile != nil && !equality.Semantic.DeepEqual(profile, named) && !windows(v.spec):
			v.add(at, "%s is another profile than the field appArmorProfile has; remove the annotation", quote(value))
		}
	}
}

func windows(s *v1.PodSpec) bool { return s.OS != nil && s.OS.Name == v1.Windows }

// annotatedProfile is the profile that an annotation names; the empty one names none.
func annotatedProfile(value string) (profile *v1.AppArmorProfile, known bool) {
	path, local := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case value == "":
		return nil, true
	case value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}, true
	case value == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}, true
	case local:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &path}, true
	}
	return nil, false
}
