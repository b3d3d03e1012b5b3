// Command nodeagent is a complete node agent, put together from the packages of kubeletkit.
//
//	nodeagent [flags]          keep the pods of a directory running
//	nodeagent pods [--watch]   show them
//	nodeagent gc [--dry-run]   remove what no pod needs, or only say what that is and why
//	nodeagent check            tell what is missing on this machine, and how to mend it
//	nodeagent config           show the configuration that flags and files come to
//	nodeagent completion bash  complete these words in a shell
//	nodeagent help             all flags, by what they are about
//
// Read assemble.go for the parts and how they meet, run.go for the order in which they start and stop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	goruntime "runtime"
	"syscall"
	"time"

	"k8s.io/klog/v2" //nolint:depguard // some of client-go speaks there and nowhere else
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second one ends all at once
	err := leave(ctx, func() error { return command(ctx, os.Args[1:], os.Stdout, os.Stderr) })
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "nodeagent:", err)
		os.Exit(1)
	}
}

// leave waits for do, but not long once ctx has ended: a mount on a server of files that is gone hangs for as long as it is.
func leave(ctx context.Context, do func() error) error {
	const patience = 20 * time.Second
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return fmt.Errorf("something had not ended %v after a signal to stop, and was left as it was", patience)
	}
}

// command does what the first word asks for.
func command(ctx context.Context, args []string, out, errOut io.Writer) error {
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	switch word {
	case "pods":
		return podsCommand(ctx, args[1:], out)
	case "gc":
		return gcCommand(ctx, args[1:], out)
	case "check":
		return checkCommand(ctx, args[1:], out)
	case "config":
		return configCommand(args[1:], out)
	case "completion":
		return completionCommand(args[1:], out)
	case "help", "--help", "-help", "-h":
		f, _, _ := agentFlags()
		return help(out, f)
	}
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	log := logger(errOut, o.verbosity(), os.Getenv("JOURNAL_STREAM") != "")
	klog.SetSlogLogger(log.With("component", "client-go"))
	for _, w := range o.warnings {
		log.Warn("the configuration says something that is not heard", "what", w.String())
	}
	for _, field := range unheard(o.kubelet) {
		log.Warn("a field of the configuration has no effect", "field", field.Path, "why", field.Note)
	}
	leaveRoom()
	return serve(ctx, o, log)
}

// leaveRoom has the agent use half of the processors at most: the machine is there for pods. It takes less time in all, too,
// as no second processor is woken to look for work that the first one will have done. GOMAXPROCS in the environment overrules it.
func leaveRoom() {
	if os.Getenv("GOMAXPROCS") == "" {
		goruntime.GOMAXPROCS(max(1, goruntime.GOMAXPROCS(0)/2))
	}
}
