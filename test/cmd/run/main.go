// Run is what `make run` does: it runs the demo pods of examples/manifests with the node agent on a private
// containerd, and shows them until it is interrupted. The pods live on then; the next run finds them again,
// and `run clean` removes everything.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var d demo
	flag.StringVar(&d.dir, "dir", ".run", "where everything is kept")
	flag.StringVar(&d.agent, "agent", "bin/nodeagent", "the node agent's program")
	flag.StringVar(&d.manifests, "manifests", "examples/manifests", "the pods to run")
	flag.Parse()
	for _, path := range []*string{&d.dir, &d.agent, &d.manifests} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	b, err := bed.Open(d.dir)
	if err != nil {
		return err
	}
	b.Log = os.Stderr
	d.bed = b
	if flag.Arg(0) == "clean" {
		return d.clean(ctx)
	}
	return d.show(ctx)
}

// demo is the agent beside its bed. The bed's directory also holds the agent's files, so that cleaning the
// bed removes them too.
type demo struct {
	bed                   *bed.Bed
	dir, agent, manifests string
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }

// show runs the agent, and the table of pods in front of it, until ctx ends.
func (d *demo) show(ctx context.Context) error {
	if err := d.bed.Up(ctx); err != nil {
		return err
	}
	if pid := d.agentPID(); pid != 0 {
		return fmt.Errorf("another run shows these pods already (its agent is process %d)", pid)
	}
	port := freePort(10250)
	agentCtx, stopAgent := context.WithCancel(context.WithoutCancel(ctx)) // it ends after the view
	defer stopAgent()
	agent, err := d.startAgent(agentCtx, port)
	if err != nil {
		return err
	}
	viewCtx, closeView := context.WithCancelCause(ctx)
	agentEnded := make(chan struct{})
	go func() {
		defer close(agentEnded)
		closeView(fmt.Errorf("the agent has ended: %w", cmp.Or(agent.Wait(), errors.New("without an error"))))
	}()
	fmt.Fprintf(os.Stderr, "run: the agent is process %d, its log is %s\n", agent.Process.Pid, d.path("nodeagent.log"))

	viewErr := answers(viewCtx, port)
	if viewErr == nil {
		viewErr = d.view(viewCtx, port)
	}
	why := context.Cause(viewCtx)
	stopAgent()
	<-agentEnded
	if why != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\n%s", why, d.logTail())
	}
	fmt.Fprintln(os.Stderr, "run: the agent has ended, the pods go on; `make run` shows them again, `make clean-run` removes them")
	if ctx.Err() != nil {
		return nil
	}
	return viewErr
}

// startAgent starts the agent in a process group of its own, which Ctrl-C in the terminal does not reach. It
// is asked to end when ctx ends, and has half a minute for that.
func (d *demo) startAgent(ctx context.Context, port int) (*exec.Cmd, error) {
	log, err := os.OpenFile(d.path("nodeagent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	group := cgroups.Of(d.bed.Endpoint()) + "/run" // clean removes it with the bed
	if err := cgroups.Make(group); err != nil {
		return nil, fmt.Errorf("make a cgroup for the pods: %w", err)
	}
	cmd := exec.CommandContext(ctx, d.agent,
		"--cgroup-root="+group,
		"--container-runtime-endpoint="+d.bed.Endpoint(),
		"--pod-manifest-path="+d.manifests,
		"--root-dir="+d.path("nodeagent"),
		"--pod-logs-dir="+d.path("logs"),
		"--address=127.0.0.1",
		"--fail-cgroupv1=false", "--fail-swap-on=false", "--healthz-port=0",
		"--eviction-hard=memory.available<1%,nodefs.available<1%,imagefs.available<1%", "--image-gc-high-threshold=100", // whatever machine this is, and who else is on it
		"--port="+strconv.Itoa(port))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	return cmd, os.WriteFile(d.path("nodeagent.pid"), fmt.Appendln(nil, cmd.Process.Pid), 0o644)
}

// answers waits for the agent's port: the table's first line is then of pods, not of an agent that is still coming up.
func answers(ctx context.Context, port int) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// view shows the table of pods until ctx ends.
func (d *demo) view(ctx context.Context, port int) error {
	cmd := exec.CommandContext(ctx, d.agent, "pods", "--watch", "--root-dir="+d.path("nodeagent"), "--port="+strconv.Itoa(port))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// clean ends an agent that is left over, and removes the bed with all that was made in it.
func (d *demo) clean(ctx context.Context) error {
	if pid := d.agentPID(); pid != 0 {
		if err := process.End(ctx, pid, d.isAgent, syscall.SIGTERM); err != nil {
			return err
		}
	}
	return d.bed.Clean(ctx)
}

func (d *demo) agentPID() int { return process.FromFile(d.path("nodeagent.pid"), d.isAgent) }

func (d *demo) isAgent(args []string) bool {
	return slices.Contains(args, "--root-dir="+d.path("nodeagent")) && !slices.Contains(args, "pods")
}

// logTail is the end of the agent's log.
func (d *demo) logTail() []byte {
	data, _ := os.ReadFile(d.path("nodeagent.log")) // without one there is nothing to show
	return data[max(0, len(data)-2000):]
}

// freePort is the wanted port, or any other if somebody listens there.
func freePort(wanted int) int {
	for _, port := range []int{wanted, 0} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	return wanted
}
