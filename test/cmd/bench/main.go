// Bench measures node agents side by side. See package bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/bench"
	"github.com/kubeletkit/kubeletkit/test/cluster"
)

const usage = `usage: bench COMMAND [FLAG...]

  fakes  [-pods 100,500,1000] [-rounds N] [-span 20s] [-member]
         kubelet and nodeagent on a container runtime in memory
  node   [-serial 20] [-burst 50] [-idle 30s] [-rounds N] [-dir .cluster]
         kubelet and nodeagent on containerd, in the cluster there, or one that is made for it; and the floor
  serve  -socket S -api ADDRESS
         that runtime, and an API server in memory

fakes and node take -nodeagent (default bin/nodeagent) and -out, a file for the figures as JSON.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Print(usage)
		return nil
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	switch args[0] {
	case "fakes":
		return fakes(ctx, flags, args[1:])
	case "node":
		return node(ctx, flags, args[1:])
	case "serve":
		socket := flags.String("socket", "", "of the container runtime")
		api := flags.String("api", "127.0.0.1:8080", "address of the API server")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return bench.Serve(ctx, *socket, *api)
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}

// agents are the programs that are measured.
func agents(ctx context.Context, nodeagent string) (kubelet, ours string, err error) {
	if err := cluster.EnsurePrograms(ctx, os.Stderr, "kubelet"); err != nil {
		return "", "", err
	}
	ours, err = filepath.Abs(nodeagent)
	return filepath.Join(bed.BinDir(), "kubelet"), ours, err
}

func fakes(ctx context.Context, flags *flag.FlagSet, args []string) error {
	pods := flags.String("pods", "100,500,1000", "numbers of pods")
	cfg := bench.FakesConfig{Log: os.Stderr}
	flags.IntVar(&cfg.Rounds, "rounds", 1, "how often each agent has its turn")
	flags.DurationVar(&cfg.Span, "span", 20*time.Second, "of rest, and of pods that come and go")
	flags.BoolVar(&cfg.Member, "member", false, "with an API server in memory in place of manifests")
	flags.StringVar(&cfg.Profile, "profile", "", "directory for CPU profiles of pods that come and go; empty: none")
	only := flags.String("agents", bench.Kubelet+","+bench.NodeAgent, "whose figures are wanted")
	steps := flags.String("steps", "fill,rest,summary,churn,restart", "what is to be done")
	nodeagent := flags.String("nodeagent", "bin/nodeagent", "file of our agent")
	out := flags.String("out", "", "file for the figures; empty: none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg.Steps = strings.Split(*steps, ",")
	cfg.Agents = strings.Split(*only, ",")
	for p := range strings.SplitSeq(*pods, ",") {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 {
			return fmt.Errorf("-pods %q: %q is no number of pods", *pods, p)
		}
		cfg.Pods = append(cfg.Pods, n)
	}
	var err error
	if cfg.Self, err = os.Executable(); err != nil {
		return err
	}
	if cfg.Kubelet, cfg.NodeAgent, err = agents(ctx, *nodeagent); err != nil {
		return err
	}
	tables, err := bench.Fakes(ctx, cfg)
	if err != nil {
		return err
	}
	return show(*out, tables)
}

// show prints tables and keeps them in a file.
func show(out string, tables []*bench.Table) error {
	for _, t := range tables {
		fmt.Println(t)
	}
	if out == "" {
		return nil
	}
	return bench.Write(out, tables...)
}
