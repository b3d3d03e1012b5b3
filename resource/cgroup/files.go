package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// files is the cgroup file system: one tree with version 2, one for each controller with version 1.
type files struct {
	mount, root string
	known       *atomic.Pointer[map[string]string] // what look found last
	mkdir       func(string) error
	rmdir       func(string) error
	kill        func(pid int) error
}

func openFiles(mount, root string) files {
	return files{
		mount: mount, root: root, known: new(atomic.Pointer[map[string]string]),
		mkdir: func(dir string) error { return os.Mkdir(dir, 0o755) },
		rmdir: syscall.Rmdir,
		kill:  killProcess,
	}
}

// wanted are the controllers a pod's cgroup must have, as far as the machine has them.
func wanted() []string { return []string{"cpu", "cpuset", "memory", "hugetlb", "pids"} }

func (f files) v2() bool {
	_, v2 := f.trees()[""]
	return v2
}

// usable looks whether there are cgroups and the root exists.
func (f files) usable() error {
	trees := f.look()
	if len(trees) == 0 {
		return fmt.Errorf("no cgroups are mounted at %s", f.mount)
	}
	for controller, dir := range trees {
		if _, err := os.Stat(filepath.Join(dir, f.root)); err != nil {
			return fmt.Errorf("cgroup root %s does not exist (%s); make it, or name another one: %w", f.root, controller, err)
		}
	}
	return nil
}

// hybrid is the tree of version 2 where it is mounted beside those of version 1. Engines put processes there too.
const hybrid = "unified"

// trees are the roots of hierarchies by controller; with version 2 there is one, without a name. Hierarchies that no part of
// the machine needs, which somebody mounted beside them, are not touched.
func (f files) trees() map[string]string {
	if known := f.known.Load(); known != nil {
		return *known
	}
	return f.look()
}

// look finds trees.
func (f files) look() map[string]string {
	out := f.mounted()
	f.known.Store(&out)
	return out
}

func (f files) mounted() map[string]string {
	if _, err := os.Stat(filepath.Join(f.mount, "cgroup.controllers")); err == nil {
		return map[string]string{"": f.mount}
	}
	known := []string{"cpu", "cpuacct", "cpuset", "memory", "hugetlb", "pids", "blkio", "devices", "freezer", "net_cls", "net_prio", "perf_event", "rdma", "misc", "systemd"}
	out := map[string]string{}
	for _, controller := range known {
		dir, err := filepath.EvalSymlinks(filepath.Join(f.mount, controller)) // cpu may lead to cpu,cpuacct
		if err != nil || slices.Contains(slices.Collect(maps.Values(out)), dir) {
			if err == nil {
				out[controller] = dir
			}
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			out[controller] = dir
		}
	}
	if _, err := os.Stat(filepath.Join(f.mount, hybrid, f.root, "cgroup.procs")); err == nil {
		out[hybrid] = filepath.Join(f.mount, hybrid)
	}
	return out
}

// dirs are the folders of a cgroup, each once.
func (f files) dirs(at string) []string {
	var out []string
	for _, dir := range f.trees() {
		out = append(out, filepath.Join(dir, f.root, at))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// of is the folder in which a controller has its files.
func (f files) of(controller, at string) (dir string, ok bool) {
	trees := f.trees()
	if root, v2 := trees[""]; v2 {
		return filepath.Join(root, f.root, at), true
	}
	root, ok := trees[controller]
	return filepath.Join(root, f.root, at), ok
}

// exists says that a cgroup is there in all trees.
func (f files) exists(at string) bool {
	dirs := f.dirs(at)
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			return false
		}
	}
	return len(dirs) > 0
}

// make makes a cgroup, and those above it below the root.
func (f files) make(at string) error {
	trees := f.trees()
	for _, top := range f.dirs("") {
		is := func(tree string) bool { dir, ok := trees[tree]; return ok && top == filepath.Join(dir, f.root) }
		if err := f.makeIn(top, at, is("cpuset"), is("") || is(hybrid)); err != nil {
			return err
		}
	}
	return nil
}

