package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/network"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/observe/prom"
	"github.com/kubeletkit/kubeletkit/pleg"
	probes "github.com/kubeletkit/kubeletkit/probe/manager"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/image"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/server/stream"
	"github.com/kubeletkit/kubeletkit/staticpod"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/admit"
	"github.com/kubeletkit/kubeletkit/volume"
)

// serve puts the parts together, from the engine upwards, and runs them until ctx ends.
func serve(ctx context.Context, o *options, log *slog.Logger) error {
	var b build
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	journal := new(observe.Journal)
	obs := func(component string) observe.To {
		l := log.With("component", component)
		return observe.To{Log: l, Events: observe.EventsTo(journal, observe.LogEvents(l)), Steps: journal, Metrics: prom.New(registry)}
	}

	// The engine.
	conn := one(&b, cri.Dial, o.runtimeEndpoint)
	engineConfig := cri.Config{Runtime: conn, Timeout: o.requestTimeout, Observe: obs("cri")}
	if o.imageEndpoint != "" {
		engineConfig.Image = one(&b, cri.Dial, o.imageEndpoint)
	}
	if b.err != nil {
		return b.err
	}
	defer conn.Close()
	engine := one(&b, cri.New, engineConfig)
	images := one(&b, image.New, image.Config{Images: engine, Parallel: o.parallelPulls, Observe: obs("image")})

	// Pods.
	var roster syncloop.Roster
	hostIPs := hostAddresses(o.nodeIP)
	hosts := func() []string { return hostIPs }
	volumes := one(&b, volume.New, volume.Config{Root: o.root, Memory: machineMemory(), Observe: obs("volume")})
	pods := one(&b, podruntime.New, podruntime.Config{
		Engine: engine, Images: images, HostIPs: hosts, Memory: machineMemory(), DNS: func() network.DNS { return dns(o) },
		Subpaths: volumes, Root: o.root, LogRoot: o.podLogs, LogLinks: o.containerLogs, Changed: roster.Wake, Observe: obs("runtime"),
	})
	watch := &runtimeWatch{info: engine.Info, log: log.With("component", "runtime"), back: func() {
		for _, p := range roster.Pods() {
			roster.Wake(p.UID)
		}
	}}
	dead := one(&b, imagegc.NewDead, imagegc.DeadConfig{
		Containers: engine, Sandboxes: engine, Instances: pods, Removable: roster.Removable, Observe: obs("imagegc"),
	})
	lifecycle := one(&b, pleg.New, pleg.Config{
		Source: pods, Notifier: engine, Observe: obs("pleg"),
		Tell: func(e pleg.Event) {
			roster.Wake(e.Pod.UID)
			if e.Kind == pleg.Died {
				dead.Trim(e.Pod.UID)
			}
		},
	})
	health := one(&b, probes.New, probes.Config{Exec: engine, HostIPs: hosts, Changed: roster.Wake, Observe: obs("probe")})
	statuses := one(&b, status.New, status.Config{
		Sink: &statusLog{log: log.With("component", "status"), phases: map[types.UID]v1.PodPhase{}}, Observe: obs("status"),
	})
	files := one(&b, staticpod.NewDir, staticpod.Config{Path: o.manifests, Node: o.nodeName, Rescan: o.rescan, Observe: obs("staticpod")})
	if b.err != nil {
		return b.err
	}
	loop := one(&b, syncloop.New, syncloop.Config{
		Sources: map[string]syncloop.PodSource{"file": files}, Runtime: pods, Sink: statuses, Volumes: volumes,
		Probes: health, States: pods.Over(lifecycle), Roster: &roster,
		Admit:    []syncloop.Admitter{admit.Sysctls{Unsafe: split(o.sysctls)}, admit.Platform{}, admit.Fit{}},
		Sweepers: []syncloop.Sweeper{volumes, pods},
		HostIPs:  hosts, RuntimeName: watch.Name, Resync: o.resync, Observe: obs("syncloop"),
	})
	if b.err != nil {
		return b.err
	}

	// What looks at them from outside.
	guards := []runner{dead, notifier{}}
	if o.port != 0 {
		guards = append(guards, one(&b, func(c server.Config) (*web, error) { return front(o, c, log) }, server.Config{
			Pods: &roster, Running: pods, Logs: pods, Streams: stream.Proxy{URLs: engine, Pods: pods}, Timeline: journal,
			Metrics: map[string]http.Handler{"/metrics": promhttp.HandlerFor(registry, promhttp.HandlerOpts{})},
			Health:  map[string]func() error{"syncloop": loop.Healthy, "pleg": lifecycle.Healthy, "runtime": watch.Healthy},
			Observe: obs("server"),
		}))
	}
	if b.err != nil {
		return b.err
	}
	log.Info("the agent starts", "node", o.nodeName, "runtime", o.runtimeEndpoint, "manifests", o.manifests, "root", o.root)
	defer log.Info("the agent has stopped; its pods go on")
	return layers(ctx,
		[]runner{watch},
		[]runner{statuses},
		[]runner{lifecycle, health},
		[]runner{loop},
		guards,
	)
}

// front is the server with its certificate, and the token that opens it.
func front(o *options, c server.Config, log *slog.Logger) (*web, error) {
	if err := os.MkdirAll(filepath.Join(o.root, "pki"), 0o755); err != nil {
		return nil, fmt.Errorf("make --root-dir: %w", err)
	}
	token, err := server.WriteToken(filepath.Join(o.root, "admin.token"))
	if err != nil {
		return nil, err
	}
	access := server.AdminAccess{Token: token}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	if o.clientCA != "" {
		pem, err := os.ReadFile(o.clientCA)
		if err != nil {
			return nil, fmt.Errorf("read --client-ca-file: %w", err)
		}
		access.ClientCAs = x509.NewCertPool()
		if !access.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--client-ca-file %s holds no certificate in PEM form", o.clientCA)
		}
	}
	c.Access = access
	cert, err := certificate(o)
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{cert}
	handler, err := server.New(c)
	if err != nil {
		return nil, err
	}
	return newWeb(o.address, o.port, handler, config, log.With("component", "server"))
}

// certificate is the one that is given, else a new one that nobody else has signed. Its public part lies where clients on
// this machine find it.
func certificate(o *options) (tls.Certificate, error) {
	if o.certFile != "" {
		cert, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		if err != nil {
			return cert, fmt.Errorf("read --tls-cert-file and --tls-private-key-file: %w", err)
		}
		return cert, server.WriteCertificate(filepath.Join(o.root, "pki", "nodeagent.crt"), cert)
	}
	cert, err := server.SelfSigned(append([]string{o.nodeName, "localhost", o.address, "127.0.0.1", "::1"}, hostAddresses(o.nodeIP)...))
	if err != nil {
		return cert, err
	}
	return cert, server.WriteCertificate(filepath.Join(o.root, "pki", "nodeagent.crt"), cert)
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
