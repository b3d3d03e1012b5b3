package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/volume"
)

var (
	_ syncloop.Volumes = (*volume.Manager)(nil)
	_ syncloop.Sweeper = (*volume.Manager)(nil)
)

// house is a manager with its directory.
type house struct {
	*volume.Manager
	root string
	fake *mount.FakeMounter
}

func newHouse(t *testing.T, change ...func(*volume.Config)) house {
	t.Helper()
	h := house{root: t.TempDir(), fake: mount.NewFakeMounter(nil)}
	cfg := volume.Config{Root: h.root, Mounter: h.fake}
	for _, c := range change {
		c(&cfg)
	}
	h.root = cfg.Root
	m, err := volume.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Manager = m
	return h
}

// podWith has one container that mounts all these volumes at /<name>.
func podWith(uid string, volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: types.UID(uid),
		Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"note": "two\nlines"},
	}}
	c := v1.Container{Name: "main"}
	for _, v := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	p.Spec.Containers = []v1.Container{c}
	p.Spec.Volumes = volumes
	return p
}

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

func hostPath(name, path string, t v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &t}}}
}

func downward(name string, items ...v1.DownwardAPIVolumeFile) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}}}
}

func fieldItem(path, field string) v1.DownwardAPIVolumeFile {
	return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: field}}
}

// in mounts and answers where the one volume lies.
func (h house) in(t *testing.T, pod *v1.Pod, name string) string {
	t.Helper()
	places, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return places[name].Path
}

func (h house) unmount(t *testing.T, uid string) {
	t.Helper()
	if err := h.Unmount(t.Context(), types.UID(uid)); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(h.root, "pods", uid)); len(entries) > 0 {
		t.Errorf("left in the pod's directory: %v", entries)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
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

func TestVolumesNobodyMountsAreLeftAlone(t *testing.T) {
	h := newHouse(t)
	pod := podWith("u1", emptyDir("a"), emptyDir("b"), emptyDir("c"), v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}})
	mounts := pod.Spec.Containers[0].VolumeMounts
	pod.Spec.Containers[0].VolumeMounts = mounts[:1]
	pod.Spec.InitContainers = []v1.Container{{Name: "init", VolumeMounts: mounts[1:2]}}
	places, err := h.Mount(t.Context(), pod)
	if err != nil || len(places) != 2 || places["a"].Path == "" || places["b"].Path == "" {
		t.Errorf("%v %v, want a and b", places, err)
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

func TestFSGroupOwnsWhatIsMade(t *testing.T) {
	group := int64(os.Getgid())
	if os.Getuid() == 0 {
		group = 4242
	}
	h := newHouse(t)
	item := fieldItem("deep/name", "metadata.name")
	item.Mode = new(int32(0o400))
	pod := podWith("u1", emptyDir("cache"), downward("info", item))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	places, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		places["cache"].Path:               fs.ModeDir | fs.ModeSetgid | 0o777,
		places["info"].Path:                fs.ModeDir | fs.ModeSetgid | 0o777,
		places["info"].Path + "/deep":      fs.ModeDir | fs.ModeSetgid | 0o755,
		places["info"].Path + "/deep/name": 0o440,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want || int64(info.Sys().(*syscall.Stat_t).Gid) != group {
			t.Errorf("%s: %v %v, want %v of group %d", path, info.Mode(), err, want, group)
		}
	}
}

