package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Unmount takes away all volumes of a pod, whose containers must have ended. It needs to know nothing about the pod but
// what the disk and the mount table say. A pod that has none is no error.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	p, unlock, err := m.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	m.drop(p)
	_, err = m.clear(ctx, uid)
	if err != nil {
		return fmt.Errorf("take away volumes: %w", err)
	}
	p.volumes = nil
	m.count(p, nil)
	return nil
}

// clear removes all that this package makes for a pod, and says whether there was anything.
func (m *Manager) clear(ctx context.Context, uid types.UID) (found bool, err error) {
	dir := m.podDir(uid)
	volumes, err := filepath.Glob(filepath.Join(quote(dir), "volumes", "*", "*"))
	if err != nil {
		return false, err
	}
	subpaths := filepath.Join(dir, "volume-subpaths")
	found = len(volumes) > 0 || exists(subpaths)
	if found {
		err := m.clearOwn(ctx, uid, volumes, subpaths)
		if err != nil && ctx.Err() == nil {
			if err := m.unmountBelow(ctx, filepath.Join(dir, "volumes"), subpaths); err != nil {
				return true, err
			}
			err = m.removeVolumes(ctx, uid, volumes, subpaths)
		}
		if err != nil {
			return true, err
		}
	}
	errs := []error{removeTree(ctx, m.marker(uid, ""))} // of volumes that were never made
	for _, parent := range []string{filepath.Join(dir, "volumes"), filepath.Join(dir, "plugins")} {
		errs = append(errs, removeEmpty(parent, true))
	}
	return found, errors.Join(append(errs, removeEmpty(dir, false))...)
}

// removeVolumes removes volumes, and places of subPaths, in which nothing is mounted any more.
func (m *Manager) removeVolumes(ctx context.Context, uid types.UID, volumes []string, subpaths string) error {
	errs := []error{removeTree(ctx, subpaths)}
	for _, v := range volumes {
		begun := time.Now()
		err := m.removeVolume(ctx, uid, v)
		m.metrics.operation("volume_unmount", kindAt(v), begun, err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clearOwn removes the volumes of a pod that has only such, without a look at the mount table, which costs more with each pod of
// the node. An error means that the table must be asked: there may be mounts elsewhere. What is of another kind is not looked at,
// for its server may be away; and what is mounted anywhere within is never entered.
func (m *Manager) clearOwn(ctx context.Context, uid types.UID, volumes []string, subpaths string) error {
	if exists(subpaths) {
		return errElsewhere
	}
	for _, v := range volumes {
		switch kindAt(v) {
		case "empty-dir", "configmap", "secret", "projected", "downward-api": // mounted in their own directories, or not at all
		default:
			return errElsewhere
		}
	}
	for _, v := range volumes {
		mounted, err := m.isMount(v)
		if err == nil && mounted {
			err = m.unmount(v)
		}
		if err != nil {
			return err
		}
	}
	return m.removeVolumes(ctx, uid, volumes, subpaths)
}

var errElsewhere = errors.New("something may be mounted elsewhere")

// kindAt is the kind of the volume that lies at a path.
func kindAt(path string) string {
	return strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "kubernetes.io~")
}

// unmountBelow unmounts all that lies in these directories, what was mounted last first.
func (m *Manager) unmountBelow(ctx context.Context, dirs ...string) error {
	for i, d := range dirs {
		if resolved, err := filepath.EvalSymlinks(d); err == nil { // as the mount table has it
			dirs[i] = resolved
		}
	}
	table, err := m.cfg.Mounter.List()
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	octal := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`) // it is a table of words
	for _, mp := range slices.Backward(table) {
		path := octal.Replace(mp.Path)
		if !slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(path, d+"/") }) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := m.unmount(path)
		if errors.Is(err, syscall.EBUSY) && m.detach != nil && (mp.Type == "tmpfs" || mp.Type == "hugetlbfs") {
			// Somebody else on this host has a file of it open. What it holds is over, as on a disk, where nobody asks who reads it.
			m.log.Warn("a volume in memory is taken away though something on this host still has it open", "path", path)
			err = m.detach(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeVolume removes the directory of one volume. It first gets a name no volume can have: if this ends halfway, what is
// left is not taken for a volume by a pod that comes again.
func (m *Manager) removeVolume(ctx context.Context, uid types.UID, dir string) error {
	const goes = ".deleting~"
	if name := filepath.Base(dir); !strings.HasSuffix(name, goes) {
		if err := removeTree(ctx, dir+goes); err != nil {
			return err
		}
		if err := os.Rename(dir, dir+goes); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		dir += goes
		for _, marker := range []string{name, "wrapped_" + name} {
			if err := removeTree(ctx, m.marker(uid, marker)); err != nil {
				return err
			}
		}
	}
	return removeTree(ctx, dir)
}

// removeEmpty removes a directory, with those in it if below is set, as far as they are empty.
func removeEmpty(dir string, below bool) error {
	if below {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if err := removeEmpty(filepath.Join(dir, e.Name()), false); err != nil {
				return err
			}
		}
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return nil //nolint:nilerr // nothing there is nothing to remove
	}
	if err := os.Remove(dir); err != nil && !full(dir) {
		return err
	}
	return nil
}

func full(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

func quote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// Sweep takes away the volumes of all pods that need not be kept. It says what it did in one line. One whose server of files is
// gone keeps no other.
func (m *Manager) Sweep(ctx context.Context, keep func(types.UID) bool) error {
	entries, err := os.ReadDir(m.podDir(""))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("look for volumes of pods that are no more: %w", err)
	}
	var swept int
	var errs []error
	for _, e := range entries {
		uid := types.UID(e.Name())
		if !e.IsDir() || keep(uid) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		found, err := m.trySweep(ctx, uid, keep)
		if err != nil {
			errs = append(errs, fmt.Errorf("take away volumes of pod %s, which is no more: %w", uid, err))
		} else if found {
			swept++
		}
	}
	m.metrics.swept.Record(float64(swept))
	m.metrics.unswept.Record(float64(len(errs)))
	if swept > 0 {
		m.log.Info("took away the volumes of pods that are no more", "pods", swept)
	}
	return errors.Join(errs...)
}

// trySweep is sweep, waited for a short while. What takes longer goes on by itself, as nothing ends a call that hangs in the
// kernel, and is not begun again meanwhile.
func (m *Manager) trySweep(ctx context.Context, uid types.UID, keep func(types.UID) bool) (found bool, err error) {
	const patience = 10 * time.Second
	m.mu.Lock()
	hangs := m.sweeping[uid]
	m.sweeping[uid] = true
	m.mu.Unlock()
	if hangs {
		return false, errHangs
	}
	done := make(chan struct{})
	var did bool
	var failed error
	go func() {
		defer close(done)
		did, failed = m.sweep(ctx, uid, keep)
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.sweeping, uid)
	}()
	select {
	case <-done:
		return did, failed
	case <-time.After(patience):
		return false, errHangs
	}
}

var errHangs = errors.New("it takes long and goes on by itself; if it never ends, a server of files may be gone")

// sweep clears one pod, unless it has come back by the time nobody else is at work on it.
func (m *Manager) sweep(ctx context.Context, uid types.UID, keep func(types.UID) bool) (found bool, err error) {
	p, unlock, err := m.lock(ctx, uid)
	if err != nil {
		return false, err
	}
	defer unlock()
	if keep(uid) {
		return false, nil
	}
	m.drop(p)
	if found, err = m.clear(ctx, uid); err == nil {
		p.volumes = nil
		m.count(p, nil)
	}
	return found, err
}
