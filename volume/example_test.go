package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/runtime"
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

// settings answers from memory. Objects of an API server are watched, and changed is called at each change.
type settings map[string]*v1.ConfigMap

func (s settings) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	if c := s[name]; c != nil {
		return c, nil
	}
	return nil, runtime.ErrNotFound
}

func (s settings) Secret(context.Context, string, string) (*v1.Secret, error) {
	return nil, runtime.ErrNotFound
}

func (s settings) Follow(kind, namespace, name string, changed func()) (stop func()) {
	return func() {}
}

// With Objects, volumes show what lies elsewhere. Run asks for it.
func ExampleManager_Run() {
	root, err := os.MkdirTemp("", "volume")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	volumes, err := volume.New(volume.Config{
		Root: root, Mounter: mount.NewFakeMounter(nil),
		Objects: settings{"app": {Data: map[string]string{"app.ini": "color = blue"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	over := make(chan error)
	go func() { over <- volumes.Run(ctx) }()

	for _, name := range []string{"app", "other"} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"}}
		pod.Spec.Containers = []v1.Container{{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: name, MountPath: "/etc/app"}}}}
		pod.Spec.Volumes = []v1.Volume{{Name: name, VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}},
		}}}
		places, err := volumes.Mount(ctx, pod)
		for errors.Is(err, runtime.ErrInProgress) { // whoever is asked has not answered yet
			places, err = volumes.Mount(ctx, pod)
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		text, _ := os.ReadFile(places[name].Path + "/app.ini")
		fmt.Println(string(text))
	}
	stop()
	fmt.Println(<-over)
	// Output:
	// color = blue
	// MountVolume.SetUp failed for volume "other" : configmap "other" not found
	// <nil>
}
