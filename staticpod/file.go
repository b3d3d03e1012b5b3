//go:build unix

package staticpod

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// readFile reads a regular file, through links. Nothing else is opened: a pipe would block, and a device may
// do anything. A file without a size is empty and is not read, as those of procfs may block too.
func readFile(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, lookError(path, err)
	}
	if err := regular(fi); err != nil || fi.Size() == 0 {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, lookError(path, err)
	}
	defer f.Close()
	if fi, err = f.Stat(); err != nil {
		return nil, lookError(path, err)
	}
	if err := regular(fi); err != nil { // it was exchanged in between
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return b, nil
}

// regular says what is wrong with an entry that is no file of a fitting size.
func regular(fi fs.FileInfo) error {
	switch mode := fi.Mode(); {
	case mode.IsDir():
		return errors.New("is a directory; subdirectories are not searched")
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("is a named pipe; it is not opened")
	case mode&fs.ModeSocket != 0:
		return errors.New("is a socket; it is not opened")
	case !mode.IsRegular():
		return errors.New("is a device; it is not opened")
	case fi.Size() > MaxBytes:
		return fmt.Errorf("has %d MiB; a manifest has at most %d", fi.Size()>>20, MaxBytes>>20)
	}
	return nil
}

// lookError is an error of the file system without the path, which stands beside it in the log.
func lookError(path string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		if target, e := os.Readlink(path); e == nil {
			return fmt.Errorf("is a link to %s, which is not there: %w", quote(target), err)
		}
	}
	return fmt.Errorf("cannot be read: %w", err)
}

// backup says that a name is that of a copy left behind by an editor, a package manager or a careful person.
func backup(name string) bool {
	name = strings.ToLower(name)
	if strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") {
		return true
	}
	for _, end := range []string{
		".bak", ".backup", ".old", ".orig", ".rej", ".save", ".sav", ".tmp", ".swp", ".swo", ".swx",
		".rpmsave", ".rpmnew", ".rpmorig",
		".dpkg-old", ".dpkg-dist", ".dpkg-new", ".dpkg-tmp", ".dpkg-bak", ".ucf-old", ".ucf-dist", ".ucf-new",
	} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// device is the file system a file lies on.
func device(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev) //nolint:unconvert // its type differs between systems
	}
	return 0
}
