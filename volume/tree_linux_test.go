package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRemoveTree(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/precious", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule string
		make func(path string) error
	}{
		{"nothing there", func(string) error { return nil }},
		{"no directory above it", func(path string) error { return os.Remove(filepath.Dir(path)) }},
		{"a file", func(path string) error { return os.WriteFile(path, nil, 0) }},
		{"a link goes, what it leads to stays", func(path string) error { return os.Symlink(outside, path) }},
		{"an empty directory", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"links within", func(path string) error {
			return errors.Join(os.MkdirAll(path+"/a/b", 0o700), os.Symlink(outside, path+"/a/b/out"), os.Symlink(outside, path+"/out"), os.Symlink("..", path+"/a/up"))
		}},
		{"a pipe", func(path string) error { return errors.Join(os.Mkdir(path, 0o700), unix.Mkfifo(path+"/pipe", 0o600)) }},
		{"many files in many directories", func(path string) error {
			var errs []error
			for i := range 40 {
				dir := fmt.Sprintf("%s/%d/x/y", path, i)
				errs = append(errs, os.MkdirAll(dir, 0o700))
				for j := range 40 {
					errs = append(errs, os.WriteFile(fmt.Sprintf("%s/%d", dir, j), nil, 0o600))
				}
			}
			return errors.Join(errs...)
		}},
		{"more names than one look shows", func(path string) error {
			errs := []error{os.Mkdir(path, 0o700)}
			for i := range 2000 {
				errs = append(errs, os.WriteFile(fmt.Sprintf("%s/%d", path, i), nil, 0o600))
			}
			return errors.Join(errs...)
		}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			path := t.TempDir() + "/tree"
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			if err := removeTree(t.Context(), path); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Error("still there", err)
			}
			if _, err := os.Stat(outside + "/precious"); err != nil {
				t.Error("removed something elsewhere")
			}
		})
	}
}

// TestRemoveTreeOfAnyDepth makes a path longer than the kernel takes in one piece, deeper than files can be open.
func TestRemoveTreeOfAnyDepth(t *testing.T) {
	path := t.TempDir() + "/tree"
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if err := unix.Mkdirat(at, "directory", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "directory", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
	if err := removeTree(t.Context(), path); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("still there", err)
	}
}

func TestRemoveTreeEndsWithItsContext(t *testing.T) {
	path := t.TempDir() + "/tree"
	if err := os.MkdirAll(path+"/a", 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := removeTree(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkRemoveTree(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		path := b.TempDir() + "/tree"
		for i := range 50 {
			dir := fmt.Sprintf("%s/%d/a/b", path, i)
			_ = os.MkdirAll(dir, 0o700)
			for j := range 20 {
				_ = os.WriteFile(fmt.Sprintf("%s/%d", dir, j), nil, 0o600)
			}
		}
		b.StartTimer()
		if err := removeTree(b.Context(), path); err != nil {
			b.Fatal(err)
		}
	}
}
