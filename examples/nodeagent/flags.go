package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// options are the flags. Where the kubelet has one of the same meaning, it has the same name.
type options struct {
	runtimeEndpoint string
	imageEndpoint   string
	requestTimeout  time.Duration
	manifests       string
	rescan          time.Duration
	root            string
	podLogs         string
	containerLogs   string
	nodeName        string
	nodeIP          string
	address         string
	port            int
	clientCA        string
	certFile        string
	keyFile         string
	clusterDNS      string
	clusterDomain   string
	resolvConf      string
	sysctls         string
	parallelPulls   int
	resync          time.Duration
	verbosity       int
}

func parse(args []string, errOut io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("nodeagent", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.runtimeEndpoint, "container-runtime-endpoint", "unix:///run/containerd/containerd.sock", "`socket` of the container runtime (CRI)")
	f.StringVar(&o.imageEndpoint, "image-service-endpoint", "", "`socket` of the image service; empty: that of the runtime")
	f.DurationVar(&o.requestTimeout, "runtime-request-timeout", 2*time.Minute, "time a call of the runtime may take, pulls aside")
	f.StringVar(&o.manifests, "pod-manifest-path", "", "`directory` of pod manifests, or a single one")
	f.DurationVar(&o.rescan, "file-check-frequency", 20*time.Second, "time between two looks at the manifests, beside notifications")
	f.StringVar(&o.root, "root-dir", "/var/lib/nodeagent", "`directory` for the agent's files")
	f.StringVar(&o.podLogs, "pod-logs-dir", "/var/log/pods", "`directory` for log files of containers")
	f.StringVar(&o.containerLogs, "container-logs-dir", "", "`directory` for links to log files by container name; empty: /var/log/containers beside the default pod-logs-dir, else none")
	f.StringVar(&o.nodeName, "hostname-override", "", "`name` of this node; empty: the hostname")
	f.StringVar(&o.nodeIP, "node-ip", "", "`address` of this node, or two of both families with a comma between; empty: that of the default route")
	f.StringVar(&o.address, "address", "127.0.0.1", "`address` to serve on")
	f.IntVar(&o.port, "port", 10250, "port to serve on; 0: do not serve")
	f.StringVar(&o.clientCA, "client-ca-file", "", "`file` of certificate authorities whose clients are let in as administrators")
	f.StringVar(&o.certFile, "tls-cert-file", "", "`file` of the serving certificate; empty: self-signed, new at each start")
	f.StringVar(&o.keyFile, "tls-private-key-file", "", "`file` of the key that goes with it")
	f.StringVar(&o.clusterDNS, "cluster-dns", "", "`addresses` of DNS servers for pods, with commas between; empty: the host's")
	f.StringVar(&o.clusterDomain, "cluster-domain", "", "`domain` of the cluster")
	f.StringVar(&o.resolvConf, "resolv-conf", "/etc/resolv.conf", "`file` with the host's resolver settings")
	f.StringVar(&o.sysctls, "allowed-unsafe-sysctls", "", "sysctl `patterns` that pods may set beyond the safe ones, with commas between")
	f.IntVar(&o.parallelPulls, "max-parallel-image-pulls", 1, "images pulled at once")
	f.DurationVar(&o.resync, "sync-frequency", time.Minute, "time between two looks at every pod")
	f.IntVar(&o.verbosity, "v", 2, "how much to log: 0 errors, 1 warnings, 2 changes, 4 everything")
	f.Usage = func() {
		fmt.Fprint(errOut, "usage: nodeagent [flags] | nodeagent pods [--watch] | nodeagent check\n\n")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unknown command %q; there are pods and check, and without a command the agent runs", f.Arg(0))
	}
	return o, o.complete()
}

// complete fills in what follows from other flags, and refuses what cannot work.
func (o *options) complete() error {
	if o.manifests == "" {
		return errors.New("--pod-manifest-path is required: a directory of pod manifests")
	}
	if o.nodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("the hostname cannot be read; give --hostname-override: %w", err)
		}
		o.nodeName = name
	}
	o.nodeName = strings.ToLower(strings.TrimSpace(o.nodeName))
	if bad := validation.IsDNS1123Subdomain(o.nodeName); len(bad) > 0 {
		return fmt.Errorf("--hostname-override %q: %s", o.nodeName, bad[0])
	}
	for _, a := range split(o.nodeIP) {
		if _, err := netip.ParseAddr(a); err != nil {
			return fmt.Errorf("--node-ip: %w", err)
		}
	}
	for _, a := range split(o.clusterDNS) {
		if _, err := netip.ParseAddr(a); err != nil {
			return fmt.Errorf("--cluster-dns: %w", err)
		}
	}
	if o.port < 0 || o.port > 65535 {
		return fmt.Errorf("--port %d is no port", o.port)
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together")
	}
	if o.containerLogs == "" && o.podLogs == "/var/log/pods" {
		o.containerLogs = "/var/log/containers"
	}
	return nil
}

func split(list string) (out []string) {
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