// makeIn makes a cgroup in one tree. Those above it are there as a rule.
func (f files) makeIn(top, at string, cpuset, v2 bool) error {
	dir := filepath.Join(top, at)
	above := path.Dir(at)
	err := fs.ErrNotExist
	if !v2 {
		err = f.mkdir(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if above != "." {
			if err := f.makeIn(top, above, cpuset, v2); err != nil {
				return err
			}
		}
		if v2 {
			if err := f.delegate(filepath.Dir(dir)); err != nil {
				return err
			}
		}
		err = f.mkdir(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if cpuset {
		return inherit(dir)
	}
	return nil
}

// delegate has the folders below one have controllers. Version 1 has no such thing.
func (f files) delegate(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil //nolint:nilerr // version 1
	}
	has := strings.Fields(string(b))
	on := filepath.Join(dir, "cgroup.subtree_control")
	b, err = os.ReadFile(on)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	var add []string
	for _, c := range wanted() {
		if slices.Contains(has, c) && !slices.Contains(strings.Fields(string(b)), c) {
			add = append(add, "+"+c)
		}
	}
	if len(add) == 0 {
		return nil
	}
	return write(on, strings.Join(add, " "))
}

// inherit gives a new cgroup of version 1 the processors and memory banks of the one above: without any nothing can run in it.
func inherit(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if _, v2 := os.Stat(filepath.Join(dir, file+".effective")); err != nil || v2 == nil || strings.TrimSpace(string(b)) != "" {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		if err := write(filepath.Join(dir, file), strings.TrimSpace(string(above))); err != nil {
			return err
		}
	}
	return nil
}

func write(path, text string) error {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	_, err = w.WriteString(text)
	if err = cmp.Or(err, w.Close()); err != nil {
		return fmt.Errorf("write %s to cgroup: %w", text, err)
	}
	return nil
}

// put writes a value where a controller has it, unless the machine lacks the controller or the file.
func (f files) put(at, controller, file, text string) error {
	dir, ok := f.of(controller, at)
	if !ok {
		return nil
	}
	path := filepath.Join(dir, file)
	has, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && strings.TrimSpace(string(has)) == text:
		return nil
	}
	return write(path, text)
}

// set writes values.
func (f files) set(at string, v values) error {
	number := func(n int64, none string) string {
		if n == unlimited {
			return none
		}
		return strconv.FormatInt(n, 10)
	}
	var errs []error
	put := func(said int64, controller, file, text string) {
		if said != 0 {
			errs = append(errs, f.put(at, controller, file, text))
		}
	}
	if f.v2() {
		put(v.shares, "cpu", "cpu.weight", number(weight(v.shares), ""))
		put(v.quota, "cpu", "cpu.max", number(v.quota, "max")+" "+number(v.period, ""))
		put(v.high, "memory", "memory.high", number(v.high, "max"))
		put(v.memory, "memory", "memory.max", number(v.memory, "max"))
		put(v.pids, "pids", "pids.max", number(v.pids, "max"))
		if v.keep != nil {
			errs = append(errs, f.put(at, "memory", "memory.min", number(v.keep.min, "")), f.put(at, "memory", "memory.low", number(v.keep.low, "")))
		}
	} else {
		put(v.shares, "cpu", "cpu.shares", number(v.shares, ""))
		if v.quota != 0 {
			errs = append(errs, f.setQuota(at, v))
		}
		put(v.memory, "memory", "memory.limit_in_bytes", number(v.memory, "-1"))
		put(v.pids, "pids", "pids.max", number(v.pids, "max"))
	}
	for _, size := range slices.Sorted(maps.Keys(v.hugepages)) {
		file := "hugetlb." + size + ".max"
		if !f.v2() {
			file = "hugetlb." + size + ".limit_in_bytes"
		}
		errs = append(errs, f.put(at, "hugetlb", file, strconv.FormatInt(v.hugepages[size], 10)))
	}
	return errors.Join(errs...)
}

// setQuota writes quota and period of version 1: with the quota out of the way first, no order of the two can be refused.
func (f files) setQuota(at string, v values) error {
	dir, ok := f.of("cpu", at)
	if !ok {
		return nil
	}
	period := strconv.FormatInt(v.period, 10)
	has, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cgroup: %w", err)
	}
	if strings.TrimSpace(string(has)) != period && v.period > 0 {
		if err := f.put(at, "cpu", "cpu.cfs_quota_us", "-1"); err != nil {
			return err
		}
		if err := f.put(at, "cpu", "cpu.cfs_period_us", period); err != nil {
			return err
		}
	}
	return f.put(at, "cpu", "cpu.cfs_quota_us", strconv.FormatInt(v.quota, 10))
}