func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "")
	_ = os.Mkdir(dir+"/dir", 0o755)
	_ = os.Symlink("dir", dir+"/link")
	_ = os.Symlink("/", dir+"/rootlink")
	_ = os.Symlink("missing", dir+"/dangling")
	_ = syscall.Mkfifo(dir+"/pipe", 0o600)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: dir + "/sock"})
		defer syscall.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule, path string
		kind       v1.HostPathType
		want       string // in the error; empty: none
	}{
		{"without a type nothing is checked", "missing", v1.HostPathUnset, ""},
		{"a directory", "dir", v1.HostPathDirectory, ""},
		{"a link to a directory is one", "link", v1.HostPathDirectory, ""},
		{"a link to the root of the host is a directory, too (c139)", "rootlink", v1.HostPathDirectory, ""},
		{"a link to the root of the host is no file (c139)", "rootlink", v1.HostPathFile, "must be a file, but is a directory"},
		{"a link to the root of the host is no socket (c139)", "rootlink", v1.HostPathSocket, "must be a socket, but is a directory"},
		{"a link to the root of the host is no device (c139)", "rootlink", v1.HostPathCharDev, "must be a character device, but is a directory"},
		{"a directory that is missing", "missing", v1.HostPathDirectory, "must be a directory, but does not exist"},
		{"a directory that is a file", "file", v1.HostPathDirectory, "must be a directory, but is a file"},
		{"a directory that is made with its parents", "new/er", v1.HostPathDirectoryOrCreate, ""},
		{"a directory to be made that is a file", "file", v1.HostPathDirectoryOrCreate, "must be a directory, but is a file"},
		{"a file", "file", v1.HostPathFile, ""},
		{"a file that is a pipe", "pipe", v1.HostPathFile, "must be a file, but is a named pipe"},
		{"a file that is missing", "missing", v1.HostPathFile, "must be a file, but does not exist"},
		{"a file that is made", "newfile", v1.HostPathFileOrCreate, ""},
		{"a file is not made with its parents", "nowhere/file", v1.HostPathFileOrCreate, "no such file or directory"},
		{"a file to be made that is a directory", "dir", v1.HostPathFileOrCreate, "must be a file, but is a directory"},
		{"a file to be made at a link that leads nowhere", "dangling", v1.HostPathFileOrCreate, "no such file or directory"},
		{"a socket", "sock", v1.HostPathSocket, ""},
		{"a socket that is a file", "file", v1.HostPathSocket, "must be a socket, but is a file"},
		{"a character device", "/dev/null", v1.HostPathCharDev, ""},
		{"a block device that is a character device", "/dev/null", v1.HostPathBlockDev, "must be a block device, but is a character device"},
		{"below a file", "file/x", v1.HostPathDirectory, "cannot be looked at"},
		{"a way up", "dir/../dir", v1.HostPathUnset, "must not go up by .. anywhere"},
		{"two dots in a name are no way up", "dir/..x", v1.HostPathUnset, ""},
		{"an unknown type", "dir", "Pipe", `type "Pipe" is not known`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			h := newHouse(t)
			path := c.path
			if !filepath.IsAbs(path) {
				path = dir + "/" + path
			}
			places, err := h.Mount(t.Context(), podWith("u1", hostPath("host", path, c.kind)))
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && !cmp.Equal(places["host"], runtime.Volume{Path: path}):
				t.Errorf("%+v", places["host"])
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `volume "host"`)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			h.unmount(t, "u1")
		})
	}
	if info, err := os.Stat(dir + "/newfile"); err != nil || info.Mode() != 0o644 {
		t.Errorf("the file that was made: %v %v", info, err)
	}
	if info, err := os.Stat(dir + "/new/er"); err != nil || info.Mode() != fs.ModeDir|0o755 {
		t.Errorf("the directory that was made: %v %v", info, err)
	}
}

func TestARelativeHostPathIsRefused(t *testing.T) {
	h := newHouse(t)
	if _, err := h.Mount(t.Context(), podWith("u1", hostPath("host", "etc", v1.HostPathUnset))); err == nil {
		t.Error("no error")
	}
}

func TestOtherKindsAreNamedInTheError(t *testing.T) {
	h := newHouse(t)
	_, err := h.Mount(t.Context(), podWith("u1",
		v1.Volume{Name: "key", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
		emptyDir("fine"),
		v1.Volume{Name: "huge", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}}},
		v1.Volume{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}}},
	))
	want := `MountVolume.SetUp failed for volume "key" : secret needs an API server, which this agent has none of
MountVolume.SetUp failed for volume "huge" : this agent has no emptyDir with medium "HugePages", only the disk and "Memory"
MountVolume.SetUp failed for volume "token" : serviceAccountToken needs an API server, which this agent has none of`
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
}

func TestImageVolumesAreTheRuntimesBusiness(t *testing.T) {
	h := newHouse(t)
	places, err := h.Mount(t.Context(), podWith("u1", v1.Volume{Name: "model", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "example.com/model:1"}}}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]runtime.Volume{"model": {Image: "example.com/model:1", ReadOnly: true}}, places); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, _, err := h.Subpath(t.Context(), "u1", "model", "main", 0, "x"); err == nil {
		t.Error("a part of it has a place on this host")
	}
}

