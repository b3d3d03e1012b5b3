package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// emptyDir makes a directory that lives as long as the pod.
func (m *Manager) emptyDir(r request) (runtime.Volume, error) {
	var source v1.EmptyDirVolumeSource
	if r.volume.EmptyDir != nil {
		source = *r.volume.EmptyDir
	}
	dir := m.dir(r.pod.UID, "empty-dir", r.volume.Name)
	e := directory{dir: dir, marker: m.marker(r.pod.UID, r.volume.Name), group: fsGroup(r.pod)}
	switch source.Medium {
	case v1.StorageMediumDefault:
	case v1.StorageMediumMemory:
		e.memory = true
		if source.SizeLimit != nil {
			e.size = source.SizeLimit.Value()
		}
		e.size = least(e.size, memoryLimit(r.pod), m.nodeMemory())
	default:
		return runtime.Volume{}, fmt.Errorf("this agent has no emptyDir with medium %q, only the disk and %q", source.Medium, v1.StorageMediumMemory)
	}
	if err := m.makeEmpty(e); err != nil {
		return runtime.Volume{}, err
	}
	return runtime.Volume{Path: dir, Relabel: true}, nil
}

// directory is an empty directory to be made.
type directory struct {
	dir, marker string
	memory      bool
	size        int64 // bytes, of one in memory; 0: the kernel's default
	group       *int64
}

// makeEmpty makes a directory unless it was made completely before: its marker comes last, and one in memory must still be
// mounted, which it is not after the machine was started again.
func (m *Manager) makeEmpty(e directory) error {
	ready := filepath.Join(e.marker, "ready")
	mounted := false
	if e.memory {
		var err error
		if mounted, err = m.isMount(e.dir); err != nil {
			return err
		}
	}
	if exists(ready) && exists(e.dir) && mounted == e.memory {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(e.dir), 0o750); err != nil {
		return err
	}
	if err := makeDir(e.dir, 0o777); err != nil {
		return err
	}
	if e.memory && !mounted {
		if err := m.mountMemory(e); err != nil {
			return err
		}
	}
	m.own(e.dir, e.group, false)
	if err := os.MkdirAll(e.marker, 0o750); err != nil {
		return err
	}
	return os.WriteFile(ready, nil, 0o640)
}

// mountMemory mounts a tmpfs, one that is never swapped out if the kernel can do that.
func (m *Manager) mountMemory(e directory) error {
	var options []string
	if e.size > 0 {
		options = []string{"size=" + strconv.FormatInt(e.size, 10)}
	}
	err := m.mounter().MountSensitiveWithoutSystemd("tmpfs", e.dir, "tmpfs", append(options, "noswap"), nil)
	if err == nil {
		return nil
	}
	m.log.Debug("this kernel has no tmpfs that is never swapped out", "err", err)
	if err := m.mounter().MountSensitiveWithoutSystemd("tmpfs", e.dir, "tmpfs", options, nil); err != nil {
		return fmt.Errorf("mount memory: %w", err)
	}
	return nil
}

// memoryLimit is what the pod's cgroup is limited to, 0 when it has no limit: one container without leaves the pod without.
func memoryLimit(pod *v1.Pod) int64 {
	overhead := pod.Spec.Overhead.Memory().Value()
	if r := pod.Spec.Resources; r != nil && !r.Limits.Memory().IsZero() {
		return r.Limits.Memory().Value() + overhead
	}
	var sum, sidecars, peak int64
	for _, c := range pod.Spec.Containers {
		if c.Resources.Limits.Memory().IsZero() {
			return 0
		}
		sum += c.Resources.Limits.Memory().Value()
	}
	for _, c := range pod.Spec.InitContainers {
		limit := c.Resources.Limits.Memory().Value()
		if limit == 0 {
			return 0
		}
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sidecars += limit
			limit = 0
		}
		peak = max(peak, sidecars+limit)
	}
	if sum = max(sum+sidecars, peak); sum > 0 {
		sum += overhead
	}
	return sum
}

// nodeMemory is what all pods together can have, 0 when it is not known.
func (m *Manager) nodeMemory() int64 {
	if n := m.cfg.Node(); n != nil {
		if q := n.Status.Allocatable.Memory(); !q.IsZero() {
			return q.Value()
		}
	}
	return m.cfg.Memory
}

// least is the least of those that are known.
func least(of ...int64) (l int64) {
	for _, n := range of {
		if n > 0 && (l == 0 || n < l) {
			l = n
		}
	}
	return l
}

// makeDir makes one directory with these permissions, whatever the umask; bits beyond them that it has stay.
func makeDir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", path)
	case info.Mode().Perm() == mode:
		return nil
	}
	return os.Chmod(path, mode)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// fsGroup is the group that is to own the pod's volumes, nil for none in particular.
func fsGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
