package pleg_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
)

const busybox = "example.com/busybox:1"

// startPod makes a pod of one container per name in an engine.
func startPod(ctx context.Context, e *runtimetest.Engine, ref runtime.PodRef, containers ...string) (sandbox string, err error) {
	sandbox, err = e.RunSandbox(ctx, &runtime.SandboxConfig{Pod: ref, Annotations: annotations()})
	if err != nil {
		return "", err
	}
	for _, name := range containers {
		id, err := e.CreateContainer(ctx, sandbox, &runtime.ContainerConfig{
			Pod: ref, Name: name, Image: busybox, Command: []string{"sleep", "inf"}, Annotations: annotations(),
		})
		if err != nil {
			return "", err
		}
		if err := e.StartContainer(ctx, id); err != nil {
			return "", err
		}
	}
	return sandbox, nil
}

func newEngine() *runtimetest.Engine {
	return runtimetest.New(runtime.Image{ID: "sha256:b0b0", Tags: []string{busybox}, Size: 4 << 20})
}

// Case c048 over a runtime's socket: calls about one pod hang, by the event stream and by relists.
func TestCase_c048_OverCRICallsOfOnePodHang(t *testing.T) {
	for _, evented := range []bool{false, true} {
		t.Run(map[bool]string{false: "relists", true: "event stream"}[evented], func(t *testing.T) {
			e := newEngine()
			pods, engine := overCRI(t, e)
			stuck, err := startPod(t.Context(), e, runtime.PodRef{Namespace: "ns", Name: "stuck", UID: "stuck"}, "app")
			if err != nil {
				t.Fatal(err)
			}
			e.Inject("Sandbox", runtimetest.Only(func(c runtimetest.Call) bool { return c.ID == stuck }, runtimetest.Hang))

			told := make(chan pleg.Event, 1000)
			cfg := pleg.Config{Source: pods, Period: 20 * time.Millisecond, Inspect: 1, Tell: func(e pleg.Event) { told <- e }}
			if evented {
				cfg.Notifier = engine
			}
			g, err := pleg.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = g.Run(ctx) })
			defer wg.Wait()
			defer cancel()

			missing := map[types.UID]bool{}
			for i := range 20 {
				ref := runtime.PodRef{Namespace: "ns", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("uid-", i))}
				if _, err := startPod(ctx, e, ref, "app"); err != nil {
					t.Fatal(err)
				}
				missing[ref.UID] = true
			}
			for deadline := time.After(time.Minute); len(missing) > 0; {
				select {
				case ev := <-told:
					if ev.Pod.UID == "stuck" {
						t.Fatalf("told of a pod that could not be looked at: %v", ev)
					}
					if ev.Kind == pleg.Started && ev.Container != "" {
						delete(missing, ev.Pod.UID)
					}
				case <-deadline:
					t.Fatalf("not told of %v", missing)
				}
			}
			if err := g.Healthy(); err != nil {
				t.Error(err)
			}
		})
	}
}

// overCRI is an engine behind a socket.
func overCRI(t *testing.T, e *runtimetest.Engine) (*podruntime.Runtime, *cri.Engine) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := criserver.New(e)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	conn, err := cri.Dial("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	engine, err := cri.New(cri.Config{Runtime: conn})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := podruntime.New(podruntime.Config{Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	return pods, engine
}
