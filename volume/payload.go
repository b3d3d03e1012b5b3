package volume

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// Names in a directory of files that change all at once. What users see are links to what lies behind the link data; the
// files themselves lie in a directory named for the time they were written, and one rename of data exchanges them all.
const (
	data    = "..data"
	dataNew = "..data_tmp"
	stamp   = "..2006_01_02_15_04_05."
)

type file struct {
	data  []byte
	mode  int32
	owner *int64 // a user; nil: whoever the agent runs as
}

// payload is files by their path in a volume.
type payload map[string]file

// add takes a file after a look at its path: relative, without a way up, and not in the names we use ourselves.
func (p payload) add(name string, f file) error {
	if err := checkPath(name); err != nil {
		return err
	}
	p[path.Clean(name)] = f
	return nil
}

func checkPath(name string) error {
	switch elements := strings.Split(name, "/"); {
	case name == "" || path.Clean(name) == ".":
		return errors.New("path must not be empty")
	case path.IsAbs(name):
		return fmt.Errorf("path %q must be relative", name)
	case len(name) > 4096 || strings.ContainsRune(name, 0):
		return fmt.Errorf("path %.40q... is no path", name)
	case slices.Contains(elements, ".."):
		return fmt.Errorf("path %q must not go up by .. anywhere", name)
	case strings.HasPrefix(path.Clean(name), ".."):
		return fmt.Errorf("path %q must not begin with two dots", name)
	case slices.ContainsFunc(elements, func(e string) bool { return len(e) > 255 }):
		return fmt.Errorf("path %.40q... has a name longer than 255 bytes", name)
	}
	return nil
}

// write brings dir up to date: nothing is written while all files are there with the same content. nested are directories
// for what else is mounted there. give is called before new files become visible. hold keeps the old ones a while, for a
// container that is being made with one of them.
func (p payload) write(dir string, nested []string, give func(), hold bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, n := range nested {
		if err := root.MkdirAll(n, 0o755); err != nil {
			return fmt.Errorf("make room for a mount: %w", err)
		}
	}
	now, err := root.Readlink(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if now == "" || !p.same(root, now) {
		now = time.Now().UTC().Format(stamp) + rand.Text()
		if err := p.lay(root, now); err != nil {
			_ = root.RemoveAll(now) // it may have been too much for the volume
			return err
		}
		give()
		if err := point(root, now); err != nil {
			return err
		}
	}
	return p.link(root, now, hold)
}

// same says whether exactly these files are there already. Their modes do not count.
func (p payload) same(root *os.Root, dir string) bool {
	same := 0
	err := fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, wanted := p[strings.TrimPrefix(name, dir+"/")]
		if !wanted {
			return fs.ErrExist
		}
		has, err := root.ReadFile(name)
		if err == nil && bytes.Equal(f.data, has) {
			same++
		}
		return err
	})
	return err == nil && same == len(p)
}

// lay writes all files below a new directory, with their modes whatever the umask.
func (p payload) lay(root *os.Root, dir string) error {
	if err := mkdir(root, dir); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		for i, c := range name {
			if c == '/' {
				if err := mkdir(root, dir+"/"+name[:i]); err != nil {
					return err
				}
			}
		}
		if err := p[name].make(root, dir+"/"+name); err != nil {
			return fmt.Errorf("file %q: %w", name, bare(err))
		}
	}
	return nil
}

func (f file) make(root *os.Root, path string) error {
	if err := root.WriteFile(path, f.data, 0o600); err != nil {
		return err
	}
	if err := root.Chmod(path, fs.FileMode(f.mode)&fs.ModePerm); err != nil || f.owner == nil {
		return err
	}
	return root.Lchown(path, int(*f.owner), -1)
}

func mkdir(root *os.Root, dir string) error {
	if err := root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return root.Chmod(dir, 0o755)
}

// point turns the link to the data, at once for all who read through it.
func point(root *os.Root, dir string) error {
	if err := root.Remove(dataNew); err != nil && !errors.Is(err, fs.ErrNotExist) { // of one who was killed right here
		return err
	}
	if err := root.Symlink(dir, dataNew); err != nil {
		return err
	}
	return root.Rename(dataNew, data)
}

// link makes what users see: a link for each first element of a path, which belongs to whom the file is for. Links without a
// file, and data nobody points to any more, go.
func (p payload) link(root *os.Root, now string, hold bool) error {
	want, owner := map[string]bool{}, map[string]*int64{}
	for name, f := range p {
		first, _, _ := strings.Cut(name, "/")
		want[first] = true
		owner[first] = cmp.Or(f.owner, owner[first])
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		target, err := root.Readlink(name)
		switch {
		case err == nil && target == data+"/"+name && want[name]:
			delete(want, name)
		case err == nil && target == data+"/"+name:
			err = root.Remove(name)
		case e.IsDir() && stamped(name) && name != now && !hold:
			err = root.RemoveAll(name)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	for name := range want {
		if err := root.Symlink(data+"/"+name, name); err != nil {
			return err
		}
		if to := owner[name]; to != nil {
			if err := root.Lchown(name, int(*to), -1); err != nil {
				return err
			}
		}
	}
	return nil
}

// stamped says that a directory is one of those lay makes.
func stamped(name string) bool {
	if len(name) <= len(stamp) {
		return false
	}
	_, err := time.Parse(stamp, name[:len(stamp)])
	return err == nil
}

// nestedMounts are the directories within a volume that other mounts of its containers need: it is shown read-only, so that
// the runtime cannot make them.
func nestedMounts(pod *v1.Pod, volume string) ([]string, error) {
	var out []string
	for _, c := range podspec.Containers(pod) {
		for _, own := range c.VolumeMounts {
			if own.Name != volume || own.SubPath != "" || own.SubPathExpr != "" {
				continue
			}
			prefix := strings.TrimSuffix(path.Clean(own.MountPath), "/") + "/"
			for _, other := range c.VolumeMounts {
				below, ok := strings.CutPrefix(path.Clean(other.MountPath), prefix)
				if !ok || below == "" {
					continue
				}
				if err := checkPath(below); err != nil {
					return nil, fmt.Errorf("mount %s: %w", other.MountPath, err)
				}
				out = append(out, below)
			}
		}
	}
	return out, nil
}
