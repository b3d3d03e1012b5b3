package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction"
	"github.com/kubeletkit/kubeletkit/examples/nodeagent/config"
	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
	"github.com/kubeletkit/kubeletkit/stats"
)

const runtimeSocket = "NODEAGENT_TEST_RUNTIME"

// TestMain makes the program of the tests the process that a container runtime in memory lives in, so that its work is not
// taken for ours.
func TestMain(m *testing.M) {
	if socket := os.Getenv(runtimeSocket); socket != "" {
		fmt.Fprintln(os.Stderr, serveRuntime(socket))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveRuntime(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	e := runtimetest.New(runtime.Image{ID: "app", Tags: []string{"app:1"}, Size: 1 << 20})
	e.ImageDir = filepath.Dir(socket)
	return criserver.New(e).Serve(l)
}

// guardedNode is a node of many pods, each with a log, and a volume of some files.
type guardedNode struct {
	dir    string
	engine *cri.Engine
	pods   []*v1.Pod
}

func (n *guardedNode) Active() []*v1.Pod                                          { return n.pods }
func (n *guardedNode) Kill(context.Context, types.UID, runtime.Termination) error { return nil }
func (n *guardedNode) Settled(context.Context, types.UID) error                   { return nil }

// RemoveInstance is never needed: all pods run.
func (n *guardedNode) RemoveInstance(context.Context, string) error { return nil }

func newGuardedNode(b *testing.B, pods int) *guardedNode {
	b.Helper()
	n := &guardedNode{dir: b.TempDir()}
	socket := filepath.Join(n.dir, "cri.sock")
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), runtimeSocket+"="+socket)
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // it was killed
	})
	for range 100 {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	conn, err := cri.Dial("unix://" + socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	if n.engine, err = cri.New(cri.Config{Runtime: conn}); err != nil {
		b.Fatal(err)
	}
	for i := range pods {
		n.start(b, fmt.Sprint("pod-", i))
	}
	return n
}

func (n *guardedNode) start(b *testing.B, name string) {
	b.Helper()
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-of-" + name)},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "app", Image: "app:1"}},
			Volumes:    []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
	}
	logDir := filepath.Join(n.dir, "logs", "default_"+name+"_"+string(p.UID))
	data := filepath.Join(n.dir, "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", "data")
	for _, dir := range []string{filepath.Join(logDir, "app"), data} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	files := []string{filepath.Join(logDir, "app", "0.log")}
	for i := range 50 {
		files = append(files, filepath.Join(data, fmt.Sprint(i)))
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte("something"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	sandbox := &runtime.SandboxConfig{Pod: runtime.PodRef{Namespace: "default", Name: name, UID: p.UID}, LogDir: logDir}
	box, err := n.engine.RunSandbox(b.Context(), sandbox)
	if err != nil {
		b.Fatal(err)
	}
	id, err := n.engine.CreateContainer(b.Context(), box, &runtime.ContainerConfig{Name: "app", Image: "app", LogPath: "app/0.log", Args: []string{"wait"}, Sandbox: sandbox})
	if err == nil {
		err = n.engine.StartContainer(b.Context(), id)
	}
	if err != nil {
		b.Fatal(err)
	}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "app", ContainerID: "test://" + id, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	n.pods = append(n.pods, p)
}

// watch are the parts that guard the node, with the configuration that nobody changed.
func (n *guardedNode) watch(b *testing.B) (evictor *eviction.Manager, all []runner) {
	b.Helper()
	k, _, err := config.Load(config.Options{})
	if err != nil {
		b.Fatal(err)
	}
	limits, err := eviction.Parse(k.EvictionHard, nil, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	var build build
	figures := one(&build, stats.New, stats.Config{
		RootDir: n.dir, LogRoot: filepath.Join(n.dir, "logs"), Engine: n.engine, Pods: n.Active,
	})
	images := one(&build, imagegc.New, imagegc.Config{Images: n.engine, Users: n.engine, Disk: figures})
	dead := one(&build, imagegc.NewDead, imagegc.DeadConfig{
		Containers: n.engine, Sandboxes: n.engine, Instances: n, Removable: func(types.UID) bool { return false },
	})
	rotator := one(&build, logs.NewRotator, logs.RotatorConfig{Containers: n.engine, Reopen: n.engine})
	evictor = one(&build, eviction.New, eviction.Config{
		Source: eviction.FromSummary(figures.Glance), Closer: eviction.FromSummary(figures.Summary), Pods: n, Dead: dead, Images: images,
		Thresholds: limits, Layout: guarded{figures: figures}.layout,
	})
	if build.err != nil {
		b.Fatal(build.err)
	}
	return evictor, []runner{figures, images, dead, rotator, evictor}
}

// mustRest ends a benchmark on a machine under pressure: what is measured there is eviction, which never rests.
func mustRest(b *testing.B, evictor *eviction.Manager) {
	b.Helper()
	if pressure := evictor.Pressure(); len(pressure) > 0 {
		b.Fatalf("this machine has %v: make room, and measure again", pressure)
	}
}

// BenchmarkGuardAtRest is what figures, eviction, removal of images and of what is dead, and rotation of logs cost together at
// their default periods.
func BenchmarkGuardAtRest(b *testing.B) {
	for _, pods := range []int{100, 500} {
		b.Run(fmt.Sprint("pods=", pods), func(b *testing.B) {
			n := newGuardedNode(b, pods)
			evictor, all := n.watch(b)
			if _, err := evictor.Check(b.Context()); err != nil {
				b.Fatal(err)
			}
			mustRest(b, evictor)
			const span = 2 * time.Minute
			for b.Loop() {
				ctx, stop := context.WithTimeout(b.Context(), span)
				var wg sync.WaitGroup
				before := cpuTime(b)
				for _, r := range all {
					wg.Go(func() {
						if err := r.Run(ctx); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				stop()
				mustRest(b, evictor)
				b.ReportMetric(100*(cpuTime(b)-before).Seconds()/span.Seconds(), "%-of-a-core")
			}
		})
	}
}

// BenchmarkGuardPassOver500Pods is one look at the node and all its pods through the runtime's socket, and the decision.
func BenchmarkGuardPassOver500Pods(b *testing.B) {
	n := newGuardedNode(b, 500)
	evictor, _ := n.watch(b)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := evictor.Check(b.Context()); err != nil {
			b.Fatal(err)
		}
		mustRest(b, evictor)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
