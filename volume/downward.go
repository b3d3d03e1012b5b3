package volume

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// downwardAPI shows a pod to its own containers, as files.
func (m *Manager) downwardAPI(r request) (runtime.Volume, error) {
	source := r.volume.DownwardAPI
	files := payload{}
	if err := m.pick(files, r.pod, source.Items, source.DefaultMode); err != nil {
		return runtime.Volume{}, err
	}
	return m.show(r, files)
}

// projected joins several sources in one directory; of two files with the same path the later one counts.
func (m *Manager) projected(r request) (runtime.Volume, error) {
	source := r.volume.Projected
	files := payload{}
	var errs []error
	for _, s := range source.Sources {
		if s.DownwardAPI == nil {
			errs = append(errs, fmt.Errorf("this agent cannot project a source of kind %s, only downwardAPI", strings.Join(set(s), ", ")))
			continue
		}
		errs = append(errs, m.pick(files, r.pod, s.DownwardAPI.Items, source.DefaultMode))
	}
	if err := errors.Join(errs...); err != nil {
		return runtime.Volume{}, err
	}
	return m.show(r, files)
}

// pick adds a file for each item.
func (m *Manager) pick(to payload, pod *v1.Pod, items []v1.DownwardAPIVolumeFile, defaultMode *int32) error {
	mode := v1.DownwardAPIVolumeSourceDefaultMode
	if defaultMode != nil {
		mode = *defaultMode
	}
	var errs []error
	for _, item := range items {
		value, err := m.value(pod, item)
		if err != nil {
			errs = append(errs, fmt.Errorf("file %q: %w", item.Path, err))
			continue
		}
		f := file{data: []byte(value), mode: mode}
		if item.Mode != nil {
			f.mode = *item.Mode
		}
		errs = append(errs, to.add(item.Path, f))
	}
	return errors.Join(errs...)
}

func (m *Manager) value(pod *v1.Pod, item v1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil:
		return field(pod, item.FieldRef.FieldPath)
	case item.ResourceFieldRef != nil:
		return m.amount(pod, item.ResourceFieldRef)
	}
	return "", errors.New("has neither fieldRef nor resourceFieldRef")
}

// field is one of the pod's own fields. Only those may be shown that are known before the pod runs.
func field(pod *v1.Pod, path string) (string, error) {
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	}
	return "", fmt.Errorf("fieldRef %q cannot be shown in a file", path)
}

// subscript reads field['key'].
func subscript(path, field string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, field+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// lines writes a map as key="value", in order.
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(out, "\n")
}

// amount is a request or limit of a container in units of the divisor, rounded up. A limit it does not have is what the
// node has.
func (m *Manager) amount(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
	all := containers(pod)
	i := slices.IndexFunc(all, func(c *v1.Container) bool { return c.Name == ref.ContainerName })
	if i < 0 {
		return "", fmt.Errorf("resourceFieldRef: the pod has no container %q", ref.ContainerName)
	}
	kind, what, _ := strings.Cut(ref.Resource, ".")
	name := v1.ResourceName(what)
	var q resource.Quantity
	switch kind {
	case "requests":
		q = all[i].Resources.Requests[name]
	case "limits":
		q = all[i].Resources.Limits[name]
		if n := m.cfg.Node(); q.IsZero() && n != nil && !strings.HasPrefix(what, v1.ResourceHugePagesPrefix) {
			q = n.Status.Allocatable[name]
		}
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

// ceil divides and rounds up.
func ceil(a, b int64) int64 {
	b = max(b, 1)
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// show has the files in their directory, which lies in memory.
func (m *Manager) show(r request, files payload) (runtime.Volume, error) {
	dir := m.dir(r.pod.UID, kindOf(r.volume), r.volume.Name)
	err := m.makeEmpty(directory{
		dir: dir, marker: m.marker(r.pod.UID, "wrapped_"+r.volume.Name), memory: true, group: fsGroup(r.pod),
		size: least(memoryLimit(r.pod), m.nodeMemory()),
	})
	if err != nil {
		return runtime.Volume{}, err
	}
	nested, err := nestedMounts(r.pod, r.volume.Name)
	if err != nil {
		return runtime.Volume{}, err
	}
	give := func() { m.own(dir, fsGroup(r.pod), true) }
	if err := files.write(dir, nested, give, r.held); err != nil {
		return runtime.Volume{}, fmt.Errorf("write files: %w", err)
	}
	return runtime.Volume{Path: dir, ReadOnly: true, Relabel: true}, nil
}
