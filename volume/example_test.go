package volume_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/volume"
)

func ExampleManager() {
	ctx := context.Background()
	root, err := os.MkdirTemp("", "volume")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "main", VolumeMounts: []v1.VolumeMount{
				{Name: "cache", MountPath: "/cache"}, {Name: "info", MountPath: "/etc/info"},
			}}},
			Volumes: []v1.Volume{
				{Name: "cache", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{Name: "info", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				}}}},
			},
		},
	}

	volumes, err := volume.New(volume.Config{
		Root:    root,
		Mounter: mount.NewFakeMounter(nil), // without it, memory is really mounted
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	places, err := volumes.Mount(ctx, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.TrimPrefix(places["cache"].Path, root))
	labels, _ := os.ReadFile(places["info"].Path + "/labels")
	fmt.Printf("%s, read-only: %v\n", labels, places["info"].ReadOnly)
	fmt.Println(volumes.Unmount(ctx, pod.UID))
	// Output:
	// /pods/u1/volumes/kubernetes.io~empty-dir/cache
	// app="web", read-only: true
	// <nil>
}