func TestDownwardAPI(t *testing.T) {
	h := newHouse(t, func(c *volume.Config) {
		c.Node = func() *v1.Node {
			return &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3500m"), v1.ResourceMemory: resource.MustParse("1Gi")}}}
		}
	})
	amount := func(path, what, divisor string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: path, ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: what, Divisor: resource.MustParse(divisor)}}
	}
	secret := fieldItem("uid", "metadata.uid")
	secret.Mode = new(int32(0o400))
	pod := podWith("u1", downward("info",
		fieldItem("labels", "metadata.labels"), fieldItem("annotations", "metadata.annotations"), fieldItem("sub/dir/name", "metadata.name"),
		fieldItem("app", "metadata.labels['app']"), fieldItem("none", "metadata.annotations['none']"), secret,
		amount("cpu", "limits.cpu", "0"), amount("milli", "requests.cpu", "1m"), amount("memory", "limits.memory", "1Mi"),
	))
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")},
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("100M")},
	}
	places, err := h.Mount(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(h.root, "pods/u1/volumes/kubernetes.io~downward-api/info")
	if diff := cmp.Diff(runtime.Volume{Path: dir, ReadOnly: true, Relabel: true}, places["info"]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	got := map[string]string{}
	for _, name := range []string{"labels", "annotations", "sub/dir/name", "app", "none", "uid", "cpu", "milli", "memory"} {
		got[name] = read(t, dir+"/"+name)
	}
	want := map[string]string{
		"labels": "app=\"web\"\ntier=\"front\"", "annotations": `note="two\nlines"`, "sub/dir/name": "web",
		"app": "web", "none": "", "uid": "u1", "cpu": "4", "milli": "250", "memory": "96",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for name, mode := range map[string]fs.FileMode{"labels": 0o644, "uid": 0o400} {
		if info, _ := os.Stat(dir + "/" + name); info.Mode() != mode {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}

	before, _ := os.Readlink(dir + "/..data")
	h.in(t, pod, "info")
	if after, _ := os.Readlink(dir + "/..data"); after != before {
		t.Error("written anew though nothing has changed")
	}
	changed := pod.DeepCopy()
	changed.Labels["tier"] = "back"
	h.in(t, changed, "info")
	if got := read(t, dir+"/labels"); got != "app=\"web\"\ntier=\"back\"" {
		t.Errorf("after a change: %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, before)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the old files are still there")
	}
	h.unmount(t, "u1")
}

func TestDownwardAPIErrorsNameTheFile(t *testing.T) {
	h := newHouse(t)
	missing := v1.DownwardAPIVolumeFile{Path: "b", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "other", Resource: "limits.cpu"}}
	odd := v1.DownwardAPIVolumeFile{Path: "c", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: "wishes.cpu"}}
	_, err := h.Mount(t.Context(), podWith("u1", downward("info", fieldItem("a", "status.podIP"), missing, odd, v1.DownwardAPIVolumeFile{Path: "d"}, fieldItem("../e", "metadata.name"))))
	want := `MountVolume.SetUp failed for volume "info" : file "a": fieldRef "status.podIP" cannot be shown in a file
file "b": resourceFieldRef: the pod has no container "other"
file "c": resourceFieldRef: resource "wishes.cpu" is not known
file "d": has neither fieldRef nor resourceFieldRef
path "../e" must not go up by .. anywhere`
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
	if _, err := os.Stat(filepath.Join(h.root, "pods")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something was made before all was known to be fine")
	}
}

func TestProjectedJoinsItsSources(t *testing.T) {
	h := newHouse(t)
	source := func(items ...v1.DownwardAPIVolumeFile) v1.VolumeProjection {
		return v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: items}}
	}
	dir := h.in(t, podWith("u1", v1.Volume{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o440)),
		Sources:     []v1.VolumeProjection{source(fieldItem("a", "metadata.name"), fieldItem("b", "metadata.name")), source(fieldItem("b", "metadata.uid"))},
	}}}), "all")
	if a, b := read(t, dir+"/a"), read(t, dir+"/b"); a != "web" || b != "u1" {
		t.Errorf("a %q, b %q: of two with one path the later counts", a, b)
	}
	if info, _ := os.Stat(dir + "/a"); info.Mode() != 0o440 {
		t.Errorf("mode %v", info.Mode())
	}
	if filepath.Base(filepath.Dir(dir)) != "kubernetes.io~projected" {
		t.Error(dir)
	}
}

