package cluster

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestOneAgentAtATime(t *testing.T) {
	c := testCluster(t)
	ctx := t.Context()
	c.program = c.path("agent")
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.program, []byte("#!/bin/sh\nkill -STOP $$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAgent(ctx, NodeAgent, "--kubeconfig=/other"); err != nil {
		t.Fatal(err)
	}
	if c.AgentPID(NodeAgent) == 0 || c.AgentPID(Kubelet) != 0 {
		t.Errorf("processes %d and %d", c.AgentPID(NodeAgent), c.AgentPID(Kubelet))
	}
	if err := c.StartAgent(ctx, Kubelet); err == nil || !strings.Contains(err.Error(), "nodeagent runs already") {
		t.Errorf("a second agent: %v", err)
	}
	if err := c.EndAgent(ctx, syscall.SIGKILL); err != nil || c.AgentPID(NodeAgent) != 0 {
		t.Errorf("end: %v, process %d", err, c.AgentPID(NodeAgent))
	}
	if err := c.EndAgent(ctx, syscall.SIGTERM); err != nil {
		t.Errorf("end of what has ended: %v", err)
	}
}

func TestAttachWantsAClusterThatIsUp(t *testing.T) {
	c := testCluster(t)
	if err := c.Attach(t.Context()); err == nil || !strings.Contains(err.Error(), "make cluster") {
		t.Errorf("attach = %v", err)
	}
}
