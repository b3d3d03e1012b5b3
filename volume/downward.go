package volume

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// pick adds a file for each item.
func (m *Manager) pick(to payload, pod *v1.Pod, items []v1.DownwardAPIVolumeFile, defaultMode *int32) error {
	var errs []error
	for _, item := range items {
		value, err := m.value(pod, item)
		if err != nil {
			errs = append(errs, fmt.Errorf("file %q: %w", item.Path, err))
			continue
		}
		f := file{data: []byte(value), mode: modeOf(defaultMode)}
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
