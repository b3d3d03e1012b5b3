package volume_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

func emptyDir(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
}

func memory(name, size string) v1.Volume {
	e := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
	if size != "" {
		q := resource.MustParse(size)
		e.SizeLimit = &q
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: e}}
}

func TestEmptyDir(t *testing.T) {
	h := newHouse(t)
	pod := podWith("u1", emptyDir("cache"))
	places, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(h.root, "pods/u1/volumes/kubernetes.io~empty-dir/cache")
	if diff := cmp.Diff(map[string]runtime.Volume{"cache": {Path: dir, Relabel: true}}, places); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("%v %v, want a directory open to all whatever the umask", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(dir)); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v %v above it", info.Mode(), err)
	}
	read(t, filepath.Join(h.root, "pods/u1/plugins/kubernetes.io~empty-dir/cache/ready"))

	write(t, dir+"/a", "kept")
	again := newHouse(t, func(c *volume.Config) { c.Root = h.root }) // the agent was started again
	if got := read(t, again.in(t, pod, "cache")+"/a"); got != "kept" {
		t.Errorf("content %q", got)
	}
	again.unmount(t, "u1")
	again.unmount(t, "u1") // twice is no error
	h.unmount(t, "never seen")
}

func TestEmptyDirOfAnUnsetSource(t *testing.T) {
	h := newHouse(t)
	if dir := h.in(t, podWith("u1", v1.Volume{Name: "cache"}), "cache"); filepath.Base(filepath.Dir(dir)) != "kubernetes.io~empty-dir" {
		t.Error(dir)
	}
}

func TestMemory(t *testing.T) {
	limited := func(limits ...string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits = nil
			for i, l := range limits {
				c := v1.Container{Name: fmt.Sprint("c", i)}
				if l != "" {
					c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(l)}
				}
				p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			}
			if len(limits) > 0 {
				p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}
			}
		}
	}
	pod := func(limit string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit)}}
			p.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
		}
	}
	node := func(allocatable string) func() *v1.Node {
		return func() *v1.Node {
			return &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse(allocatable)}}}
		}
	}
	for _, c := range []struct {
		rule, size string
		change     func(*v1.Pod)
		memory     int64
		node       func() *v1.Node
		want       string
	}{
		{rule: "the size limit when it is less than the pod may have (c137)", size: "64Mi", change: limited("128Mi"), memory: 1 << 40, want: "67108864"},
		{rule: "what the pod may have without a size limit", change: limited("90Mi"), memory: 1 << 40, want: "104857600"},
		{rule: "what the pod may have when the size limit is more", size: "1Gi", change: limited("200Mi"), memory: 1 << 40, want: "209715200"},
		{rule: "the pod's own limit, with its overhead", change: pod("10Mi"), memory: 1 << 40, want: "11534336"},
		{rule: "a size limit of zero is none", size: "0", change: limited("200Mi"), want: "209715200"},
		{rule: "one container without a limit leaves the pod without", change: limited("200Mi", ""), memory: 1 << 30, want: "1073741824"},
		{rule: "the machine's memory when nothing is limited", change: limited(), memory: 1 << 30, want: "1073741824"},
		{rule: "what pods can have of the node, if that is known", change: limited(), memory: 1 << 30, node: node("512Mi"), want: "536870912"},
		{rule: "the kernel's default when nothing is known", change: limited()},
	} {
		t.Run(c.rule, func(t *testing.T) {
			h := newHouse(t, func(cfg *volume.Config) { cfg.Memory, cfg.Node = c.memory, c.node })
			p := podWith("u1", memory("mem", c.size))
			c.change(p)
			dir := h.in(t, p, "mem")
			want := []string{"noswap"}
			if c.want != "" {
				want = []string{"size=" + c.want, "noswap"}
			}
			if diff := cmp.Diff([]mount.MountPoint{{Device: "tmpfs", Path: dir, Type: "tmpfs", Opts: want}}, h.fake.MountPoints); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			h.in(t, p, "mem")
			if len(h.fake.MountPoints) != 1 {
				t.Error("mounted over what is in place")
			}
			h.unmount(t, "u1")
			if len(h.fake.MountPoints) != 0 {
				t.Error("still mounted")
			}
		})
	}
}