func TestOtherMountsWithinAReadOnlyVolumeFindTheirDirectory(t *testing.T) {
	h := newHouse(t)
	pod := podWith("u1", downward("info", fieldItem("name", "metadata.name")), emptyDir("cache"))
	mounts := pod.Spec.Containers[0].VolumeMounts
	mounts[0].MountPath, mounts[1].MountPath = "/etc/info", "/etc/info/cache/"
	dir := h.in(t, pod, "info")
	if info, err := os.Stat(dir + "/cache"); err != nil || info.Mode() != fs.ModeDir|0o755 {
		t.Errorf("%v %v", info, err)
	}
	h.in(t, pod, "info")
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	h := newHouse(t)
	for _, uid := range []string{"", ".", "..", "a/b", "../x", "a\x00"} {
		if _, err := h.Mount(t.Context(), podWith(uid, emptyDir("cache"))); err == nil {
			t.Errorf("uid %q was taken", uid)
		}
		if err := h.Unmount(t.Context(), types.UID(uid)); err == nil {
			t.Errorf("uid %q was taken away", uid)
		}
	}
	for _, name := range []string{"..", "a/b", "../../../x", strings.Repeat("x", 256)} {
		if _, err := h.Mount(t.Context(), podWith("u1", emptyDir(name))); err == nil {
			t.Errorf("volume name %q was taken", name)
		}
	}
	if _, err := volume.New(volume.Config{Root: "var"}); err == nil {
		t.Error("a relative root was taken")
	}
}

func TestUnmountFollowsNoLinkAndTouchesNoHostPath(t *testing.T) {
	h := newHouse(t)
	host := t.TempDir()
	write(t, host+"/precious", "safe")
	pod := podWith("u1", emptyDir("cache"), hostPath("host", host, v1.HostPathDirectory))
	dir := h.in(t, pod, "cache")
	_ = os.Symlink(host, dir+"/link")
	_ = os.Symlink("..", dir+"/up")
	write(t, dir+"/sub/file", "")
	h.unmount(t, "u1")
	if got := read(t, host+"/precious"); got != "safe" {
		t.Error("gone")
	}
}

func TestWhatAKillLeftBehindIsPutRight(t *testing.T) {
	pod := podWith("u1", emptyDir("cache"), memory("mem", "1Mi"), downward("info", fieldItem("name", "metadata.name")))
	for _, c := range []struct {
		rule string
		left func(t *testing.T, h house, volumes, plugins string)
	}{
		{"a directory without its marker", func(t *testing.T, _ house, volumes, _ string) {
			t.Helper()
			_ = os.MkdirAll(volumes+"/kubernetes.io~empty-dir/cache", 0o700)
		}},
		{"a marker without its directory", func(t *testing.T, _ house, _, plugins string) {
			t.Helper()
			write(t, plugins+"/kubernetes.io~empty-dir/cache/ready", "")
			write(t, plugins+"/kubernetes.io~empty-dir/mem/ready", "")
			write(t, plugins+"/kubernetes.io~empty-dir/wrapped_info/ready", "")
		}},
		{"memory that is mounted, without its marker", func(t *testing.T, h house, _, plugins string) {
			t.Helper()
			h.in(t, pod, "mem")
			_ = os.RemoveAll(plugins)
		}},
		{"memory that was lost when the machine was started again", func(t *testing.T, h house, _, _ string) {
			t.Helper()
			h.in(t, pod, "mem")
			h.fake.MountPoints = nil
		}},
		{"files half written", func(t *testing.T, h house, volumes, _ string) {
			t.Helper()
			h.in(t, pod, "mem")
			info := volumes + "/kubernetes.io~downward-api/info"
			_ = os.Remove(info + "/name")
			_ = os.Mkdir(info+"/..2026_01_01_00_00_00.123", 0o755)
			_ = os.Symlink("..2026_01_01_00_00_00.123", info+"/..data_tmp")
			_ = os.Symlink("..data/gone", info+"/gone")
			write(t, info+"/..data/name", "old")
		}},
		{"a removal that ended halfway", func(t *testing.T, h house, volumes, _ string) {
			t.Helper()
			h.in(t, pod, "mem")
			dir := volumes + "/kubernetes.io~empty-dir/cache"
			write(t, dir+"/old", "")
			_ = os.Rename(dir, dir+".deleting~")
		}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			h := newHouse(t)
			base := filepath.Join(h.root, "pods/u1")
			c.left(t, h, base+"/volumes", base+"/plugins")
			h.in(t, pod, "cache")
			h.in(t, pod, "cache")
			if entries, err := os.ReadDir(base + "/volumes/kubernetes.io~empty-dir/cache"); err != nil || len(entries) > 0 {
				t.Error(entries, err)
			}
			if info, err := os.Stat(base + "/volumes/kubernetes.io~empty-dir/cache"); err != nil || info.Mode().Perm() != 0o777 {
				t.Error(info, err)
			}
			entries, _ := os.ReadDir(base + "/volumes/kubernetes.io~downward-api/info")
			if got := read(t, base+"/volumes/kubernetes.io~downward-api/info/name"); got != "web" || len(entries) != 3 {
				t.Errorf("%q, among %v", got, entries)
			}
			if len(h.fake.MountPoints) != 2 {
				t.Errorf("mounted: %v", h.fake.MountPoints)
			}
			h.unmount(t, "u1")
			if len(h.fake.MountPoints) != 0 {
				t.Errorf("still mounted: %v", h.fake.MountPoints)
			}
		})
	}
}

