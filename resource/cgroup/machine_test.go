package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestOnThisMachine makes cgroups for real. It needs the right to, and a machine with cgroup version 1 or 2.
func TestOnThisMachine(t *testing.T) {
	own := fmt.Sprintf("kubeletkit-test-%d", os.Getpid())
	f := openFiles("/sys/fs/cgroup", "/")
	if os.Geteuid() != 0 || f.usable() != nil {
		t.Skip("needs root and a cgroup file system")
	}
	if err := f.make(own); errors.Is(err, fs.ErrPermission) || err != nil && strings.Contains(err.Error(), "read-only") {
		t.Skip("the cgroup file system cannot be written:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := f.remove(context.Background(), own); err != nil {
			t.Error(err)
		}
	}()
	tree, err := New(Config{Root: own, PodPids: 50})
	if err != nil {
		t.Fatal(err)
	}
	pod := podOf("u-1", "cpu=100m cpu<200m memory=16Mi memory<32Mi")
	if err := tree.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	at := tree.at(tier(v1.PodQOSBurstable).pod("u-1"))
	check := func(p *v1.Pod) {
		t.Helper()
		has, err := tree.files.has(at)
		want := tree.cfg.podValues(p)
		want.hugepages, want.keep = nil, nil
		if err != nil || !cmp.Equal(want, has, cmp.AllowUnexported(values{})) {
			t.Errorf("%v\n%s", err, cmp.Diff(want, has, cmp.AllowUnexported(values{})))
		}
	}
	check(pod)
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range tree.files.dirs(at) {
		child := filepath.Join(dir, "container")
		if err := os.Mkdir(child, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := inherit(child); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(child, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := podOf("u-1", "cpu=300m cpu<400m memory=16Mi memory<16Mi")
	if err := tree.Ensure(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	check(podOf("u-1", "cpu=300m cpu<400m memory=16Mi memory<32Mi"))
	if err := tree.Shrink(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	check(other)
	if err := tree.Kill("u-1"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("what ran there has ended well")
	}
	cmd = exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range tree.files.dirs(at) {
		if err := os.WriteFile(filepath.Join(dir, "container", "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || tree.files.exists(at) {
		t.Errorf("what ran there: %v", err)
	}
}
