// Package resize resizes pods of a real container runtime in cgroups of their own.
package resize

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/resource/cgroup"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
)

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

// TestInPlace goes through what upstream's conformance tests ask for, and looks at the kernel's files.
func TestInPlace(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cpu/cpu.shares"); err != nil {
		if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err != nil {
			t.Skip("the files looked at are those of cgroup version 1")
		}
	}
	b := bed.ForTest(t)
	conn, err := cri.Dial(b.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	engine, err := cri.New(cri.Config{Runtime: conn})
	if err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("%s/resize-%d", cgroups.Of(b.Endpoint()), os.Getpid())
	if err := cgroups.Make(own); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroups.Remove(context.Background(), own); err != nil {
			t.Error(err)
		}
		cgroups.Spare(filepath.Dir(own))
	})
	tree, err := cgroup.New(cgroup.Config{Root: own, PodPids: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Check(); err != nil {
		t.Fatal(err)
	}
	pods, err := podruntime.New(podruntime.Config{Engine: engine, Cgroups: tree, Stats: engine, Root: t.TempDir(), LogRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "resize", Namespace: "test", UID: types.UID(filepath.Base(own))}}
	p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = v1.RestartPolicyAlways, new(int64(2))
	for i, words := range []string{"cpu=20m", "memory=35Mi", "cpu=20m memory=35Mi cpu<30m memory<45Mi"} {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i+1), Image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-2", Command: []string{"/bin/sh", "-c", "sleep 1d"}, Resources: sizes(words)})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		seen, _ := pods.Pod(ctx, p.UID)
		if err := pods.Stop(ctx, p, seen, runtime.Termination{}); err != nil {
			t.Error(err)
		}
		if err := pods.Remove(ctx, p.UID, runtime.Purge); err != nil {
			t.Error(err)
		}
		if err := tree.Sweep(ctx, func(types.UID) bool { return false }); err != nil {
			t.Error(err)
		}
		if left := cgroups.Pods(own); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
	settle := func() runtime.Pod {
		t.Helper()
		for range 20 {
			seen, err := pods.Pod(ctx, p.UID)
			if err != nil {
				t.Fatal(err)
			}
			result, err := pods.Sync(ctx, p, runtime.SyncInput{Seen: seen})
			if err != nil || result.Resize != nil {
				t.Fatal(err, result.Resize)
			}
			if !result.Acted && result.RetryAt.IsZero() {
				return seen
			}
			time.Sleep(time.Until(result.RetryAt))
		}
		t.Fatal("no rest")
		return runtime.Pod{}
	}
	read := func(controller, below, file string) string {
		b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, tree.Parent(p), below, file))
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(b))
	}
	first := settle()
	p = p.DeepCopy()
	for i, words := range []string{"cpu=25m cpu<35m", "memory=30Mi memory<50Mi", "cpu=15m memory=40Mi cpu<35m memory<40Mi"} {
		p.Spec.Containers[i].Resources = sizes(words)
	}
	seen := settle()
	if plan.Resizing(p, seen) {
		t.Error("it is still being resized")
	}
	for i, want := range []string{"25 3500 -", "2 -1 52428800", "15 3500 41943040"} {
		c := seen.Newest(p.Spec.Containers[i].Name)
		if c.ID != first.Newest(c.Name).ID || c.Restarts != 0 {
			t.Errorf("%s was restarted", c.Name)
		}
		got := read("cpu", c.ID, "cpu.shares") + " " + read("cpu", c.ID, "cpu.cfs_quota_us") + " " + read("memory", c.ID, "memory.limit_in_bytes")
		if w, ok := strings.CutSuffix(want, "-"); got != want && (!ok || !strings.HasPrefix(got, w)) {
			t.Errorf("%s has %s, want %s; the engine shows %+v", c.Name, got, want, c.Resources)
		}
	}
	if got := read("cpu", "", "cpu.shares") + " " + read("pids", "", "pids.max"); got != "40 100" {
		t.Errorf("the pod has %s", got)
	}
}
