package bed

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// The life of a bed: pods survive a stop and a crash of containerd, and Clean leaves nothing, not even
// when containerd has been made unable to help.
func TestLife(t *testing.T) {
	b := Private(t)
	ctx := t.Context()
	s, err := b.load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pid := runPod(t, b)

	for name, end := range map[string]func() error{
		"stop": func() error { return b.Stop(ctx) },
		"kill": func() error { return b.Kill(ctx) },
	} {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b.running() != 0 {
			t.Errorf("containerd runs after %s", name)
		}
		if err := b.Start(ctx); err != nil {
			t.Fatalf("start after %s: %v", name, err)
		}
		if out := crictl(t, b, "ps", "-q"); len(strings.Fields(out)) != 1 || process.Arguments(pid) == nil {
			t.Errorf("after %s and start the container is not what it was: %q", name, out)
		}
	}

	if err := b.Up(ctx); err != nil {
		t.Errorf("Up of a bed that is up: %v", err)
	}

	// The pod must be ended although containerd cannot be started to do it.
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.path("root", "io.containerd.metadata.v1.bolt")); err != nil {
		t.Fatal(err)
	}
	if err := b.Clean(ctx); err != nil {
		t.Fatal(err)
	}
	if process.Arguments(pid) != nil || len(process.Find(b.isShim)) > 0 || b.running() != 0 {
		t.Error("processes are left")
	}
	if _, err := os.Stat(b.dir); err == nil {
		t.Error("the directory is left")
	}
	if _, err := net.InterfaceByName(s.Bridge); err == nil {
		t.Error("the bridge is left")
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if left := mountPoints(string(mountinfo), b.dir); len(left) > 0 {
		t.Errorf("mounts are left: %v", left)
	}
	rules, err := output(ctx, nil, "iptables-save", "-t", "nat")
	if err != nil || strings.Contains(rules, s.Bridge) {
		t.Errorf("masquerading is left: %v\n%s", err, rules)
	}
	if left, _ := filepath.Glob("/var/lib/cni/results/" + s.Bridge + "-*"); len(left) > 0 {
		t.Errorf("network results are left: %v", left)
	}
}

func TestDownKeepsImages(t *testing.T) {
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "unix:///run/another.sock") // must not lead away from this bed
	b := Private(t)
	ctx := t.Context()
	runPod(t, b)
	if err := b.Down(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if out := crictl(t, b, "pods", "-q"); out != "" {
		t.Errorf("pods are left: %s", out)
	}
	if out := crictl(t, b, "images"); strings.Count(out, "\n") != 3 /* below the heading */ {
		t.Errorf("images are not what was imported:\n%s", out)
	}
}

// Servers may listen on the bridge's address before there is a pod, and pods then find the bridge good.
func TestBridgeBeforeThePods(t *testing.T) {
	b := Private(t)
	ctx := t.Context()
	s, err := b.load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := output(ctx, nil, "ip", "link", "delete", s.Bridge); err != nil { // the sandbox that was tried made it
		t.Fatal(err)
	}
	var before string
	for range 2 {
		gateway, err := b.EnsureBridge(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if gateway.Masked().String() != s.Subnet {
			t.Errorf("the bridge has %v of the network %s", gateway, s.Subnet)
		}
		l, err := net.Listen("tcp", net.JoinHostPort(gateway.Addr().String(), "0"))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		before = hardwareAddress(t, s.Bridge)
	}
	runPod(t, b)
	if after := hardwareAddress(t, s.Bridge); after != before {
		t.Errorf("the first pod changed the bridge's hardware address from %s to %s", before, after)
	}
}

func hardwareAddress(t *testing.T, name string) string {
	t.Helper()
	link, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link.HardwareAddr.String()
}

// runPod runs the waiting demo in a pod, and returns its process number on this machine.
func runPod(t *testing.T, b *Bed) int {
	t.Helper()
	pod, container := b.path("pod.json"), b.path("container.json")
	writeFile(t, pod, `{"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "log_directory": "`+b.dir+`", "linux": {}}`)
	writeFile(t, container, `{"metadata": {"name": "c"}, "image": {"image": "kubeletkit.dev/demo:1"}, "args": ["wait"], "log_path": "c.log", "linux": {}}`)
	sandbox := crictl(t, b, "runp", pod)
	id := crictl(t, b, "create", sandbox, container, pod)
	crictl(t, b, "start", id)
	pid, err := strconv.Atoi(crictl(t, b, "inspect", "-o", "go-template", "--template", "{{.info.pid}}", id))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(process.Arguments(pid), []string{"/demo", "wait"}) {
		t.Fatalf("process %d is %q", pid, process.Arguments(pid))
	}
	return pid
}

func crictl(t *testing.T, b *Bed, args ...string) string {
	t.Helper()
	out, err := b.crictl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