func TestHugePages(t *testing.T) {
	asks := func(sizes ...string) v1.ResourceList {
		list := v1.ResourceList{}
		for _, size := range sizes {
			list[v1.ResourceName("hugepages-"+size)] = resource.MustParse("1Gi")
		}
		return list
	}
	for _, c := range []struct {
		rule, medium         string
		container, init, pod v1.ResourceList
		want, bad            string
	}{
		{rule: "the size that a container asks for", medium: "HugePages", container: asks("2Mi"), want: "2Mi"},
		{rule: "also an init container", medium: "HugePages", init: asks("1Gi"), want: "1Gi"},
		{rule: "or the pod as a whole", medium: "HugePages", pod: asks("2Mi"), want: "2Mi"},
		{rule: "one that all ask for", medium: "HugePages", container: asks("2Mi"), init: asks("2048Ki"), want: "2Mi"},
		{rule: "the one that is named", medium: "HugePages-1Gi", container: asks("2Mi", "1Gi"), want: "1Gi"},
		{rule: "however it is written", medium: "HugePages-2048Ki", container: asks("2Mi"), want: "2Mi"},
		{rule: "several, and none is named", medium: "HugePages", container: asks("2Mi"), init: asks("1Gi"), bad: "containers ask for huge pages of several sizes, 1Gi, 2Mi; name one of them"},
		{rule: "one is named and not asked for", medium: "HugePages-1Gi", container: asks("2Mi"), bad: "no container asks for huge pages of that size, only of 2Mi"},
		{rule: "nothing is asked for", medium: "HugePages", bad: "no container asks for huge pages"},
		{rule: "no size", medium: "HugePages-big", container: asks("2Mi"), bad: `"big" is no size of pages`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			h := newHouse(t)
			p := podWith("u1", v1.Volume{Name: "huge", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMedium(c.medium)}}})
			p.Spec.Containers[0].Resources.Requests = c.container
			p.Spec.InitContainers = []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Requests: c.init}}}
			p.Spec.Resources = &v1.ResourceRequirements{Requests: c.pod}
			if c.bad != "" {
				if _, err := h.Mount(t.Context(), p); err == nil || !strings.Contains(err.Error(), c.bad) {
					t.Errorf("error %v", err)
				}
				return
			}
			dir := h.in(t, p, "huge")
			want := []mount.MountPoint{{Device: "nodev", Path: dir, Type: "hugetlbfs", Opts: []string{"pagesize=" + c.want, "mode=0777"}}}
			if diff := cmp.Diff(want, h.fake.MountPoints); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			h.in(t, p, "huge")
			if len(h.fake.MountPoints) != 1 {
				t.Error("mounted over what is in place")
			}
			h.unmount(t, "u1")
			if len(h.fake.MountPoints) != 0 {
				t.Error("still mounted")
			}
		})
	}
}

// old is a kernel without noswap.
type old struct{ *mount.FakeMounter }

func (o old) MountSensitiveWithoutSystemd(source, target, fstype string, options, sensitive []string) error {
	if slices.Contains(options, "noswap") {
		return errors.New("bad option")
	}
	return o.FakeMounter.MountSensitiveWithoutSystemd(source, target, fstype, options, sensitive)
}

func TestMemoryOnAnOldKernel(t *testing.T) {
	h := newHouse(t)
	m, _ := volume.New(volume.Config{Root: h.root, Mounter: old{h.fake}})
	if _, err := m.Mount(t.Context(), podWith("u1", memory("mem", "1Mi"))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"size=1048576"}, h.fake.MountPoints[0].Opts); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
