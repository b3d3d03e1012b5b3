package volume

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
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
		value, ok := podspec.Field(pod, item.FieldRef.FieldPath)
		if !ok {
			return "", fmt.Errorf("fieldRef %q cannot be shown in a file", item.FieldRef.FieldPath)
		}
		return value, nil
	case item.ResourceFieldRef != nil:
		return podspec.Amount(pod, nil, item.ResourceFieldRef, m.allocatable())
	}
	return "", errors.New("has neither fieldRef nor resourceFieldRef")
}

func (m *Manager) allocatable() v1.ResourceList {
	if n := m.cfg.Node(); n != nil {
		return n.Status.Allocatable
	}
	return nil
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
