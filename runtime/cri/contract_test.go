package cri_test

import (
	"os"
	"testing"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// TestContainerRuntimeKeepsTheContract asks the runtime that KUBELETKIT_CRI names. It makes pods of its
// own and removes them; the runtime may be in use.
func TestContainerRuntimeKeepsTheContract(t *testing.T) {
	endpoint := os.Getenv("KUBELETKIT_CRI")
	if endpoint == "" {
		t.Skip("KUBELETKIT_CRI is not set; unix:///run/containerd/containerd.sock would test that containerd")
	}
	open := func() runtime.Engine { return dial(t, endpoint, cri.Config{}) }
	runtimetest.Run(t, open,
		runtimetest.Image("registry.k8s.io/e2e-test-images/busybox:1.37.0-2"),
		runtimetest.Able(func(e runtime.Engine) runtimetest.Abilities {
			c := e.(*cri.Engine)
			return runtimetest.Abilities{Notifier: c, LogReopener: c, Stats: c}
		}))
}

// dial is an engine over a connection of its own, which is closed when the test ends.
func dial(t *testing.T, endpoint string, cfg cri.Config) *cri.Engine {
	t.Helper()
	conn, err := cri.Dial(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	cfg.Runtime = conn
	e, err := cri.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
