package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
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
		if source.Medium != v1.StorageMediumHugePages && !strings.HasPrefix(string(source.Medium), string(v1.StorageMediumHugePagesPrefix)) {
			return runtime.Volume{}, fmt.Errorf("this agent has no emptyDir with medium %q, only the disk, %q and %q", source.Medium, v1.StorageMediumMemory, v1.StorageMediumHugePages)
		}
		var err error
		if e.pages, err = pagesOf(r.pod, source.Medium); err != nil {
			return runtime.Volume{}, err
		}
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
	pages       string // of this size is the memory it is in, such as 2Mi; empty: of the usual one, or it is in none
	size        int64  // bytes, of one in memory; 0: the kernel's default
	group       *int64
}

// makeEmpty makes a directory unless it was made completely before: its marker comes last, and one in memory must still be
// mounted, which it is not after the machine was started again.
func (m *Manager) makeEmpty(e directory) error {
	ready := filepath.Join(e.marker, "ready")
	mounted, mounts := false, e.memory || e.pages != ""
	if mounts {
		var err error
		if mounted, err = m.isMount(e.dir); err != nil {
			return err
		}
	}
	if exists(ready) && exists(e.dir) && mounted == mounts {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(e.dir), 0o750); err != nil {
		return err
	}
	if err := makeDir(e.dir, 0o777); err != nil {
		return err
	}
	if mounts && !mounted {
		mount := m.mountMemory
		if e.pages != "" {
			mount = m.mountPages
		}
		if err := mount(e); err != nil {
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
	err := m.cfg.Mounter.MountSensitiveWithoutSystemd("tmpfs", e.dir, "tmpfs", append(options, "noswap"), nil)
	if err == nil {
		return nil
	}
	m.log.Debug("this kernel has no tmpfs that is never swapped out", "err", err)
	if err := m.cfg.Mounter.MountSensitiveWithoutSystemd("tmpfs", e.dir, "tmpfs", options, nil); err != nil {
		return fmt.Errorf("mount memory: %w", err)
	}
	return nil
}

// mountPages mounts a file system in huge pages, open to all as every empty directory: the kernel's own way lets in root alone.
func (m *Manager) mountPages(e directory) error {
	options := []string{"pagesize=" + e.pages, "mode=0777"}
	if err := m.cfg.Mounter.MountSensitiveWithoutSystemd("nodev", e.dir, "hugetlbfs", options, nil); err != nil {
		return fmt.Errorf("mount huge pages of %s: %w", e.pages, err)
	}
	return nil
}

// pagesOf is the size of huge pages that a medium means, as the pod asks for them: the one it names, else the only one.
func pagesOf(pod *v1.Pod, medium v1.StorageMedium) (string, error) {
	lists := []v1.ResourceList{}
	if pod.Spec.Resources != nil {
		lists = append(lists, pod.Spec.Resources.Requests)
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		lists = append(lists, c.Resources.Requests)
	}
	asked := map[int64]string{}
	for _, list := range lists {
		for name := range list {
			size, huge := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			if q, err := resource.ParseQuantity(size); huge && err == nil {
				asked[q.Value()] = q.String()
			}
		}
	}
	all := strings.Join(slices.Sorted(maps.Values(asked)), ", ")
	named, one := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	switch q, err := resource.ParseQuantity(named); {
	case one && err != nil:
		return "", fmt.Errorf("emptyDir medium %q: %q is no size of pages; it is written like HugePages-2Mi", medium, named)
	case len(asked) == 0:
		return "", fmt.Errorf("emptyDir medium %q: no container asks for huge pages, such as by a limit of hugepages-2Mi", medium)
	case one && asked[q.Value()] == "":
		return "", fmt.Errorf("emptyDir medium %q: no container asks for huge pages of that size, only of %s", medium, all)
	case one:
		return q.String(), nil
	case len(asked) > 1:
		return "", fmt.Errorf("emptyDir medium %q: containers ask for huge pages of several sizes, %s; name one of them, like HugePages-2Mi", medium, all)
	}
	return all, nil
}

// memoryLimit is what the pod's cgroup is limited to, 0 when it has no limit: one container without leaves the pod without.
func memoryLimit(pod *v1.Pod) int64 {
	if !podspec.Limited(pod, v1.ResourceMemory) {
		return 0
	}
	limits := podspec.Limits(pod)
	return limits.Memory().Value()
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
