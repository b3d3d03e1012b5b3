package podruntime

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/looptest"
)

// script is a container of a shell.
func script(image, text string) v1.Container {
	return v1.Container{Image: image, Command: []string{"sh", "-c", text}}
}

// fixture is a Runtime over an engine; each engine that next gives is over the same node.
func fixture(t *testing.T, image string, next func() (runtime.Engine, runtime.Notifier)) looptest.Fixture {
	t.Helper()
	root := t.TempDir()
	engine, notifier := next()
	over := func(e runtime.Engine) syncloop.Runtime {
		r, err := New(Config{Engine: e, Root: filepath.Join(root, "lib"), LogRoot: filepath.Join(root, "pods")})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	deaf, none := script(image, `trap "" TERM; sleep 3600`), script("example.invalid/none:1", "true")
	return looptest.Fixture{
		Runtime:   over(engine),
		Container: script(image, `trap "exit 0" TERM; sleep 3600 & wait`),
		Ends: func(code int32) v1.Container {
			return map[int32]v1.Container{0: script(image, "exit 0"), 3: script(image, "exit 3")}[code]
		},
		Deaf: &deaf, Broken: &none, Notifier: notifier,
		Next: func() syncloop.Runtime {
			engine, _ := next()
			return over(engine)
		},
	}
}

func TestRuntimeKeepsTheContract(t *testing.T) {
	looptest.Run(t, func(t *testing.T) looptest.Fixture {
		t.Helper()
		e := runtimetest.New(runtime.Image{ID: "sha256:1", Tags: []string{"busybox:1"}, Size: 1})
		return fixture(t, "busybox:1", func() (runtime.Engine, runtime.Notifier) { return e, e })
	})
}

func TestRuntimeOverProcessesKeepsTheContract(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("processes are run on Linux only")
	}
	looptest.Run(t, func(t *testing.T) looptest.Fixture {
		t.Helper()
		root := t.TempDir()
		return fixture(t, "host", func() (runtime.Engine, runtime.Notifier) {
			e, err := process.New(process.Config{Root: root})
			if err != nil {
				t.Fatal(err)
			}
			return e, e
		})
	})
}

// TestRuntimeOverAContainerRuntimeKeepsTheContract asks the runtime that KUBELETKIT_CRI names. It makes pods of its own and
// removes them; the runtime may be in use.
func TestRuntimeOverAContainerRuntimeKeepsTheContract(t *testing.T) {
	endpoint := os.Getenv("KUBELETKIT_CRI")
	if endpoint == "" {
		t.Skip("KUBELETKIT_CRI is not set; unix:///run/containerd/containerd.sock would test that containerd")
	}
	looptest.Run(t, func(t *testing.T) looptest.Fixture {
		t.Helper()
		conn, err := cri.Dial(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return fixture(t, "registry.k8s.io/e2e-test-images/busybox:1.37.0-2", func() (runtime.Engine, runtime.Notifier) {
			e, err := cri.New(cri.Config{Runtime: conn})
			if err != nil {
				t.Fatal(err)
			}
			return e, e
		})
	})
}
