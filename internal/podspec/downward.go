package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Field is one of those fields of a pod that never change while it runs, as the downward API shows it; ok is false for
// any other path.
func Field(pod *v1.Pod, path string) (value string, ok bool) {
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], true
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], true
	}
	switch path {
	case "metadata.name":
		return pod.Name, true
	case "metadata.namespace":
		return pod.Namespace, true
	case "metadata.uid":
		return string(pod.UID), true
	case "metadata.labels":
		return lines(pod.Labels), true
	case "metadata.annotations":
		return lines(pod.Annotations), true
	}
	return "", false
}

// subscript reads field['key'].
func subscript(path, field string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, field+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// lines writes a map as name="value", in order.
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(out, "\n")
}

// Amount is a request or limit of a container in units of the divisor, rounded up. The container is the one that ref names,
// else c. A limit it does not have is that of the pod as a whole, else what the node has; requests are what they are.
func Amount(pod *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	if ref.ContainerName != "" && (c == nil || ref.ContainerName != c.Name) {
		if c = find(pod, ref.ContainerName); c == nil {
			return "", fmt.Errorf("resourceFieldRef: the pod has no container %q", ref.ContainerName)
		}
	}
	if c == nil {
		return "", fmt.Errorf("resourceFieldRef: %s of which container?", ref.Resource)
	}
	kind, what, _ := strings.Cut(ref.Resource, ".")
	name := v1.ResourceName(what)
	var q resource.Quantity
	switch shown := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage || hugePages(name); {
	case shown && kind == "requests":
		q = c.Resources.Requests[name]
	case shown && kind == "limits":
		q = limit(pod, c, name, allocatable)
	default:
		return "", fmt.Errorf("resourceFieldRef: resource %q is not known", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == v1.ResourceCPU {
		return fmt.Sprint(ceil(q.MilliValue(), divisor.MilliValue())), nil
	}
	return fmt.Sprint(ceil(q.Value(), divisor.Value())), nil
}

func limit(pod *v1.Pod, c *v1.Container, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	q := c.Resources.Limits[name]
	if !q.IsZero() || hugePages(name) { // those are never shared: what is not said is none
		return q
	}
	if r := pod.Spec.Resources; r != nil && PodLevel(name) {
		q = r.Limits[name]
	}
	if q.IsZero() {
		q = allocatable[name]
	}
	return q
}

func hugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

func find(pod *v1.Pod, name string) *v1.Container {
	for _, all := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
	}
	return nil
}

// ceil divides and rounds up.
func ceil(a, b int64) int64 {
	b = max(b, 1)
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
