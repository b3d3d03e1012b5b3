// Cluster runs a Kubernetes of one node for tests, and upstream's specs on it. See packages cluster and
// conformance.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/cluster"
	"github.com/kubeletkit/kubeletkit/test/cluster/registry"
)

const usage = `usage: cluster COMMAND [FLAG...]

  up           [-agent kubelet|nodeagent]  build and start everything, wait until the node is Ready
  down                                     remove all of it
  build        [PROGRAM...]                build programs into the user's cache (default: all)
  conformance  [-agent A] [-focus R] [-skip R] [-procs N] [-suite e2e|node] [-out F.tsv]
                                           run upstream's specs on the cluster, one row a spec
  report       [-a F.tsv] [-b F.tsv]       totals of one run, and row by row where two differ
  registry     -dir D -listen ADDR [-login USER:PASSWORD]
                                           serve images; up starts two of these

up, down and conformance take -dir (default .cluster).
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Print(usage)
		return nil
	}
	commands := map[string]func(context.Context, *flag.FlagSet, []string) error{
		"up": up, "down": down, "build": build, "conformance": judge, "report": report, "registry": serve,
	}
	command, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	err := command(ctx, flags, args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	return err
}

// node is what the flags say about a cluster and its agent.
type node struct{ dir, agent, program *string }

func nodeFlags(flags *flag.FlagSet) node {
	return node{
		dir:     flags.String("dir", ".cluster", "directory of the cluster"),
		agent:   flags.String("agent", string(cluster.Kubelet), "who runs the pods: kubelet or nodeagent"),
		program: flags.String("nodeagent", "bin/nodeagent", "file of our agent"),
	}
}

func (n node) open() (*cluster.Cluster, cluster.Agent, error) {
	a, err := cluster.ParseAgent(*n.agent)
	if err != nil {
		return nil, a, err
	}
	c, err := cluster.Open(cluster.Config{Dir: *n.dir, Program: *n.program, Log: os.Stderr})
	return c, a, err
}

func up(ctx context.Context, flags *flag.FlagSet, args []string) error {
	n := nodeFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, a, err := n.open()
	if err != nil {
		return err
	}
	err = c.Up(ctx, a)
	if errors.Is(err, cluster.ErrCannotJoin) {
		fmt.Fprintf(os.Stderr, "cluster: %v; the control plane is up without a node\n", err)
		err = nil
	}
	if err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s PATH=%s:$PATH\n", c.Kubeconfig(), bed.BinDir())
	return nil
}

func down(ctx context.Context, flags *flag.FlagSet, args []string) error {
	n := nodeFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, _, err := n.open()
	if err != nil {
		return err
	}
	return c.Down(ctx)
}

func build(ctx context.Context, flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	names := flags.Args()
	if len(names) == 0 {
		names = cluster.Programs()
	}
	return cluster.EnsurePrograms(ctx, os.Stderr, names...)
}

// serve serves images until ctx ends.
func serve(ctx context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "directory of the images")
	listen := flags.String("listen", "127.0.0.1:5000", "address")
	login := flags.String("login", "", "user:password")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server := &http.Server{Addr: *listen, Handler: registry.Handler(*dir, *login), ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
