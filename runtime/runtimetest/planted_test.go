package runtimetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// planted in the environment names the fault of the engine that TestPlanted gives to the suite.
const planted = "KUBELETKIT_PLANTED_FAULT"

// fault is a mistake that somebody who writes an engine may make.
type fault struct {
	plant func(*runtimetest.Engine) runtime.Engine
	rules []string // of the suite, one of which finds it
}

func faults() map[string]fault {
	return map[string]fault{
		"a sandbox is made twice": {
			func(e *runtimetest.Engine) runtime.Engine { return &madeTwice{Engine: e} },
			[]string{"sandbox of the same pod and attempt is refused, the next attempt is not", "engine gives a name to one of many who want it"},
		},
		"lists show what has ended to those who ask for what runs": {
			func(e *runtimetest.Engine) runtime.Engine { return showsAll{e} },
			[]string{"container lists are filtered"},
		},
		"labels are lost": {
			func(e *runtimetest.Engine) runtime.Engine { return losesLabels{e} },
			[]string{"container keeps what it was made with"},
		},
		"every failure is exit code 1": {
			func(e *runtimetest.Engine) runtime.Engine { return roundsCodes{e} },
			[]string{"container exit codes are those of the process"},
		},
		"stop does not wait": {
			func(e *runtimetest.Engine) runtime.Engine { return stopsLater{e} },
			[]string{"stop kills after the grace, not before"},
		},
		"stop gives no grace": {
			func(e *runtimetest.Engine) runtime.Engine { return stopsNow{e} },
			[]string{"stop asks first and returns when the container has ended"},
		},
		"stop does not heed its context": {
			func(e *runtimetest.Engine) runtime.Engine { return stopsDeaf{e} },
			[]string{"stop returns soon after its context ends"},
		},
		"what is gone looks empty": {
			func(e *runtimetest.Engine) runtime.Engine { return emptyLooks{e} },
			[]string{"engine says of what does not exist that it does not"},
		},
		"a second removal is an error": {
			func(e *runtimetest.Engine) runtime.Engine { return removesOnce{e} },
			[]string{"sandbox removed takes its containers along, running or not"},
		},
		"ended contexts are not heeded": {
			func(e *runtimetest.Engine) runtime.Engine { return heedless{e} },
			[]string{"engine calls with an ended context return its error"},
		},
		"the log goes with its container": {
			func(e *runtimetest.Engine) runtime.Engine { return dropsLogs{e} },
			[]string{"remove kills what runs and leaves the log"},
		},
		"an ended container is started again": {
			func(e *runtimetest.Engine) runtime.Engine { return startsAgain{e} },
			[]string{"container is started once"},
		},
		"the restart count is lost": {
			func(e *runtimetest.Engine) runtime.Engine { return losesAttempts{e} },
			[]string{"container of the same name and attempt is refused, the next attempt is not"},
		},
		"what the last process made is unknown to the next": {
			func(e *runtimetest.Engine) runtime.Engine { return &forgetful{Engine: e, own: map[string]bool{}} },
			[]string{"engine shows the next process what the last one left"},
		},
		"a command that fails is an error": {
			func(e *runtimetest.Engine) runtime.Engine { return execFails{e} },
			[]string{"exec gives output and exit code", "exec of a command that is not there says so"},
		},
		"a stopped sandbox leaves its containers": {
			func(e *runtimetest.Engine) runtime.Engine { return leavesContainers{e} },
			[]string{"sandbox stopped is not ready and nothing runs in it"},
		},
	}
}

// TestPlantedFaultsAreFound gives the suite an engine with one fault, in a process of its own, where it must fail.
func TestPlantedFaultsAreFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, rule := range f.rules {
				test := strings.ReplaceAll(rule, " ", "_")
				cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestPlanted$/^"+test+"$", "-test.v")
				cmd.Env = append(os.Environ(), planted+"="+name)
				out, err := cmd.CombinedOutput()
				if err == nil || !strings.Contains(string(out), "--- FAIL: TestPlanted/"+test) {
					t.Errorf("the rule %q does not find it: %v\n%s", rule, err, out)
				}
			}
		})
	}
}

// TestPlanted is the suite on the engine with the fault that is asked for; without one there is nothing to test.
func TestPlanted(t *testing.T) {
	name := os.Getenv(planted)
	if name == "" {
		return
	}
	e := runtimetest.New(busybox())
	e.Logs = true
	runtimetest.Run(t, func() runtime.Engine { return faults()[name].plant(e) })
}

type madeTwice struct {
	*runtimetest.Engine

	mu sync.Mutex
	n  uint32
}

