package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// files puts a volume in place that shows something else as files, or brings it up to date. What cannot be brought up to
// date stays as it is: containers that run read it, and others of the pod may start with it.
func (m *Manager) files(r request) (runtime.Volume, error) {
	dir := m.dir(r.pod.UID, kindOf(r.volume), r.volume.Name)
	files, err := m.payload(r)
	if err == nil {
		err = m.show(r, dir, files)
	}
	switch {
	case err == nil:
		delete(r.told, r.volume.Name)
	case !m.shown(r, dir):
		return runtime.Volume{}, err
	case !errors.Is(err, runtime.ErrInProgress):
		m.complain(r, err)
	}
	return runtime.Volume{Path: dir, ReadOnly: true, Relabel: true}, nil
}

// payload is what a volume shows.
func (m *Manager) payload(r request) (payload, error) {
	v, files := r.volume, payload{}
	var err error
	switch {
	case v.ConfigMap != nil:
		err = r.pickKeys(files, need{kind: kindConfigMap, name: v.ConfigMap.Name}, selection{v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional})
	case v.Secret != nil:
		err = r.pickKeys(files, need{kind: kindSecret, name: v.Secret.SecretName}, selection{v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional})
	case v.DownwardAPI != nil:
		err = m.pick(files, r.pod, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		err = m.projected(files, r)
	}
	return files, err
}

// inMemory says whether the files of a volume lie in memory. Those of a ConfigMap lie on the disk, as the kubelet's do.
func (r request) inMemory() bool { return r.volume.ConfigMap == nil }

// shown says whether all files of a volume were in place before.
func (m *Manager) shown(r request, dir string) bool {
	if r.inMemory() {
		if mounted, err := m.isMount(dir); err != nil || !mounted {
			return false
		}
	}
	_, err := os.Stat(filepath.Join(dir, data))
	return err == nil
}

// complain tells of a volume that cannot be brought up to date, unless that was told before.
func (m *Manager) complain(r request, err error) {
	if r.told[r.volume.Name] == err.Error() {
		return
	}
	r.told[r.volume.Name] = err.Error()
	pod := r.pod
	m.log.Warn("a volume cannot be brought up to date and stays as it is", "pod", pod.Name, "namespace", pod.Namespace, "uid", pod.UID, "volume", r.volume.Name, "err", err)
	m.cfg.Observe.Event(observe.Event{
		About: observe.Pod(pod.Namespace, pod.Name, string(pod.UID)), Warning: true,
		Reason: "FailedMount", Message: setUpFailed(r.volume.Name, err).Error(),
	})
}

// setUpFailed has the form of the kubelet's message, which people and programs look for.
func setUpFailed(volume string, err error) error {
	return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume, err)
}

// show has the files in their directory.
func (m *Manager) show(r request, dir string, files payload) error {
	err := m.makeEmpty(directory{
		dir: dir, marker: m.marker(r.pod.UID, "wrapped_"+r.volume.Name), memory: r.inMemory(), group: fsGroup(r.pod),
		size: least(memoryLimit(r.pod), m.nodeMemory()),
	})
	if err != nil {
		return err
	}
	nested, err := nestedMounts(r.pod, r.volume.Name)
	if err != nil {
		return err
	}
	give := func() { m.own(dir, fsGroup(r.pod), true) }
	if err := files.write(dir, nested, give, r.held); err != nil {
		return fmt.Errorf("write files: %w", err)
	}
	return nil
}
