package process_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process"
)

var seeds = flag.Int("kill-seeds", 5, "how many histories of killed agents to play")

// agentRoot in the environment makes the test binary an agent over that root, until it is killed.
const agentRoot = "KUBELETKIT_TEST_AGENT"

// agent makes, ends and removes pods without end.
func agent(root string) {
	e, err := process.New(process.Config{Root: root})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for i := 0; ; i++ {
		pod := runtime.PodRef{Namespace: "ns", Name: "p", UID: types.UID(fmt.Sprintf("%d-%d", os.Getpid(), i))}
		sandbox, err := e.RunSandbox(ctx, &runtime.SandboxConfig{Pod: pod})
		if err != nil {
			fmt.Println(err)
			return
		}
		for name, script := range map[string]string{"five": "sleep 0.1; exit 5", "long": "setsid sleep 1000 & sleep 1000"} {
			id, err := e.CreateContainer(ctx, sandbox, &runtime.ContainerConfig{
				Pod: pod, Name: name, Image: "host", Command: []string{"sh", "-c", script}, Env: []runtime.Env{{Name: "ROOT", Value: root}},
			})
			if err == nil {
				err = e.StartContainer(ctx, id)
			}
			if err != nil {
				fmt.Println(err)
				return
			}
		}
		switch i % 3 {
		case 0:
			err = e.StopSandbox(ctx, sandbox)
		case 1:
			err = e.RemoveSandbox(ctx, sandbox)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
}

// An agent is killed at any instant. What runs is known to the next one, what ended has the right exit code, and all of it
// can be removed without a trace.
func TestAgentKilledAtAnyInstant(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			n := &node{T: t, root: filepath.Join(t.TempDir(), "root")}
			for range 3 {
				n.killAgent(time.Duration(20+r.IntN(400)) * time.Millisecond)
				n.Engine = open(t, n.root)
				n.settled()
			}
			n.emptied()
		})
	}
}

// killAgent runs an agent for a while.
func (n *node) killAgent(after time.Duration) {
	n.Helper()
	self, err := os.Executable()
	if err != nil {
		n.Fatal(err)
	}
	cmd := exec.CommandContext(n.Context(), self)
	cmd.Env = append(os.Environ(), agentRoot+"="+n.root)
	out := new(strings.Builder)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.until("the agent has begun", func() bool {
		list, _ := os.ReadDir(filepath.Join(n.root, "sandboxes"))
		return len(list) > 0
	})
	time.Sleep(after)
	_ = cmd.Process.Kill()
	if _ = cmd.Wait(); out.Len() > 0 {
		n.Error(out.String())
	}
}

// settled checks what the next agent sees.
func (n *node) settled() {
	n.Helper()
	n.until("all processes are those of running containers", func() bool {
		running := n.running()
		for _, pid := range n.processes("ROOT=" + n.root) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			_, id, _ := strings.Cut(string(b), "KUBELETKIT_CONTAINER=")
			if id, _, _ = strings.Cut(id, "\x00"); id != "" && !slices.Contains(running, id) {
				return false
			}
		}
		return true
	})
	list, err := n.ListContainers(n.Context(), runtime.Filter{})
	if err != nil {
		n.Fatal(err)
	}
	for _, c := range list {
		sandbox, err := n.Sandbox(n.Context(), c.SandboxID)
		if err != nil {
			n.Fatal(err)
		}
		switch {
		case c.State == runtime.Unknown:
			n.Errorf("unknown: %+v", c)
		case c.State == runtime.Created:
		case c.Name == "five":
			end := n.exited(c.ID)
			if end.ExitCode != 5 && (end.ExitCode != 137 || sandbox.Ready) && end.Reason != "StartError" {
				n.Errorf("%+v in a sandbox that is ready: %v", end, sandbox.Ready)
			}
		case c.State == runtime.Exited && sandbox.Ready:
			if end := n.look(c.ID); end.Reason != "StartError" {
				n.Errorf("ended by itself: %+v", end)
			}
		}
	}
}

func (n *node) running() (ids []string) {
	n.Helper()
	list, err := n.ListContainers(n.Context(), runtime.Filter{OnlyAlive: true})
	if err != nil {
		n.Fatal(err)
	}
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}

// emptied removes everything.
func (n *node) emptied() {
	n.Helper()
	list, err := n.ListSandboxes(n.Context(), runtime.Filter{})
	if err != nil {
		n.Fatal(err)
	}
	// What was only half made goes with the next one that is removed, and there may be no other.
	last, err := n.RunSandbox(n.Context(), &runtime.SandboxConfig{Pod: runtime.PodRef{Namespace: "ns", Name: "last", UID: "last"}, LogDir: n.TempDir()})
	if err != nil {
		n.Fatal(err)
	}
	for _, s := range append(list, runtime.Sandbox{ID: last}) {
		if err := n.RemoveSandbox(n.Context(), s.ID); err != nil {
			n.Error(err)
		}
	}
	for _, dir := range []string{"sandboxes", "containers"} { // a last shim may still tell of a change
		if left, err := os.ReadDir(filepath.Join(n.root, dir)); err != nil || len(left) > 0 {
			n.Errorf("%s: %v, %v", dir, left, err)
		}
	}
	if left := n.processes("ROOT=" + n.root); len(left) > 0 {
		n.Errorf("processes are left: %v", left)
	}
}