// has reads values. What the machine does not have is unlimited.
func (f files) has(at string) (v values, err error) {
	read := func(controller, file string) string {
		dir, ok := f.of(controller, at)
		if !ok {
			return ""
		}
		b, e := os.ReadFile(filepath.Join(dir, file))
		if e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = cmp.Or(err, fmt.Errorf("cgroup: %w", e))
		}
		return strings.TrimSpace(string(b))
	}
	number := func(s string) int64 {
		n, e := strconv.ParseInt(s, 10, 64)
		if e != nil || n < 0 || n > 1<<62 { // version 1 says no limit as the largest number of pages there is
			return unlimited
		}
		return n
	}
	v.pids = number(read("pids", "pids.max"))
	if f.v2() {
		v.memory, v.high = number(read("memory", "memory.max")), number(read("memory", "memory.high"))
		if w := number(read("cpu", "cpu.weight")); w > 0 {
			v.shares = unweight(w)
		}
		q, p, _ := strings.Cut(read("cpu", "cpu.max"), " ")
		v.quota, v.period = number(q), max(number(p), 0)
		return v, err
	}
	v.memory = number(read("memory", "memory.limit_in_bytes"))
	v.shares = max(number(read("cpu", "cpu.shares")), 0)
	v.quota, v.period = number(read("cpu", "cpu.cfs_quota_us")), max(number(read("cpu", "cpu.cfs_period_us")), 0)
	return v, err
}

// list are the folders in a cgroup, from all trees.
func (f files) list(at string) []string {
	var out []string
	for _, dir := range f.dirs(at) {
		entries, _ := os.ReadDir(dir) // none: nothing lies there
		for _, e := range entries {
			if e.IsDir() {
				out = append(out, e.Name())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// remove kills what runs in a cgroup and below, and removes it from all trees. found says that there was something.
func (f files) remove(ctx context.Context, at string) (found bool, err error) {
	const tries = 5
	dirs := f.dirs(at)
	for try := range tries {
		if len(dirs) == 0 {
			return found, nil
		}
		if try > 0 {
			select {
			case <-ctx.Done():
				return found, context.Cause(ctx)
			case <-time.After(time.Duration(try) * 20 * time.Millisecond):
			}
		}
		var errs []error
		dirs = slices.DeleteFunc(dirs, func(dir string) bool {
			err := f.rmdir(dir)
			if errors.Is(err, fs.ErrNotExist) {
				return true // as it should be
			}
			found = true
			if err == nil {
				return true
			}
			f.killAll(dir)
			if err = f.removeTree(dir); err != nil {
				errs = append(errs, err)
			}
			return err == nil
		})
		err = errors.Join(errs...)
	}
	return found, err
}

// busy says that something runs in a cgroup or below.
func (f files) busy(at string) (busy bool) {
	for _, dir := range f.dirs(at) {
		processes(dir, func(int) { busy = true })
	}
	return busy
}

// killAll ends all processes in a folder and below. Version 2 has a file for that, which leaves none out that is just being
// made.
func (f files) killAll(dir string) {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err == nil && write(filepath.Join(dir, "cgroup.kill"), "1") == nil {
		return
	}
	processes(dir, func(pid int) { _ = f.kill(pid) }) // it may have ended meanwhile
}

// processes calls each with all that run in a folder and below.
func processes(dir string, each func(pid int)) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "cgroup.procs" {
			return nil //nolint:nilerr // nothing runs in what is gone
		}
		b, _ := os.ReadFile(path)
		for word := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				each(pid)
			}
		}
		return nil
	})
}

// removeTree removes a folder and those below, the lowest first.
func (f files) removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := f.removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := f.rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}
