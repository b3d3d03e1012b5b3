package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/test/bench"
	"github.com/kubeletkit/kubeletkit/test/cluster"
)

// node measures on a cluster. One that it has brought up itself it takes down in the end.
func node(ctx context.Context, flags *flag.FlagSet, args []string) (err error) {
	cfg := bench.NodeConfig{Log: os.Stderr}
	flags.IntVar(&cfg.Serial, "serial", 20, "pods one after the other")
	flags.IntVar(&cfg.Burst, "burst", 50, "pods at once")
	flags.DurationVar(&cfg.Idle, "idle", 30*time.Second, "how long the agent is looked at with these pods")
	flags.IntVar(&cfg.Rounds, "rounds", 2, "how often each agent has its turn")
	flags.StringVar(&cfg.Profile, "profile", "", "directory for CPU profiles of nodeagent; empty: none")
	only := flags.String("agents", bench.Kubelet+","+bench.NodeAgent, "whose figures are wanted")
	dir := flags.String("dir", ".cluster", "directory of the cluster")
	nodeagent := flags.String("nodeagent", "bin/nodeagent", "file of our agent")
	out := flags.String("out", "", "file for the figures; empty: none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg.Agents = strings.Split(*only, ",")
	kubelet, ours, err := agents(ctx, *nodeagent)
	if err != nil {
		return err
	}
	if cfg.Sizes, err = sizes(ctx, kubelet); err != nil {
		return err
	}
	// The registry of a cluster is a command of the program that makes clusters.
	self := filepath.Join(filepath.Dir(ours), "cluster")
	c, err := cluster.Open(cluster.Config{Dir: *dir, Program: ours, Self: self, Log: os.Stderr})
	if err != nil {
		return err
	}
	if _, there := os.Stat(filepath.Join(*dir, "cluster.json")); there == nil {
		err = c.Attach(ctx)
	} else {
		defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
		err = c.Up(ctx, cluster.NodeAgent)
	}
	if err != nil {
		return err
	}
	cfg.Cluster = c
	t, err := bench.Node(ctx, cfg)
	if err != nil {
		return err
	}
	return show(*out, []*bench.Table{t})
}

// sizes are those of the programs without symbols, as the kubelet's is built here.
func sizes(ctx context.Context, kubelet string) (map[string]int64, error) {
	theirs, err := os.Stat(kubelet)
	if err != nil {
		return nil, err
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeletkit/kubeletkit").Output()
	if err != nil {
		return nil, fmt.Errorf("find the agent's source (run this in a module of the checkout): %w", err)
	}
	tmp, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "nodeagent")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file, "./examples/nodeagent")
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the agent: %w: %s", err, msg)
	}
	s, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	return map[string]int64{bench.Kubelet: theirs.Size(), bench.NodeAgent: s.Size()}, nil
}
