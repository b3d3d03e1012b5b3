package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Down removes everything a cluster made: pods, processes, mounts, cgroups, network, kube-proxy's rules, and
// the directory. What is gone already is no failure, and one thing that cannot be removed does not keep the
// others.
func (c *Cluster) Down(ctx context.Context) error {
	s, err := c.load("")
	if err != nil {
		return err
	}
	if s.Agent == "" { // a bed without a cluster in it, or nothing at all
		return c.bed.Clean(ctx)
	}
	var errs []error
	for _, name := range c.services() {
		errs = append(errs, c.end(ctx, name))
	}
	errs = append(errs, removeTables(ctx), removeLinks("/var/log/containers", c.dir), c.bed.Clean(ctx))
	for _, dir := range s.Ours {
		if strings.HasPrefix(dir, cgroupRoot) {
			errs = append(errs, removeCgroups(dir))
		} else {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// services lists those that have a process number on file, the agent first: nobody else makes pods.
func (c *Cluster) services() []string {
	files, _ := filepath.Glob(c.pidFile("*")) // the pattern is well-formed
	var agents, others []string
	for _, f := range files {
		if name := filepath.Base(f); name == string(Kubelet) || name == string(NodeAgent) {
			agents = append(agents, name)
		} else {
			others = append(others, name)
		}
	}
	return append(agents, others...)
}

const cgroupRoot = "/sys/fs/cgroup"

// outside lists the directories that a kubelet makes beside its root directory: its cgroup in each hierarchy,
// and the place of its sockets for device plugins.
func outside() []string {
	dirs := []string{"/var/lib/kubelet", filepath.Join(cgroupRoot, "kubepods")}
	hierarchies, _ := filepath.Glob(cgroupRoot + "/*/cgroup.procs") // the pattern is well-formed
	for _, h := range hierarchies {
		dirs = append(dirs, filepath.Join(filepath.Dir(h), "kubepods"))
	}
	return dirs
}

// absent are those of the directories that do not exist.
func absent(dirs []string) []string {
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	})
}

// removeTables takes away the rules that kube-proxy leaves when it ends.
func removeTables(ctx context.Context) error {
	var errs []error
	for _, family := range []string{"ip", "ip6"} {
		out, err := exec.CommandContext(ctx, "/usr/sbin/nft", "delete", "table", family, "kube-proxy").CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("No such file")) {
			errs = append(errs, fmt.Errorf("remove rules of kube-proxy: %w: %s", err, bytes.TrimSpace(out)))
		}
	}
	return errors.Join(errs...)
}

// removeCgroups removes a cgroup and those in it. One with a process stays, and with it those above.
func removeCgroups(root string) error {
	var dirs []string
	walked := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it went away meanwhile
		case err != nil:
			return err
		case d.IsDir():
			dirs = append(dirs, path)
		}
		return nil
	})
	errs := []error{walked}
	for _, dir := range slices.Backward(dirs) { // children first; the files in them are the kernel's
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// removeLinks removes the links in dir that lead below a place.
func removeLinks(dir, below string) error {
	links, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is well-formed
	var errs []error
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, below+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}
