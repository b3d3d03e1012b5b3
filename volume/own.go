package volume

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// own gives a directory with all in it to a group, which may then read, and unless readOnly write, everything; what is made
// there later belongs to it, too. The directory itself comes last: it is the sign that all is done. Links are given away but
// never followed. What refuses is reported and left.
func (m *Manager) own(dir string, group *int64, readOnly bool) {
	if group == nil {
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		m.log.Warn("a volume cannot be given to its group", "dir", dir, "err", err)
		return
	}
	defer root.Close()
	var errs []error
	var paths []string
	_ = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		errs = append(errs, err)
		paths = append(paths, path)
		return nil
	})
	for _, path := range slices.Backward(paths) { // a directory comes before what is in it
		errs = append(errs, give(root, path, int(*group), readOnly))
	}
	if err := errors.Join(errs...); err != nil {
		m.log.Warn("a volume could not be given to its group completely", "dir", dir, "group", *group, "err", err)
	}
}

func give(root *os.Root, path string, group int, readOnly bool) error {
	info, err := root.Lstat(path)
	if err != nil {
		return err
	}
	if err := root.Lchown(path, -1, group); err != nil {
		return err
	}
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 {
		return nil
	}
	bits := fs.FileMode(0o660)
	if readOnly {
		bits = 0o440
	}
	if mode.IsDir() {
		bits |= 0o110 | fs.ModeSetgid
	}
	return root.Chmod(path, mode|bits)
}
