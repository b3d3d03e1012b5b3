package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/pleg"
	probes "github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/staticpod"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
	"github.com/kubeletkit/kubeletkit/volume"
)

// nodeName ends the names of all pods: web becomes web-node.
const nodeName = "node"

// addresses of this machine, as pods are told them.
func addresses() []string { return []string{"127.0.0.1"} }

// base is what both commands need: the engine, and whole pods over it.
func base(o *options, roster *syncloop.Roster, volumes *volume.Manager, obs observe.To) (*process.Engine, *podruntime.Runtime, error) {
	engine, err := process.New(process.Config{Root: filepath.Join(o.root, "engine"), IPs: addresses, Observe: obs})
	if err != nil {
		return nil, nil, err
	}
	pods, err := podruntime.New(podruntime.Config{
		Engine: engine, HostIPs: addresses, Root: o.root, LogRoot: filepath.Join(o.root, "logs"),
		Subpaths: volumes, Changed: roster.Wake, Observe: obs,
	})
	return engine, pods, err
}

// run keeps pods running until ctx ends.
func run(ctx context.Context, o *options, out, errOut io.Writer) error {
	journal := new(observe.Journal)
	obs := observe.To{Events: journal, Steps: journal}
	if o.verbose {
		obs.Log = slog.New(slog.NewTextHandler(errOut, nil))
		obs.Events = observe.EventsTo(journal, observe.LogEvents(obs.Log))
	}
	bin := filepath.Join(o.root, "bin")
	if err := install(bin); err != nil {
		return fmt.Errorf("install this program for containers: %w", err)
	}
	if err := os.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		return err
	}

	var roster syncloop.Roster
	volumes, err := volume.New(volume.Config{Root: o.root, Observe: obs})
	if err != nil {
		return err
	}
	engine, pods, err := base(o, &roster, volumes, obs)
	if err != nil {
		return err
	}
	dead, err := imagegc.NewDead(imagegc.DeadConfig{
		Containers: engine, Sandboxes: engine, Instances: pods, Removable: roster.Removable, Observe: obs,
	})
	if err != nil {
		return err
	}
	lifecycle, err := pleg.New(pleg.Config{Source: pods, Notifier: engine, Observe: obs, Tell: func(e pleg.Event) {
		roster.Wake(e.Pod.UID)
		if e.Kind == pleg.Died {
			dead.Trim(e.Pod.UID)
		}
	}})
	if err != nil {
		return err
	}
	health, err := probes.New(probes.Config{Exec: engine, HostIPs: addresses, Changed: roster.Wake, Observe: obs})
	if err != nil {
		return err
	}
	statuses, err := status.New(status.Config{Sink: newLines(out), Observe: obs})
	if err != nil {
		return err
	}
	files, err := staticpod.NewDir(staticpod.Config{Path: o.manifests, Node: nodeName, Observe: obs})
	if err != nil {
		return err
	}
	loop, err := syncloop.New(syncloop.Config{
		Sources: map[string]syncloop.PodSource{"file": files}, Runtime: pods, Sink: statuses, Volumes: volumes,
		Probes: health, States: pods.Over(lifecycle), Roster: &roster,
		Admit: []syncloop.Admitter{admit.Sysctls{}, admit.Platform{}, admit.Fit{}}, Sweepers: []syncloop.Sweeper{volumes, pods},
		HostIPs: addresses, RuntimeName: func() string { return "process" }, Observe: obs,
	})
	if err != nil {
		return err
	}
	handler, err := server.New(server.Config{
		Pods: &roster, Access: everybody{}, Running: pods, Logs: pods, Timeline: journal,
		Health: map[string]func() error{"syncloop": loop.Healthy, "pleg": lifecycle.Healthy}, Observe: obs,
	})
	if err != nil {
		return err
	}
	api, err := newAPI(filepath.Join(o.root, "api"), withRun(handler, &roster, engine, pods))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pods of %s run as processes of this user; what they are: curl --unix-socket %s http://node/pods\n", o.manifests, api.path)
	return layers(ctx, []runner{statuses}, []runner{lifecycle, health}, []runner{loop}, []runner{dead, api})
}

// end stops all pods there are, each with its grace, and removes every trace of them.
func end(ctx context.Context, o *options, out io.Writer) error {
	var obs observe.To
	volumes, err := volume.New(volume.Config{Root: o.root})
	if err != nil {
		return err
	}
	_, pods, err := base(o, new(syncloop.Roster), volumes, obs)
	if err != nil {
		return err
	}
	all, err := pods.Pods(ctx)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for _, p := range all {
		g.Go(func() error {
			if err := pods.Stop(ctx, nil, p, runtime.Termination{}); err != nil {
				return err
			}
			if err := volumes.Unmount(ctx, p.UID); err != nil {
				return err
			}
			return pods.Remove(ctx, p.UID, runtime.Purge)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, p := range all {
		fmt.Fprintf(out, "%s/%s has ended\n", p.Namespace, p.Name)
	}
	return nil
}
