package staticpod

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// resources checks requests and limits; name checks the name of one resource.
func (v *validator) resources(r *v1.ResourceRequirements, at *field.Path, name func(*field.Path, v1.ResourceName)) {
	sized, huge := false, false
	each := func(l v1.ResourceList, at *field.Path) {
		for _, n := range names(l) {
			at := at.Key(short(string(n)))
			name(at, n)
			v.amount(at, n, l[n])
			sized = sized || n == v1.ResourceCPU || n == v1.ResourceMemory
			huge = huge || hugePages(n)
		}
	}
	each(r.Limits, at.Child("limits"))
	each(r.Requests, at.Child("requests"))
	for _, n := range names(r.Requests) {
		request, at := r.Requests[n], at.Child("requests").Key(short(string(n)))
		limit, limited := r.Limits[n]
		switch {
		case !limited && !overcommit(n):
			v.add(at, "needs a limit of the same size")
		case limited && request.Cmp(limit) != 0 && !overcommit(n):
			v.add(at, "must be equal to the limit: %s and %s", &request, &limit)
		case limited && request.Cmp(limit) > 0:
			v.add(at, "is above the limit: %s and %s", &request, &limit)
		}
	}
	if huge && !sized {
		v.add(at, "asks for huge pages alone; add cpu or memory")
	}
}

func (v *validator) amount(at *field.Path, name v1.ResourceName, q resource.Quantity) {
	if q.Sign() < 0 {
		v.add(at, "%s is negative", &q)
	}
	switch {
	case hugePages(name):
		size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
		if err != nil || size.Value() <= 0 || q.Value()%size.Value() != 0 {
			v.add(at, "%s is not a multiple of the page size", &q)
		}
	case !native(name) && q.MilliValue()%1000 != 0:
		v.add(at, "%s is not a whole number", &q)
	}
}

// native says that a resource is Kubernetes' own: it has no domain, or one of kubernetes.io.
func native(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// overcommit says that a limit above the request is possible.
func overcommit(name v1.ResourceName) bool { return native(name) && !hugePages(name) }

func (v *validator) containerResource(at *field.Path, name v1.ResourceName) {
	switch {
	case name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage:
	case hugePages(name):
		size := strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix)
		if quantity(size) != nil {
			v.add(at, "is not the name of a resource; huge pages are like hugepages-2Mi")
		}
	case !strings.Contains(string(name), "/"):
		v.add(at, "is not the name of a resource; use cpu, memory, ephemeral-storage, hugepages-2Mi or a name with a domain")
	case len(validation.IsQualifiedName(string(name))) > 0,
		!native(name) && (strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix) ||
			len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+string(name))) > 0):
		v.add(at, "is not the name of a resource; use domain/name in letters, digits, '-', '_' and '.'")
	}
}

func (v *validator) podResource(at *field.Path, name v1.ResourceName) {
	if name != v1.ResourceCPU && name != v1.ResourceMemory && !hugePages(name) {
		v.add(at, "cannot be set for the pod as a whole; use cpu, memory or huge pages")
	}
}

// podResources checks the sizes of the pod as a whole and compares them with those of its containers.
func (v *validator) podResources() {
	at := field.NewPath("spec", "resources")
	v.resources(&v1.ResourceRequirements{Limits: v.spec.Overhead}, field.NewPath("spec", "overhead"), v.containerResource)
	r := v.spec.Resources
	if r == nil {
		return
	}
	if v.spec.OS != nil && v.spec.OS.Name == v1.Windows {
		v.add(at, "cannot be set for Windows")
		return
	}
	if len(r.Claims) > 0 {
		v.add(at.Child("claims"), "cannot be set for the pod as a whole")
	}
	v.resources(r, at, v.podResource)
	sum := podspec.Sum(v.spec, func(c *v1.Container) v1.ResourceList { return c.Resources.Requests })
	v.holds(r.Requests, sum, at.Child("requests"))
	limits := podspec.Sum(v.spec, func(c *v1.Container) v1.ResourceList { return c.Resources.Limits })
	for _, n := range names(limits) {
		if hugePages(n) {
			v.holds(r.Limits, v1.ResourceList{n: limits[n]}, at.Child("limits"))
		}
	}
	for i := range v.spec.Containers {
		at := field.NewPath("spec", "containers").Index(i).Child("resources", "limits")
		for _, n := range names(v.spec.Containers[i].Resources.Limits) {
			limit := v.spec.Containers[i].Resources.Limits[n]
			if pod, ok := r.Limits[n]; ok && limit.Cmp(pod) > 0 {
				v.add(at.Key(short(string(n))), "%s is above the limit of the pod, %s", &limit, &pod)
			}
		}
	}
}

// holds reports what the pod as a whole has less of than its containers together.
func (v *validator) holds(pod, sum v1.ResourceList, at *field.Path) {
	for _, n := range names(sum) {
		total := sum[n]
		if have, ok := pod[n]; ok && total.Cmp(have) > 0 {
			v.add(at.Key(short(string(n))), "%s is less than what the containers ask for together, %s", &have, &total)
		}
	}
}

func (v *validator) resizePolicy(c *v1.Container, at *field.Path) {
	seen := map[v1.ResourceName]bool{}
	for i, p := range c.ResizePolicy {
		at := at.Index(i)
		oneOf(v.report, at.Child("resourceName"), p.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		oneOf(v.report, at.Child("restartPolicy"), p.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		if seen[p.ResourceName] {
			v.add(at.Child("resourceName"), "%s is named twice", quote(p.ResourceName))
		}
		seen[p.ResourceName] = true
		if v.spec.RestartPolicy == v1.RestartPolicyNever && p.RestartPolicy == v1.RestartContainer {
			v.add(at.Child("restartPolicy"), "must be NotRequired in a pod that restarts nothing")
		}
	}
}

// Amounts of a container that a variable or a file can hold.
func resourceField(name string) bool {
	for _, prefix := range []string{"limits.", "requests."} {
		switch what := strings.TrimPrefix(name, prefix); {
		case what == name:
		case what == "cpu", what == "memory", what == "ephemeral-storage", strings.HasPrefix(what, v1.ResourceHugePagesPrefix):
			return true
		}
	}
	return false
}

func (v *validator) resourceFieldRef(f *v1.ResourceFieldSelector, at *field.Path, inVolume bool) {
	if inVolume && f.ContainerName == "" {
		v.add(at.Child("containerName"), "is missing")
	}
	if !resourceField(f.Resource) {
		v.add(at.Child("resource"), "%s is not known; use limits. or requests. with cpu, memory, ephemeral-storage or huge pages", quote(f.Resource))
	}
	at = at.Child("divisor")
	switch d := f.Divisor.String(); {
	case f.Divisor.IsZero() || !resourceField(f.Resource):
	case strings.HasSuffix(f.Resource, ".cpu") && d != "1" && d != "1m":
		v.add(at, "%s does not work with cpu; use 1 or 1m", quote(d))
	case !strings.HasSuffix(f.Resource, ".cpu") && !slices.Contains([]string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}, d):
		v.add(at, "%s does not work here; use 1 with a unit such as 1Mi", quote(d))
	}
}
