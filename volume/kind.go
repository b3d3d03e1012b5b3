package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// request asks for one volume of a pod.
type request struct {
	pod    *v1.Pod
	volume *v1.Volume
	held   bool // a container is being made with a part of it: old content stays a while
	before bool // it was in place at the last look

	answers map[need]answer   // of the API server
	told    map[string]string // by volume, what people were told that cannot be brought up to date
}

// mount puts one volume in place.
func (m *Manager) mount(ctx context.Context, r request) (runtime.Volume, error) {
	v := r.volume
	if err := checkName("volume name", v.Name); err != nil {
		return runtime.Volume{}, err
	}
	switch {
	case v.EmptyDir != nil:
		return m.emptyDir(r)
	case v.HostPath != nil:
		return hostPath(v.HostPath, r.before)
	case v.ConfigMap != nil, v.Secret != nil, v.DownwardAPI != nil, v.Projected != nil:
		return m.files(r)
	case v.Image != nil:
		return runtime.Volume{Image: v.Image.Reference, ReadOnly: true}, nil
	}
	sources := set(v.VolumeSource)
	if len(sources) == 0 { // the API's default
		return m.emptyDir(r)
	}
	if m.cfg.Other != nil {
		return m.other(ctx, r)
	}
	return runtime.Volume{}, fmt.Errorf("this agent cannot mount volumes of kind %s, only configMap, downwardAPI, emptyDir, hostPath, image, projected and secret",
		strings.Join(sources, ", "))
}

// other has somebody else put a volume in place.
func (m *Manager) other(ctx context.Context, r request) (runtime.Volume, error) {
	dir := m.dir(r.pod.UID, kindOf(r.volume), r.volume.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return runtime.Volume{}, err
	}
	v, err := m.cfg.Other(ctx, r.pod, r.volume, dir)
	if err == nil && v.Path == "" && v.Device == "" && v.Image == "" {
		err = errors.New("nobody says where it lies")
	}
	return v, err
}

// kindOf is the kubelet's name of a volume's kind, as directories and metrics have it.
func kindOf(v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "empty-dir"
	case v.HostPath != nil:
		return "host-path"
	case v.DownwardAPI != nil:
		return "downward-api"
	}
	if sources := set(v.VolumeSource); len(sources) > 0 {
		return strings.ToLower(sources[0])
	}
	return "empty-dir"
}

// lowerFirst is a kind as manifests have it: configMap.
func lowerFirst(kind string) string { return strings.ToLower(kind[:1]) + kind[1:] }

// set names the fields of a struct of pointers that are set, as a manifest does.
func set(source any) (names []string) {
	val := reflect.ValueOf(source)
	for i := range val.NumField() {
		if f := val.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(val.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}
