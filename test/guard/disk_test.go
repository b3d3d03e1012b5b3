package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
)

// patience is how long anything may take that takes seconds on an idle machine. Figures of disks may be a minute old.
const patience = 3 * time.Minute

// disk is a small file system.
type disk struct {
	t       *testing.T
	dir     string
	outside string // a folder that is not on it
}

// newDisk mounts one, and has all temporary files of the test lie on it from here on. What was compiled before lies elsewhere.
func newDisk(t *testing.T, mib int64) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	agent.Program(t)
	outside, err := os.MkdirTemp("", "guard-") //nolint:usetesting // TempDir would lie on the disk, or the disk in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(outside) })
	d := &disk{t, filepath.Join(outside, "d"), outside}
	image := filepath.Join(outside, "image")
	for _, err := range []error{os.WriteFile(image, nil, 0o600), os.Truncate(image, mib<<20), os.Mkdir(d.dir, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, "mkfs.ext4", "-q", "-m", "0", image)
	run(t, "mount", "-o", "loop", image, d.dir)
	t.Cleanup(func() { run(t, "umount", d.dir) })
	t.Setenv("TMPDIR", d.dir)
	return d
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// available is how many bytes.
func (d *disk) available() int64 {
	d.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &s); err != nil {
		d.t.Fatal(err)
	}
	return int64(s.Bavail) * s.Frsize
}

// fill leaves so many bytes. The file that takes the rest is nobody's.
func (d *disk) fill(left int64) {
	d.t.Helper()
	f, err := os.OpenFile(filepath.Join(d.dir, "somebody's"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for step := int64(16 << 20); step >= 4<<10; {
		info, err := f.Stat()
		if err != nil {
			d.t.Fatal(err)
		}
		if d.available()-step < left {
			step /= 2
			continue
		}
		if err := syscall.Fallocate(int(f.Fd()), 0, info.Size(), step); errors.Is(err, syscall.ENOSPC) {
			step /= 2
		} else if err != nil {
			d.t.Fatal(err)
		}
	}
	d.t.Logf("%d bytes are available", d.available())
}

// free gives back what fill took.
func (d *disk) free() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, "somebody's")); err != nil {
		d.t.Error(err)
	}
}

// whole says that each file in which an agent keeps something can be read.
func whole(root string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".json") || strings.Contains(path, "/volumes/") {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && !json.Valid(b) {
			err = fmt.Errorf("%s is half written: %d bytes", path, len(b))
		}
		return err
	})
}

const web = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: registry.k8s.io/e2e-test-images/busybox:1.37.0-2
    command: [httpd, -f, -p, "8080", -h, /flag]
    readinessProbe: {httpGet: {port: 8080, path: /ok}, periodSeconds: 1, failureThreshold: 1}
    volumeMounts: [{name: flag, mountPath: /flag}]
  volumes:
  - name: flag
    hostPath: {path: %[2]s}
`

// node is an agent on a containerd of its own.
type node struct {
	*agent.Agent

	t    *testing.T
	conn *grpc.ClientConn
	cri  cri.RuntimeServiceClient
}

func newNode(t *testing.T, b *bed.Bed, flags ...string) *node {
	t.Helper()
	conn, err := grpc.NewClient(b.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &node{agent.New(t, b.Endpoint(), flags...), t, conn, cri.NewRuntimeServiceClient(conn)}
}

// ready waits until a static pod is ready, or is not.
func (n *node) ready(name string, want bool) {
	n.t.Helper()
	took := agent.Eventually(n.t, patience, fmt.Sprintf("%s: ready is %v", name, want), func() error {
		p, err := n.Pod(n.t.Context(), "default", name+"-"+agent.Node)
		if err == nil && agent.PodReady(p) != want {
			err = fmt.Errorf("it is %s, %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return err
	})
	n.t.Logf("%s: ready is %v after %v", name, want, took.Round(time.Millisecond))
}

// containers are the IDs of those that run, by pod.
func (n *node) containers() map[string]string {
	n.t.Helper()
	list, err := n.cri.ListContainers(n.t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range list.GetContainers() {
		out[c.GetLabels()["io.kubernetes.pod.name"]] += c.GetId()
	}
	return out
}

// With not a byte free an agent goes on, probes, ends a pod that is no longer wanted, and can be killed and started again; and
// nothing that it keeps is ever half written.
func TestNotAByteIsFree(t *testing.T) {
	d := newDisk(t, 1024)
	b := bed.Private(t)
	n := newNode(t, b)
	flag := filepath.Join(d.outside, "flag")
	ok := filepath.Join(flag, "ok")
	set := func(on bool) {
		t.Helper()
		if err := os.Remove(ok); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if !on {
			return
		}
		if err := os.WriteFile(ok, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(flag, 0o755); err != nil {
		t.Fatal(err)
	}
	set(true)
	n.Write("stays.yaml", fmt.Sprintf(web, "stays", flag))
	n.Write("goes.yaml", fmt.Sprintf(web, "goes", flag))
	n.Start()
	n.ready("stays", true)
	n.ready("goes", true)
	before := n.containers()

	d.fill(0)
	for on := range 4 { // off and on, twice
		set(on%2 == 1)
		n.ready("stays", on%2 == 1)
	}
	if err := n.Healthy(t.Context(), ""); err != nil {
		t.Error(err)
	}
	n.Kill()
	if err := whole(n.Root); err != nil {
		t.Error(err)
	}
	n.Start()
	n.ready("stays", true)
	set(false)
	n.ready("stays", false)
	set(true)
	n.ready("stays", true)
	if after := n.containers(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("containers were %v and are %v", before, after)
	}
	n.Remove("goes.yaml")
	agent.Eventually(t, patience, "a pod that nobody wants is gone", func() error {
		if _, there := n.containers()["goes-"+agent.Node]; there {
			return errors.New("it runs")
		}
		return nil
	})
	if err := whole(n.Root); err != nil {
		t.Error(err)
	}

	d.free()
	n.Write("comes.yaml", fmt.Sprintf(web, "comes", flag))
	n.ready("comes", true)
	n.ready("stays", true)
	if code, _ := n.Stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
