package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// deepest is how many directories within each other are entered at a time.
const deepest = 32

// removeTree removes what lies at path, below a directory that nobody else writes to. A link is removed, not followed, and
// what is mounted anywhere within is not entered: that is an error, as is anything else that does not let itself be removed.
func removeTree(ctx context.Context, path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	name := filepath.Base(path)
	full, err := remove(parent, name)
	if err != nil || !full {
		return err
	}
	top, err := openDir(parent, name)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := empty(ctx, top, top, 1); err != nil {
		return err
	}
	return unlink(parent, name, unix.AT_REMOVEDIR)
}

// empty removes all that is in dir. What lies too deep is moved up to top, whose turn ends last.
func empty(ctx context.Context, top, dir *os.File, depth int) error {
	return each(ctx, dir, func(name string) error {
		full, err := remove(dir, name)
		if err != nil || !full {
			return err
		}
		if depth == deepest {
			if err := unix.Renameat(int(dir.Fd()), name, int(top.Fd()), ".."+rand.Text()); err != nil {
				return &os.PathError{Op: "move up", Path: filepath.Join(dir.Name(), name), Err: err}
			}
			return nil
		}
		next, err := openDir(dir, name)
		if err != nil {
			return err
		}
		defer next.Close()
		if err := empty(ctx, top, next, depth+1); err != nil {
			return err
		}
		return unlink(dir, name, unix.AT_REMOVEDIR)
	})
}

// each has all names in a directory dealt with, also those that come while it is at work. act must leave none behind.
func each(ctx context.Context, dir *os.File, act func(name string) error) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(512)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := act(name); err != nil {
				return err
			}
		}
	}
}

// remove removes a file or an empty directory; full says that it is a directory that is not empty.
func remove(dir *os.File, name string) (full bool, err error) {
	err = unlink(dir, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return false, err
	}
	err = unlink(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return true, nil
	}
	return false, err
}

// unlink is unlinkat(2); what is gone already is no error.
func unlink(dir *os.File, name string, flags int) error {
	err := retry(func() error { return unix.Unlinkat(int(dir.Fd()), name, flags) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return nil
}

// openDir opens a directory in another one, unless it is a link or something is mounted there.
func openDir(dir *os.File, name string) (*os.File, error) {
	return openAt(dir, name, unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

func openAt(dir *os.File, name string, how unix.OpenHow) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := -1, error(nil)
	err = retry(func() error { fd, err = unix.Openat2(int(dir.Fd()), name, &how); return err })
	if errors.Is(err, unix.ENOSYS) {
		return nil, fmt.Errorf("openat2 is needed, Linux 5.6 or newer: %w", err)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// retry repeats a system call that was interrupted, or by EAGAIN says that somebody moved things while it was on its way.
func retry(call func() error) error {
	for range 1000 {
		err := call()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	return unix.EAGAIN
}
