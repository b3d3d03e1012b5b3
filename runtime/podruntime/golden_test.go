package podruntime_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podcases"
	"github.com/kubeletkit/kubeletkit/network"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
)

var update = flag.Bool("update", false, "write testdata/messages anew; the diff is the review")

// What a runtime is told of each pod of internal/podcases is in testdata/messages. test/samemessages asks the kubelet whether
// that is right.
func TestMessages(t *testing.T) {
	cases, err := podcases.All()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, c := range cases {
		if c.Name == "m22-windows" || c.Name == "refused-sysctl" {
			continue // refused before a runtime hears of them
		}
		files[c.Name+".yaml"] = true
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			got := messages(t, c, cases)
			path := filepath.Join("testdata", "messages", c.Name+".yaml")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s is another now (-was +is):\n%s", path, diff)
			}
		})
	}
	entries, err := os.ReadDir("testdata/messages")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !files[e.Name()] {
			t.Errorf("testdata/messages/%s is of no case", e.Name())
		}
	}
}

// world is all that a pod needs beside a runtime.
type world struct {
	*podcases.Case

	all []*podcases.Case
}

func (w world) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	for _, c := range w.all {
		for _, o := range c.Maps {
			if o.Namespace == namespace && o.Name == name {
				return o, nil
			}
		}
	}
	return nil, runtime.ErrNotFound
}

func (w world) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	for _, c := range w.all {
		for _, o := range c.Secrets {
			if o.Namespace == namespace && o.Name == name {
				return o, nil
			}
		}
	}
	return nil, runtime.ErrNotFound
}

func (world) Follow(string, string, string, func()) (stop func()) { return func() {} }

func (w world) services(_ context.Context, namespace string) (out []*v1.Service, err error) {
	for _, o := range w.Service {
		if o.Namespace == namespace {
			out = append(out, o)
		}
	}
	return out, nil
}

func (w world) class(name string) (string, error) {
	for _, c := range w.all {
		for _, o := range c.Classes {
			if o.Name == name {
				return o.Handler, nil
			}
		}
	}
	return "", runtime.ErrNotFound
}

func (world) node() *v1.Node {
	return &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("7Gi"), v1.ResourceEphemeralStorage: resource.MustParse("90Gi"),
	}}}
}

// Subpath says where a volume manager would have bound it.
func (world) Subpath(_ context.Context, _ types.UID, volume, container string, index int, path string) (string, func(), error) {
	return fmt.Sprintf("/subpaths/%s/%s/%d is %s", volume, container, index, path), func() {}, nil
}

// volumes are in place: on the file system, as an image, or as a device.
func volumes(pod *v1.Pod) map[string]runtime.Volume {
	out := map[string]runtime.Volume{}
	for _, v := range pod.Spec.Volumes {
		claim := v.PersistentVolumeClaim
		switch {
		case v.Image != nil:
			out[v.Name] = runtime.Volume{Image: v.Image.Reference, ReadOnly: true}
		case claim != nil:
			out[v.Name] = runtime.Volume{Device: "/devices/" + v.Name, ReadOnly: claim.ReadOnly}
		case v.HostPath != nil:
			out[v.Name] = runtime.Volume{Path: v.HostPath.Path}
		case v.NFS != nil:
			out[v.Name] = runtime.Volume{Path: "/volumes/" + v.Name, ReadOnly: v.NFS.ReadOnly, ExtraGroups: []int64{777}}
		default:
			managed := v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
			out[v.Name] = runtime.Volume{Path: "/volumes/" + v.Name, ReadOnly: managed, Relabel: true}
		}
	}
	return out
}

// messages has a pod run, and is what its runtime was told.
func messages(t *testing.T, c *podcases.Case, all []*podcases.Case) string {
	t.Helper()
	engine, record := serve(t, c)
	root := t.TempDir()
	w, why := world{c, all}, new(reasons)
	images, err := image.New(image.Config{Images: engine})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := podruntime.New(podruntime.Config{
		Engine: engine, Images: images, Objects: w, Services: w.services, Classes: w.class, Subpaths: w, Node: w.node,
		HostIPs: func() []string { return []string{"192.0.2.9"} }, Memory: 8 << 30,
		Kernel: podruntime.Kernel{SwapControl: true, Hugepages: []string{"1GB", "2MB"}, SELinux: true},
		DNS: func() network.DNS {
			return network.DNS{
				Servers: []string{"192.0.2.53"}, Domain: "cluster.example.invalid",
				Host: network.Resolv{Servers: []string{"192.0.2.1"}, Searches: []string{"host.example.invalid"}, Options: []string{"timeout:3"}},
			}
		},
		Root: filepath.Join(root, "lib"), LogRoot: filepath.Join(root, "logs"), Observe: observe.To{Events: why},
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := c.Pod.DeepCopy()
	pod.Spec.NodeName = "node"
	for range 60 {
		seen, err := pods.Pod(t.Context(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		result, err := pods.Sync(t.Context(), pod, runtime.SyncInput{Seen: seen, Volumes: volumes(pod)})
		if err != nil || !result.Acted {
			break // it runs, or it never will
		}
	}
	text, err := record.Text(pod.Namespace, pod.Name, filepath.Join(root, "lib"), "ROOT", filepath.Join(root, "logs"), "LOGS")
	if err != nil {
		t.Fatal(err)
	}
	return text + why.text()
}

// reasons are the texts of warnings, each once.
type reasons struct{ list []string }

func (r *reasons) Event(e observe.Event) {
	if line := fmt.Sprintf("--- # %s: %s\n", e.Reason, e.Message); e.Warning && !slices.Contains(r.list, line) {
		r.list = append(r.list, line)
	}
}

func (r *reasons) text() string { return strings.Join(r.list, "") }

// serve serves a runtime in which init containers end at once.
func serve(t *testing.T, c *podcases.Case) (*cri.Engine, *podcases.Recorder) {
	t.Helper()
	memory := runtimetest.New(podcases.Images()...)
	memory.Remote(podcases.Images()...)
	memory.SetInfo(runtime.Info{
		Name: "memory", Version: "1.0", Ready: runtime.Condition{OK: true}, Network: runtime.Condition{OK: true}, CgroupDriver: "cgroupfs",
		GroupsPolicy: true, Handlers: []runtime.Handler{{RecursiveRO: true, UserNamespaces: true}, {Name: "micro"}},
	})
	memory.Behave = func(k *runtime.ContainerConfig) runtimetest.Behavior {
		return runtimetest.Behavior{Exits: slices.ContainsFunc(c.Pod.Spec.InitContainers, func(i v1.Container) bool {
			return i.Name == k.Name && (i.RestartPolicy == nil || *i.RestartPolicy != v1.ContainerRestartPolicyAlways)
		})}
	}
	record := new(podcases.Recorder)
	server := criserver.New(memory, grpc.UnaryInterceptor(record.Intercept))
	dir, err := os.MkdirTemp("", "cri") //nolint:usetesting // the names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it ends by Stop
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	conn, err := cri.Dial("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	engine, err := cri.New(cri.Config{Runtime: conn})
	if err != nil {
		t.Fatal(err)
	}
	return engine, record
}
