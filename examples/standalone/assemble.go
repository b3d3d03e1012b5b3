package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/staticpod"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/agent"
)

// nodeName ends the names of all pods: web becomes web-node.
const nodeName = "node"

// addresses of this machine, as pods are told them.
func addresses() []string { return []string{"127.0.0.1"} }

// assemble joins the pods of a directory, the engine, and whoever is told. What looks at the agent from outside needs the
// engine, too.
func assemble(o *options, out io.Writer, obs observe.To) (*agent.Agent, *process.Engine, error) {
	files, err := staticpod.NewDir(staticpod.Config{Path: o.manifests, Node: nodeName, Observe: obs})
	if err != nil {
		return nil, nil, err
	}
	engine, err := process.New(process.Config{Root: filepath.Join(o.root, "engine"), IPs: addresses, Observe: obs})
	if err != nil {
		return nil, nil, err
	}
	a, err := agent.New(agent.Config{
		Sources: map[string]syncloop.PodSource{"file": files}, Sink: newLines(out), Root: o.root,
		Engine: engine, Notifier: engine, Reopen: engine, Scheme: "process", HostIPs: addresses, Observe: obs,
	})
	return a, engine, err
}

// run keeps pods running until ctx ends.
func run(ctx context.Context, o *options, out, errOut io.Writer) error {
	journal := new(observe.Journal)
	level := slog.LevelWarn // such as a manifest that is refused
	if o.verbose {
		level = slog.LevelInfo
	}
	obs := observe.To{Log: slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: level})), Events: journal, Steps: journal}
	if o.verbose {
		obs.Events = observe.EventsTo(journal, observe.LogEvents(obs.Log))
	}
	bin := filepath.Join(o.root, "bin")
	if err := install(bin); err != nil {
		return fmt.Errorf("install this program for containers: %w", err)
	}
	if err := os.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		return err
	}
	a, engine, err := assemble(o, out, obs)
	if err != nil {
		return err
	}
	handler, err := server.New(server.Config{
		Pods: a.Roster(), Access: everybody{}, Running: a.Runtime(), Logs: a.Runtime(), Streams: noStreams{}, Timeline: journal, Health: a.Health(), Observe: obs,
	})
	if err != nil {
		return err
	}
	api, err := newAPI(filepath.Join(o.root, "api"), withRun(handler, a.Roster(), engine, a.Runtime()))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pods of %s run as processes of this user; what they are: curl --unix-socket %s http://node/pods\n", o.manifests, api.path)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return api.Run(ctx) })
	g.Go(func() error { return a.Run(ctx) })
	return g.Wait()
}

// end stops all pods there are, each with its grace, and removes every trace of them.
func end(ctx context.Context, o *options, out io.Writer) error {
	a, _, err := assemble(o, io.Discard, observe.To{})
	if err != nil {
		return err
	}
	ended, err := a.End(ctx)
	for _, p := range ended {
		fmt.Fprintf(out, "%s/%s has ended\n", p.Namespace, p.Name)
	}
	return err
}