func TestUnmountThatFailsIsRepeated(t *testing.T) {
	h := newHouse(t)
	dir := h.in(t, podWith("u1", memory("mem", ""), emptyDir("cache")), "mem")
	write(t, dir+"/data", "safe")
	h.fake.UnmountFunc = func(string) error { return errors.New("target is busy") }
	if err := h.Unmount(t.Context(), "u1"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("error %v", err)
	}
	if read(t, dir+"/data") != "safe" {
		t.Error("removed while it is mounted")
	}
	h.fake.UnmountFunc = nil
	h.unmount(t, "u1")
}

func TestSweepRemovesWhatPodsLongGoneLeft(t *testing.T) {
	h := newHouse(t)
	kept := podWith("kept", emptyDir("cache"))
	write(t, h.in(t, kept, "cache")+"/a", "safe")
	gone := filepath.Join(h.root, "pods/gone")
	write(t, gone+"/volumes/kubernetes.io~csi/pv1/vol_data.json", "{}") // c127
	_ = os.MkdirAll(gone+"/volumes/kubernetes.io~nfs/x", 0o750)
	_ = os.MkdirAll(gone+"/volume-subpaths/v/c/0", 0o750)
	_ = os.MkdirAll(gone+"/plugins", 0o750)
	_ = os.MkdirAll(gone+"/volumes/kubernetes.io~csi/pv1/mount/inner dir", 0o750)
	h.fake.MountPoints = []mount.MountPoint{
		{Device: "/dev/sdb", Path: gone + "/volumes/kubernetes.io~csi/pv1/mount"},
		{Device: "tmpfs", Path: gone + "/volumes/kubernetes.io~csi/pv1/mount/inner dir"},
		{Device: "tmpfs", Path: gone + "-by"},
	}
	var order []string
	h.fake.UnmountFunc = func(path string) error { order = append(order, filepath.Base(path)); return nil }
	keep := func(uid types.UID) bool { return uid == "kept" }
	if err := h.Sweep(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the pod's directory is still there")
	}
	if diff := cmp.Diff([]string{"inner dir", "mount"}, order); diff != "" {
		t.Errorf("unmounted (-want +got)\n%s", diff)
	}
	if read(t, h.in(t, kept, "cache")+"/a") != "safe" || len(h.fake.MountPoints) != 1 {
		t.Error("too much was taken away")
	}
	write(t, h.root+"/pods/stray", "") // no directory
	if err := h.Sweep(t.Context(), keep); err != nil {
		t.Error(err)
	}
}

func TestSweepLeavesAPodThatCameBack(t *testing.T) {
	h := newHouse(t)
	dir := h.in(t, podWith("u1", emptyDir("cache")), "cache")
	asked := 0
	if err := h.Sweep(t.Context(), func(types.UID) bool { asked++; return asked > 1 }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

func TestPodsDoNotWaitForEachOther(t *testing.T) {
	h := newHouse(t)
	var wg sync.WaitGroup
	for i := range 8 {
		uid := fmt.Sprint("u", i%4) // two calls for one pod at a time
		pod := podWith(uid, emptyDir("cache"), downward("info", fieldItem("name", "metadata.name")))
		wg.Go(func() {
			for range 20 {
				if _, err := h.Mount(context.Background(), pod); err != nil {
					t.Error(err)
				}
				if _, done, err := h.Subpath(context.Background(), pod.UID, "cache", "main", 0, "a/b"); err == nil {
					done()
				}
				if err := h.Unmount(context.Background(), pod.UID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if entries, _ := os.ReadDir(h.root + "/pods"); len(entries) > 0 {
		t.Error(entries)
	}
}

func TestAWaitingCallEndsWithItsContext(t *testing.T) {
	h := newHouse(t)
	h.in(t, podWith("u1", memory("mem", "")), "mem")
	blocked, release := make(chan struct{}), make(chan struct{})
	h.fake.UnmountFunc = func(string) error { close(blocked); <-release; return nil }
	done := make(chan error)
	go func() { done <- h.Unmount(context.Background(), "u1") }()
	<-blocked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Unmount(ctx, "u1"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