func (e *madeTwice) RunSandbox(ctx context.Context, c *runtime.SandboxConfig) (string, error) {
	e.mu.Lock()
	e.n++
	other := *c
	other.Attempt += 1000 * e.n
	e.mu.Unlock()
	return e.Engine.RunSandbox(ctx, &other)
}

type showsAll struct{ *runtimetest.Engine }

func (e showsAll) ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error) {
	f.OnlyAlive = false
	return e.Engine.ListContainers(ctx, f)
}

type losesLabels struct{ *runtimetest.Engine }

func (e losesLabels) CreateContainer(ctx context.Context, sandbox string, c *runtime.ContainerConfig) (string, error) {
	other := *c
	other.Labels = nil
	return e.Engine.CreateContainer(ctx, sandbox, &other)
}

type roundsCodes struct{ *runtimetest.Engine }

func (e roundsCodes) Container(ctx context.Context, id string) (runtime.Container, error) {
	c, err := e.Engine.Container(ctx, id)
	c.ExitCode = min(c.ExitCode, 1)
	return c, err
}

type stopsLater struct{ *runtimetest.Engine }

func (e stopsLater) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	go func() { _ = e.Engine.StopContainer(context.WithoutCancel(ctx), id, grace) }()
	return ctx.Err()
}

type stopsNow struct{ *runtimetest.Engine }

func (e stopsNow) StopContainer(ctx context.Context, id string, _ time.Duration) error {
	return e.Engine.StopContainer(ctx, id, 0)
}

type stopsDeaf struct{ *runtimetest.Engine }

func (e stopsDeaf) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return e.Engine.StopContainer(context.WithoutCancel(ctx), id, min(grace, 21*time.Second))
}

type emptyLooks struct{ *runtimetest.Engine }

func (e emptyLooks) Container(ctx context.Context, id string) (runtime.Container, error) {
	c, err := e.Engine.Container(ctx, id)
	if errors.Is(err, runtime.ErrNotFound) {
		err = nil
	}
	return c, err
}

type removesOnce struct{ *runtimetest.Engine }

func (e removesOnce) RemoveSandbox(ctx context.Context, id string) error {
	if _, err := e.Sandbox(ctx, id); err != nil {
		return err
	}
	return e.Engine.RemoveSandbox(ctx, id)
}

type heedless struct{ *runtimetest.Engine }

func (e heedless) ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error) {
	return e.Engine.ListContainers(context.WithoutCancel(ctx), f)
}

type dropsLogs struct{ *runtimetest.Engine }

func (e dropsLogs) RemoveContainer(ctx context.Context, id string) error {
	if c, err := e.Container(ctx, id); err == nil {
		os.Remove(c.LogPath)
	}
	return e.Engine.RemoveContainer(ctx, id)
}

type startsAgain struct{ *runtimetest.Engine }

func (e startsAgain) StartContainer(ctx context.Context, id string) error {
	if c, err := e.Container(ctx, id); err == nil && c.State == runtime.Exited {
		return nil
	}
	return e.Engine.StartContainer(ctx, id)
}

type losesAttempts struct{ *runtimetest.Engine }

func (e losesAttempts) Container(ctx context.Context, id string) (runtime.Container, error) {
	c, err := e.Engine.Container(ctx, id)
	c.Restarts = 0
	return c, err
}

// forgetful knows only of containers it made itself.
type forgetful struct {
	*runtimetest.Engine

	mu  sync.Mutex
	own map[string]bool
}

func (e *forgetful) CreateContainer(ctx context.Context, sandbox string, c *runtime.ContainerConfig) (string, error) {
	id, err := e.Engine.CreateContainer(ctx, sandbox, c)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.own[id] = true
	return id, err
}

func (e *forgetful) Container(ctx context.Context, id string) (runtime.Container, error) {
	e.mu.Lock()
	own := e.own[id]
	e.mu.Unlock()
	if !own {
		return runtime.Container{}, runtime.ErrNotFound
	}
	return e.Engine.Container(ctx, id)
}

type execFails struct{ *runtimetest.Engine }

func (e execFails) Exec(ctx context.Context, id string, cmd []string) (runtime.ExecResult, error) {
	r, err := e.Engine.Exec(ctx, id, cmd)
	if err != nil || r.Code != 0 {
		err = errors.New("the command failed")
	}
	return r, err
}

type leavesContainers struct{ *runtimetest.Engine }

func (e leavesContainers) StopSandbox(ctx context.Context, id string) error {
	return e.EditSandbox(id, func(s *runtime.Sandbox) { s.Ready = false })
}
