package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// hostPath checks a path of this host, and makes it where its type says so. Without a type nothing is checked. Once it is in place
// it may go away, and only keeps from starting what uses it.
func hostPath(source *v1.HostPathVolumeSource, inPlace bool) (runtime.Volume, error) {
	path := source.Path
	switch {
	case !filepath.IsAbs(path) || strings.ContainsRune(path, 0):
		return runtime.Volume{}, fmt.Errorf("hostPath %q must begin with /", path)
	case slices.Contains(strings.Split(path, "/"), ".."):
		return runtime.Volume{}, fmt.Errorf("hostPath %q must not go up by .. anywhere", path)
	case source.Type == nil || *source.Type == v1.HostPathUnset:
		return runtime.Volume{Path: path}, nil
	}
	check := func() error { return checkHostPath(path, *source.Type) }
	if !inPlace {
		if err := check(); err != nil {
			return runtime.Volume{}, err
		}
	}
	return runtime.Volume{Path: path, Check: check}, nil
}

func checkHostPath(path string, want v1.HostPathType) error {
	matches, wanted := match(want)
	if matches == nil {
		return fmt.Errorf("hostPath type %q is not known", want)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		switch want {
		case v1.HostPathDirectoryOrCreate:
			err = os.MkdirAll(path, 0o755)
		case v1.HostPathFileOrCreate:
			err = touch(path)
		default:
			return fmt.Errorf("hostPath %s must be %s, but does not exist", path, wanted)
		}
		if err != nil {
			return fmt.Errorf("hostPath %s is made: %w", path, err)
		}
		info, err = os.Stat(path)
	}
	if err != nil {
		return fmt.Errorf("hostPath %s must be %s, but cannot be looked at: %w", path, wanted, err)
	}
	if !matches(info.Mode()) {
		return fmt.Errorf("hostPath %s must be %s, but is %s", path, wanted, describe(info.Mode()))
	}
	return nil
}

// match is the check a type asks for, nil for none, and what is said to be wanted.
func match(t v1.HostPathType) (matches func(fs.FileMode) bool, wanted string) {
	of := func(kind fs.FileMode) (func(fs.FileMode) bool, string) {
		return func(m fs.FileMode) bool { return m.Type() == kind }, describe(kind)
	}
	switch t {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		return of(fs.ModeDir)
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		return of(0)
	case v1.HostPathSocket:
		return of(fs.ModeSocket)
	case v1.HostPathCharDev:
		return of(fs.ModeDevice | fs.ModeCharDevice)
	case v1.HostPathBlockDev:
		return of(fs.ModeDevice)
	default:
		return nil, ""
	}
}

func describe(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "a file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeDevice | fs.ModeCharDevice:
		return "a character device"
	case fs.ModeDevice:
		return "a block device"
	case fs.ModeNamedPipe:
		return "a named pipe"
	default:
		return "of another kind"
	}
}

// touch makes an empty file in a directory that must exist.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
