package process_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// The test binary is the shim of the containers it starts.
func TestMain(m *testing.M) {
	if process.Shim() {
		os.Exit(0)
	}
	if root := os.Getenv(agentRoot); root != "" {
		agent(root)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open is an engine over a root; each call is what a restarted program would have.
func open(t *testing.T, root string) *process.Engine {
	t.Helper()
	e, err := process.New(process.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEngineKeepsTheContract(t *testing.T) {
	root := t.TempDir()
	runtimetest.Run(t, func() runtime.Engine { return open(t, root) },
		runtimetest.Image("host"),
		runtimetest.Able(func(e runtime.Engine) runtimetest.Abilities {
			p := e.(*process.Engine)
			return runtimetest.Abilities{Notifier: p, LogReopener: p, Stats: p}
		}))
}
