package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sizes are such as "cpu=1 memory<1Mi": requests and limits.
func sizes(words string) v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for w := range strings.FieldsSeq(words) {
		list, at := r.Requests, strings.IndexAny(w, "=<")
		if w[at] == '<' {
			list = r.Limits
		}
		list[v1.ResourceName(w[:at])] = resource.MustParse(w[at+1:])
	}
	return r
}

func podOf(uid string, containers ...string) *v1.Pod {
	p := &v1.Pod{}
	p.UID = types.UID(uid)
	for i, words := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: sizes(words)})
	}
	return p
}

const guaranteed = "cpu=1 cpu<1 memory=1Mi memory<1Mi"

// fixture is a file system of cgroups without a kernel behind it.
type fixture struct {
	*Tree
	t      *testing.T
	mu     sync.Mutex // guards killed
	killed []int
}

func newFixture(t *testing.T, version int, cfg Config) *fixture {
	t.Helper()
	cfg.Mount = t.TempDir()
	f := &fixture{t: t}
	fill := func(dir string, v2 bool) {
		files := map[string]string{"cgroup.procs": "", "cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "memory.limit_in_bytes": "9223372036854771712", "pids.max": "max", "cpuset.cpus": "", "cpuset.mems": ""}
		if v2 {
			files = map[string]string{"cgroup.procs": "", "cgroup.controllers": "cpuset cpu io memory pids", "cgroup.subtree_control": "", "cpu.weight": "100", "cpu.max": "max 100000", "memory.max": "max", "memory.high": "max", "memory.min": "0", "memory.low": "0", "pids.max": "max"}
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if version == 2 {
		fill(cfg.Mount, true)
	} else {
		for _, c := range []string{"cpu", "cpuset", "memory", "pids", "systemd", "files"} {
			dir := filepath.Join(cfg.Mount, c)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			fill(dir, false)
		}
		for name, text := range map[string]string{"cpuset.cpus": "0-1", "cpuset.mems": "0"} {
			if err := os.WriteFile(filepath.Join(cfg.Mount, "cpuset", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var err error
	if f.Tree, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	f.files.mkdir = func(dir string) error {
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			fill(dir, version == 2)
		}
		return err
	}
	f.files.rmdir = func(dir string) error {
		if b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")); len(b) > 0 {
			return errors.New("device or resource busy")
		}
		if _, err := os.Lstat(dir); err != nil {
			return err
		}
		return os.RemoveAll(dir)
	}
	f.files.kill = func(pid int) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.killed = append(f.killed, pid)
		return nil
	}
	return f
}

func (f *fixture) file(path string) string {
	b, err := os.ReadFile(filepath.Join(f.cfg.Mount, path))
	if err != nil {
		return "none"
	}
	return string(b)
}

func (f *fixture) holds(want map[string]string) {
	f.t.Helper()
	for path, text := range want {
		if got := f.file(path); got != text {
			f.t.Errorf("%s is %q, want %q", path, got, text)
		}
	}
}
