package looptest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/looptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a container of a shell.
func script(text string) v1.Container {
	return v1.Container{Image: "busybox:1", Command: []string{"sh", "-c", text}}
}

// right is a fixture with a runtime that keeps the rules.
func right(t *testing.T) looptest.Fixture {
	t.Helper()
	e, root := runtimetest.New(runtime.Image{ID: "sha256:1", Tags: []string{"busybox:1"}}), t.TempDir()
	next := func() syncloop.Runtime {
		r, err := podruntime.New(podruntime.Config{Engine: e, LogRoot: root})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	deaf, none := script(`trap "" TERM; sleep 3600`), script("true")
	none.Image = "example.invalid/none:1"
	return looptest.Fixture{
		Runtime: next(), Next: next, Notifier: e, Patience: 4 * time.Second,
		Container: script(`trap "exit 0" TERM; sleep 3600 & wait`), Deaf: &deaf, Broken: &none,
		Ends: func(code int32) v1.Container {
			return map[int32]v1.Container{0: script("exit 0"), 3: script("exit 3")}[code]
		},
	}
}

func TestEveryRuleIsDocumentedAndFindsAFault(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(doc), "//", " ")), " ")
	finds := map[string]bool{}
	for name, f := range faults() {
		if !slices.Contains(looptest.Rules(), f.rule) {
			t.Errorf("the fault %q is for the rule %q, which is none", name, f.rule)
		}
		finds[f.rule] = true
	}
	for _, name := range looptest.Rules() {
		if !strings.Contains(text, " - "+name+":") {
			t.Errorf("the package's documentation says nothing of the rule %q", name)
		}
		if !finds[name] {
			t.Errorf("no planted fault shows that the rule %q finds any", name)
		}
	}
}

func TestTheExampleKeepsTheContract(t *testing.T) { testLamps(t) }

func TestABackendWhosePodsAreOfOneContainerKeepsTheContract(t *testing.T) {
	looptest.Run(t, func(t *testing.T) looptest.Fixture {
		t.Helper()
		f := right(t)
		f.Pod = func(pod *v1.Pod) { pod.Spec.Containers = pod.Spec.Containers[:1] }
		return f
	})
}
