package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Subpath makes a part of a volume that is in place available to one container: what lies at path within it is bound to a
// place of its own, host, which stays the same thing whatever happens in the volume. index is the number of the mount in the
// container. What does not exist becomes a directory with the permissions of the volume; what would lead out of the volume is
// refused. Asked again it answers the same place, bound anew if there is something else at path by now.
//
// done must be called once the container was made or is given up: until then no content is removed that may have been bound.
// It is never nil and may be called more than once. Unmount takes the place away.
func (m *Manager) Subpath(ctx context.Context, uid types.UID, volume, container string, index int, name string) (host string, done func(), err error) {
	nothing := func() {}
	if err := errors.Join(checkName("volume name", volume), checkName("container name", container)); err != nil {
		return "", nothing, err
	}
	name, err = cleanSubpath(name)
	if err != nil {
		return "", nothing, err
	}
	p, unlock, err := m.lock(ctx, uid)
	if err != nil {
		return "", nothing, err
	}
	defer unlock()
	v, ok := p.volumes[volume]
	switch {
	case !ok:
		return "", nothing, fmt.Errorf("volume %q is not in place", volume)
	case v.Path == "":
		return "", nothing, fmt.Errorf("volume %q is no directory of this host, so it has no subPath here", volume)
	}
	f, err := openBelow(v.Path, name)
	if err != nil {
		return "", nothing, fmt.Errorf("subPath %q of volume %q: %w", name, volume, bare(err))
	}
	defer f.Close()
	host = filepath.Join(m.podDir(uid), "volume-subpaths", volume, container, strconv.Itoa(index))
	if err := m.bind(f, host); err != nil { // its text is full of this host, and what is returned is shown to users
		m.log.Warn("a subPath cannot be bound to its place", "uid", uid, "container", container, "volume", volume, "path", name, "place", host, "err", err)
		return "", nothing, fmt.Errorf("subPath %q of volume %q cannot be bound to its place; the log of the node says why", name, volume)
	}
	m.hold(p, volume, 1)
	return host, sync.OnceFunc(func() { m.hold(p, volume, -1) }), nil
}

// cleanSubpath refuses paths that need no look at a volume to be refused.
func cleanSubpath(name string) (string, error) {
	switch {
	case name == "" || len(name) > 4096 || strings.ContainsRune(name, 0):
		return "", fmt.Errorf("subPath %.40q is no path", name)
	case path.IsAbs(name):
		return "", fmt.Errorf("subPath %q must be relative", name)
	case slices.Contains(strings.Split(name, "/"), ".."):
		return "", fmt.Errorf("subPath %q must not go up by .. anywhere", name)
	}
	return path.Clean(name), nil
}

// bare is an error in words for users: they know the volume by its name, and the host not at all.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if w := words(err); w != "" {
		return errors.New(w)
	}
	return err
}

// bind mounts what f refers to at place, unless it is mounted there already.
func (m *Manager) bind(f *os.File, place string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mounted, err := m.isMount(place)
	if err != nil {
		return err
	}
	if mounted {
		if there, err := os.Lstat(place); err == nil && os.SameFile(info, there) {
			return nil
		}
		unmount := m.unmount
		if m.detach != nil { // whoever on this host has something of it open may keep that, and its server may not answer
			unmount = m.detach
		}
		if err := unmount(place); err != nil {
			return err
		}
	}
	if err := makePlace(place, info.IsDir()); err != nil {
		return err
	}
	// The name of an open file is the one source nobody can exchange. mount(8), if there is one, must not look at where it leads.
	source := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	return m.cfg.Mounter.MountSensitiveWithoutSystemdWithMountFlags(source, place, "", []string{"bind"}, nil, []string{"--no-canonicalize"})
}

// makePlace makes what a directory, or anything else, can be bound to.
func makePlace(place string, dir bool) error {
	if err := os.MkdirAll(filepath.Dir(place), 0o750); err != nil {
		return err
	}
	if err := os.Remove(place); err != nil && !errors.Is(err, fs.ErrNotExist) { // of one who bound something else
		return err
	}
	if dir {
		return os.Mkdir(place, 0o750)
	}
	return os.WriteFile(place, nil, 0o640)
}
