package process_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// slow is another engine over the same root, with a shim that runs a script first. In it GATE and BEGUN are files: the script
// makes BEGUN, the test makes GATE; SELF is a program that does a shim's work.
type slow struct {
	*process.Engine
	*node
	dir string
}

func (n *node) slow(script string) *slow {
	n.Helper()
	self, err := os.Executable()
	if err != nil {
		n.Fatal(err)
	}
	s := &slow{node: n, dir: n.TempDir()}
	script = strings.NewReplacer("SELF", self, "GATE", s.file("gate"), "BEGUN", s.file("begun")).Replace(script)
	if err := os.WriteFile(s.file("shim"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it is to be run
		n.Fatal(err)
	}
	if s.Engine, err = process.New(process.Config{Root: n.root, Shim: s.file("shim")}); err != nil {
		n.Fatal(err)
	}
	return s
}

func (s *slow) file(name string) string { return filepath.Join(s.dir, name) }

func (s *slow) open() {
	s.Helper()
	if err := os.WriteFile(s.file("gate"), nil, 0o600); err != nil {
		s.Fatal(err)
	}
}

// cut has a container started and its caller give up once the script has begun.
func (s *slow) cut(id string) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	begun := make(chan error, 1)
	go func() { begun <- s.StartContainer(ctx, id) }()
	s.until("the script has begun", func() bool { return there(s.file("begun")) })
	cancel()
	if err := <-begun; !errors.Is(err, context.Canceled) {
		s.Fatal(err)
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (n *node) created() string {
	n.Helper()
	id, err := n.CreateContainer(n.Context(), n.sandbox, n.config("app", "sleep 1000"))
	if err != nil {
		n.Fatal(err)
	}
	return id
}

// An agent that comes up while a container of the one before it still starts must not take it for one that never ran.
func TestAStartOfAnotherAgentIsWaitedFor(t *testing.T) {
	n := newNode(t)
	other := n.slow("until [ -e GATE ]; do sleep 0.01; done; exec SELF")
	id := n.created()
	begun := make(chan error, 1)
	go func() { begun <- other.StartContainer(t.Context(), id) }()
	n.until("it is launched", func() bool { return there(n.file(id, "launch.json")) })
	seen := make(chan runtime.Container, 1)
	go func() {
		c, _ := n.Container(t.Context(), id)
		seen <- c
	}()
	select {
	case c := <-seen:
		t.Errorf("before it runs it is seen as %v", c.State)
	case <-time.After(50 * time.Millisecond): // a look that does not wait is long done
	}
	other.open()
	if c := <-seen; c.State != runtime.Running {
		t.Errorf("then it is seen as %v", c.State)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
}

// Lists of all pods wait for what was launched: not for what was killed with its launch.
func TestALaunchThatIsCutBeforeItsShimIsForgotten(t *testing.T) {
	n := newNode(t)
	id := n.created()
	n.slow("touch BEGUN; exec sleep 1000").cut(id)
	if there(n.file(id, "launch.json")) {
		t.Error("it is still noted as launched")
	}
	if c := n.look(id); c.State != runtime.Created {
		t.Errorf("it is %v", c.State)
	}
	if err := n.StartContainer(t.Context(), id); err != nil {
		t.Error("it cannot be started later:", err)
	}
}

func TestALaunchWithoutAShimIsForgotten(t *testing.T) {
	n := newNode(t)
	id := n.created()
	for name, script := range map[string]string{"one that fails": "exit 3", "one that is no shim": "exit 0", "one that says why": "echo so >&3"} {
		if err := n.slow(script).StartContainer(t.Context(), id); err == nil {
			t.Errorf("%s: started", name)
		}
		if there(n.file(id, "launch.json")) {
			t.Errorf("%s: it is still noted as launched", name)
		}
	}
}

func TestALaunchThatIsCutAfterItsShimIsWaitedFor(t *testing.T) {
	n := newNode(t)
	id := n.created()
	other := n.slow("(until [ -e GATE ]; do sleep 0.01; done; exec SELF) & touch BEGUN; exec sleep 1000")
	other.cut(id)
	if !there(n.file(id, "launch.json")) {
		t.Fatal("nobody would wait for its shim")
	}
	other.open()
	if c := n.look(id); c.State != runtime.Running {
		t.Errorf("it is %v", c.State)
	}
}
