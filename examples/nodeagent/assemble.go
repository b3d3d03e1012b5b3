package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/internal/layers"
	"github.com/kubeletkit/kubeletkit/network"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/observe/prom"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/probe/grpcprobe"
	probes "github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/stream"
	"github.com/kubeletkit/kubeletkit/stats"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
	"github.com/kubeletkit/kubeletkit/volume"
)

// serve puts the parts together, from the engine upwards, and runs them until ctx ends.
func serve(ctx context.Context, o *options, log *slog.Logger) error {
	if err := checkKernel(o.kubelet, host("/")); err != nil {
		return err
	}
	release, err := alone(ctx, o.flags.RootDir, 30*time.Second, log)
	if err != nil {
		return err
	}
	defer release()
	var b build
	registry, ofProbes := prometheus.NewRegistry(), prometheus.NewRegistry()
	registry.MustRegister(buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	journal := new(observe.Journal)
	told := []observe.Events{journal}
	obs := func(component string) observe.To {
		l := log.With("component", component)
		return observe.To{Log: l, Events: observe.EventsTo(append(slices.Clone(told), observe.LogEvents(l))...), Steps: journal, Metrics: prom.New(registry)}
	}

	// The cluster, if this node is to be one of it.
	if err := obtain(ctx, o, obs("certificate")); err != nil {
		return err
	}
	m := join(&b, o, obs("kubeapi"))
	if b.err != nil {
		return b.err
	}
	var objects podruntime.Objects // nil interfaces, not nil pointers, say that there is no API server
	var tokens volume.Tokens
	var bundles volume.Bundles
	var certificates volume.Certificates
	var classes func(string) (string, error)
	var services func(context.Context, string) ([]*v1.Service, error)
	if m != nil {
		told = append(told, m.events)
		objects, tokens, classes, services = m.objects, m.objects, m.objects.Class, m.objects.Services
		bundles, certificates = m.watched, m.watched
	}

	// The engine.
	conn := one(&b, cri.Dial, o.kubelet.ContainerRuntimeEndpoint)
	engineConfig := cri.Config{Runtime: conn, Timeout: o.kubelet.RuntimeRequestTimeout.Duration, Observe: obs("cri")}
	if o.kubelet.ImageServiceEndpoint != "" {
		engineConfig.Image = one(&b, cri.Dial, o.kubelet.ImageServiceEndpoint)
	}
	if b.err != nil {
		return b.err
	}
	defer conn.Close()
	engine := one(&b, cri.New, engineConfig)
	images := one(&b, image.New, image.Config{
		Images: engine, Credentials: one(&b, newKeyring, keyringConfig{o, m, obs("keyring")}), Parallel: o.parallelPulls(),
		QPS: float64(value(o.kubelet.RegistryPullQPS)), Burst: int(o.kubelet.RegistryBurst), Root: o.flags.RootDir,
		Verify: image.Policy(o.kubelet.ImagePullCredentialsVerificationPolicy), Exempt: o.kubelet.PreloadedImagesVerificationAllowlist, Observe: obs("image"),
	})

	// Pods.
	var roster syncloop.Roster
	hosts := hostsOf(o, m)
	var own *ownNode
	node := sized(m.nodeObject, func() *v1.Node { return own.object() }) //nolint:contextcheck // the machine is looked at without one
	volumes := one(&b, volume.New, volume.Config{
		Root: o.flags.RootDir, Memory: machineMemory(), Node: node, Changed: roster.Wake, Observe: obs("volume"),
		Objects: objects, Tokens: tokens, Bundles: bundles, Certificates: certificates,
	})
	var figures *stats.Collector
	grouped := newGroups(ctx, &b, grouping{
		o, engine.Info, func() (stats.Machine, error) { return figures.Machine() }, &roster, obs("cgroup"),
	})
	figures = one(&b, stats.New, stats.Config{
		Node: o.nodeName, RootDir: o.flags.RootDir, LogRoot: o.kubelet.PodLogsDir, Engine: engine, Pods: roster.Pods,
		PodsCgroup: grouped.all, Cgroup: grouped.of(), Observe: obs("stats"),
	})
	registry.MustRegister(newLogSizes(figures))
	own = newOwnNode(ctx, &b, o, figures, log.With("component", "admit"))
	grouped = grouped.checked(&b, o, log.With("component", "cgroup"))
	pods := one(&b, podruntime.New, podruntime.Config{
		Engine: engine, Cgroups: grouped.ofPods(), Images: images, HostIPs: hosts, Memory: machineMemory(), DNS: func() network.DNS { return dns(o) },
		Stats: engine, Objects: objects, Classes: classes, Services: services, Node: node, Subpaths: volumes,
		Kernel: podruntime.LookAtKernel(os.DirFS("/")), Policy: policy(o.kubelet), SeccompDefault: value(o.kubelet.SeccompDefault),
		Users: one(&b, newUsers, idsFor{ctx, o.kubelet}), Backoff: o.kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration,
		Root: o.flags.RootDir, LogRoot: o.kubelet.PodLogsDir, LogLinks: o.containerLogs, Changed: roster.Wake, Observe: obs("runtime"),
	})
	watch := &runtimeWatch{info: engine.Info, fits: grouped.fits, log: log.With("component", "runtime"), back: func() {
		m.kickNode()
		for _, p := range roster.Pods() {
			roster.Wake(p.UID)
		}
	}}
	dead := one(&b, imagegc.NewDead, imagegc.DeadConfig{
		Containers: engine, Sandboxes: engine, Instances: pods, Removable: roster.Removable, Ended: roster.Ended, Observe: obs("imagegc"),
	})
	lifecycle := one(&b, pleg.New, pleg.Config{
		Source: pods, Notifier: engine, Answers: watch.Healthy, Busy: roster.Busy, Observe: obs("pleg"),
		Tell: func(e pleg.Event) { roster.Wake(e.Pod.UID) }, Died: dead.Died,
	})
	statuses := one(&b, status.New, status.Config{Sink: m.statusSink(log), Observe: obs("status")})
	guard := newGuards(&b, o, guarded{engine, images, dead, figures, &roster, grouped, statuses, m.kickNode}, obs, log)
	probing := obs("probe")
	probing.Metrics = prom.New(ofProbes) // shown apart, as monitoring of kubelets has it
	health := one(&b, probes.New, probes.Config{Exec: engine, GRPC: grpcprobe.Check, HostIPs: hosts, Changed: roster.Wake, Observe: probing})
	sources := m.sources(&b, o, obs("staticpod"))
	if b.err != nil {
		return b.err
	}
	loop := one(&b, syncloop.New, syncloop.Config{
		Sources: sources, Runtime: pods, Sink: statuses, Volumes: volumes, State: o.flags.RootDir,
		Probes: health, States: pods.Over(lifecycle), Roster: &roster,
		Admit: append(guard.admit(),
			one(&b, sysctls, o.kubelet),
			admit.Platform{Node: m.nodeObject, Info: engine.Info},
			admit.Fit{Node: m.nodeObject, Own: own.object, Kept: roster.Kept, Fresh: m.freshNode()},
			admit.AppArmor{Enabled: admit.AppArmorEnabled()},
			admit.Features{Declared: features()},
			admit.Claims{},
		),
		Sweepers: append(grouped.sweepers(), volumes, pods), // what runs ends before it has no files any more
		HostIPs:  hosts, RuntimeName: watch.Name, Resync: o.kubelet.SyncFrequency.Duration, Observe: obs("syncloop"),
	})
	m.report(&b, o, membership{&roster, statuses, engine, figures, guard, func() error {
		if err := lifecycle.Healthy(); err != nil {
			return fmt.Errorf("PLEG is not healthy: %w", err)
		}
		return nil
	}}, obs)
	if b.err != nil {
		return b.err
	}

	// What looks at them from outside.
	api := server.Config{
		Pods: &roster, Running: pods, Logs: pods, Streams: stream.Proxy{URLs: engine, Pods: pods}, Timeline: journal,
		Metrics: map[string]http.Handler{
			"/metrics": promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), "/metrics/resource": figures.ResourceMetrics(),
			"/metrics/probes": promhttp.HandlerFor(ofProbes, promhttp.HandlerOpts{}), "/metrics/cadvisor": figures.ContainerMetrics(),
		},
		Health:  map[string]func() error{"syncloop": loop.Healthy, "pleg": lifecycle.Healthy, "runtime": watch.Healthy},
		Summary: figures.Summary, Garbage: garbage{dead, guard.images}, Configz: map[string]any{"kubeletconfig": o.kubelet}, Observe: obs("server"),
	}
	if value(o.kubelet.EnableProfilingHandler) {
		api.Profiles = profiles()
	}
	if value(o.kubelet.EnableSystemLogHandler) {
		api.HostLogs = hostLogs{dir: "/var/log", query: value(o.kubelet.EnableSystemLogQuery)}
	}
	api.Closed = !value(o.kubelet.EnableDebuggingHandlers)
	manager := one(&b, newNotifier, notifier{healthy: loop.Healthy, log: log.With("component", "notify")})
	above := append(append([]runner{dead, manager}, guard.runners()...), fronts(&b, o, m, api, log)...)
	if b.err != nil {
		return b.err
	}
	log.Info("the agent starts", "node", o.nodeName, "runtime", o.kubelet.ContainerRuntimeEndpoint, "manifests", o.kubelet.StaticPodPath, "root", o.flags.RootDir, "cluster", m != nil)
	defer log.Info("the agent has stopped; its pods go on")
	return layers.Run(ctx,
		append([]runner{watch}, m.ground(o)...),
		append([]runner{statuses}, m.reports()...),
		append([]runner{lifecycle, health, volumes, figures}, grouped.runners()...),
		[]runner{loop},
		above,
	)
}

// build keeps the first error of many constructors, so that the assembly reads from top to bottom.
type build struct{ err error }

// one makes a part unless an earlier one could not be made.
func one[C, T any](b *build, construct func(C) (T, error), c C) T {
	var t T
	if b.err != nil {
		return t
	}
	t, b.err = construct(c)
	return t
}
