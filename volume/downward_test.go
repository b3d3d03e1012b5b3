package volume_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

func downward(name string, items ...v1.DownwardAPIVolumeFile) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}}}
}

func fieldItem(path, field string) v1.DownwardAPIVolumeFile {
	return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: field}}
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
