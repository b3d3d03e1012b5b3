// Package cgroups makes and removes the cgroup that an agent of a test has to itself. Two agents with the same one would take
// each other's pods for left over, and end them.
package cgroups

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Mount is where cgroups are mounted.
const Mount = "/sys/fs/cgroup"

// Of is the cgroup in which all agents have theirs that use the runtime at an endpoint. Nobody has made it yet.
func Of(endpoint string) string {
	return fmt.Sprintf("/kubeletkit-%x", sha256.Sum256([]byte(endpoint)))[:21]
}

// Make makes a cgroup and those above it, so that processes can run in it: in each hierarchy of version 1, or in version 2.
func Make(path string) error {
	roots := hierarchies()
	if len(roots) == 0 {
		return fmt.Errorf("no cgroups are mounted at %s", Mount)
	}
	for _, root := range roots {
		dir := root
		for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			if err := delegate(dir); err != nil {
				return err
			}
			above := dir
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := inherit(above, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// hierarchies are the folders of version 1, that of version 2 beside them among them, or the one of version 2.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(Mount, "cgroup.procs")); err == nil {
		return []string{Mount}
	}
	files, _ := filepath.Glob(filepath.Join(Mount, "*", "cgroup.procs")) // the pattern is well-formed
	var out []string
	for _, f := range files {
		if dir, err := filepath.EvalSymlinks(filepath.Dir(f)); err == nil {
			out = append(out, dir)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// delegate has the folders below one of version 2 have its controllers.
func delegate(dir string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil || len(strings.Fields(string(has))) == 0 {
		return nil //nolint:nilerr // version 1, or version 2 beside it
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+strings.Join(strings.Fields(string(has)), " +")), 0)
}

// inherit gives a new cgroup of version 1 the processors and memory banks of the one above, without which nothing runs in it.
func inherit(above, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		has, err := os.ReadFile(filepath.Join(dir, file))
		if _, v2 := os.Stat(filepath.Join(dir, file+".effective")); err != nil || v2 == nil || len(strings.TrimSpace(string(has))) > 0 {
			continue
		}
		text, err := os.ReadFile(filepath.Join(above, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0); err != nil {
			return err
		}
	}
	return nil
}

// Files are those of a name in a cgroup and below it, in all hierarchies.
func Files(path, name string) (out []string) {
	for _, root := range hierarchies() {
		_ = filepath.WalkDir(filepath.Join(root, path), func(file string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == name {
				out = append(out, file)
			}
			return nil // what is gone has no files
		})
	}
	return out
}

// Pods are the folders of pods' cgroups below a root, in all hierarchies; none without a root.
func Pods(root string) (out []string) {
	if root == "" {
		return nil
	}
	for _, h := range hierarchies() {
		for _, pattern := range []string{"kubepods/pod*", "kubepods/*/pod*"} {
			dirs, _ := filepath.Glob(filepath.Join(h, root, pattern)) // the patterns are well-formed
			out = append(out, dirs...)
		}
	}
	return out
}

// Remove kills what runs in a cgroup and below it, and removes it. One that is not there is no error.
func Remove(ctx context.Context, path string) error {
	if strings.Trim(path, "/") == "" {
		return errors.New("the root of all cgroups cannot be removed")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var errs []error
		for _, file := range Files(path, "cgroup.procs") {
			kill(file)
		}
		dirs := Files(path, "cgroup.procs")
		slices.SortFunc(dirs, func(a, b string) int { return len(b) - len(a) }) // the lowest first
		for _, file := range dirs {
			if err := syscall.Rmdir(filepath.Dir(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove %s: %w", filepath.Dir(file), err))
			}
		}
		if len(errs) == 0 {
			return nil // what is gone has no files
		}
		select {
		case <-ctx.Done():
			return errors.Join(errs...)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Spare removes a cgroup in which nobody has another, and does nothing to others.
func Spare(path string) {
	for _, root := range hierarchies() {
		_ = syscall.Rmdir(filepath.Join(root, path)) // it is in use, or gone
	}
}

// kill ends the processes that a file lists.
func kill(file string) {
	text, _ := os.ReadFile(file)
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}
