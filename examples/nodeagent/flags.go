package main

import (
	"cmp"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/examples/nodeagent/config"
	"github.com/kubeletkit/kubeletkit/status/nodestatus"
	"github.com/kubeletkit/kubeletkit/syncloop/offline"
)

// options are what the agent runs with: the configuration, flags laid over it, and what follows from both.
type options struct {
	kubelet  *v1beta1.KubeletConfiguration
	flags    *config.Overrides
	warnings []config.Warning

	nodeName      string
	nodeIPs       []netip.Addr
	hostIPs       []string // as pods see them, the primary one first
	address       string
	port          int // 0: do not serve
	containerLogs string
	offlineDir    string // empty: nothing is kept for a start without the API server
	offlineKey    []byte // nil: Secrets and tokens are not kept
}

// agentFlags are the flags of the agent, and what they are read into.
func agentFlags() (f *flag.FlagSet, o *options, key *string) {
	f = flag.NewFlagSet("nodeagent", flag.ContinueOnError)
	o = &options{flags: config.Bind(f)}
	f.StringVar(&o.containerLogs, "container-logs-dir", "", "`folder` for links to log files by container name; empty: /var/log/containers in a cluster or beside the default pod-logs-dir, else none")
	f.StringVar(&o.offlineDir, "offline-cache", "", "`folder` that keeps pods and what they need, for a start without the API server; empty: nothing is kept")
	key = f.String("offline-cache-key", "", "`file` with 32 bytes, as they are or in hexadecimal, that seal Secrets and tokens in --offline-cache; empty: these are not kept")
	return f, o, key
}

// parse reads flags and the files that they name. The options are not nil when the files could be read, even if they cannot
// work.
func parse(args []string, errOut io.Writer) (*options, error) {
	f, o, key := agentFlags()
	f.Usage = func() { _ = help(errOut, f) } // nobody is left to tell
	rest, err := o.flags.Parse(args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("unknown command %q; there are pods, gc, check, config, completion and help, and without a command the agent runs", rest[0])
	}
	if o.kubelet, o.warnings, err = o.flags.Load(); err != nil {
		return nil, err
	}
	if o.offlineKey, err = readKey(*key); err != nil {
		return o, err
	}
	return o, o.complete()
}

// readKey reads the key of the offline cache.
func readKey(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--offline-cache-key: %w", err)
	}
	if plain, err := hex.DecodeString(strings.TrimSpace(string(b))); err == nil {
		b = plain
	}
	if len(b) != offline.KeyBytes {
		return nil, fmt.Errorf("--offline-cache-key %s holds %d bytes; make one with: head -c %d /dev/urandom > %s", path, len(b), offline.KeyBytes, path)
	}
	return b, nil
}

// complete fills in what follows, and refuses what cannot work.
func (o *options) complete() error {
	hostname, err := os.Hostname()
	if err != nil && o.flags.Hostname == "" {
		return fmt.Errorf("the hostname cannot be read; give --hostname-override: %w", err)
	}
	if o.nodeName, err = nodestatus.NodeName(o.flags.Hostname, hostname); err != nil {
		return fmt.Errorf("--hostname-override: %w", err)
	}
	if bad := validation.IsDNS1123Subdomain(o.nodeName); len(bad) > 0 {
		return fmt.Errorf("--hostname-override %q: %s", o.nodeName, bad[0])
	}
	ips, ignored, err := nodestatus.ParseNodeIP(o.flags.NodeIP)
	if err != nil {
		return fmt.Errorf("--node-ip: %w", err)
	}
	if len(ignored) > 0 {
		return fmt.Errorf("--node-ip: %q is no address", ignored[0])
	}
	o.nodeIPs, o.hostIPs = ips, hostAddresses(ips)
	o.port, o.address = int(o.kubelet.Port), o.kubelet.Address
	if !value(o.kubelet.EnableServer) {
		o.port = 0
	}
	if !o.member() && o.flags.ConfigFile == "" && !o.flags.Given("address") {
		o.address = "127.0.0.1" // without a cluster nobody else is expected
	}
	if o.containerLogs == "" && (o.member() || o.kubelet.PodLogsDir == "/var/log/pods") { // where a cluster's log collectors look
		o.containerLogs = "/var/log/containers"
	}
	if o.kubelet.StaticPodPath == "" && o.kubelet.StaticPodURL == "" && !o.member() {
		return errors.New("there is nothing to run: give --kubeconfig for the pods of a cluster, or --pod-manifest-path for a folder of pod manifests, or --manifest-url")
	}
	return nil
}

// member says that this node is to be one of a cluster.
func (o *options) member() bool { return o.flags.Kubeconfig != "" || o.flags.BootstrapKubeconfig != "" }

// verbosity is how much to log: changes too, unless the configuration or the command line say otherwise.
func (o *options) verbosity() int {
	if o.flags.Given("v") {
		return int(o.kubelet.Logging.Verbosity)
	}
	return cmp.Or(int(o.kubelet.Logging.Verbosity), 2)
}

// parallelPulls is how many images are pulled at once.
func (o *options) parallelPulls() int {
	switch {
	case value(o.kubelet.SerializeImagePulls):
		return 1
	case o.kubelet.MaxParallelImagePulls == nil:
		return math.MaxInt32 // as many as there are
	}
	return int(*o.kubelet.MaxParallelImagePulls)
}

func (o *options) lease() time.Duration {
	return time.Duration(o.kubelet.NodeLeaseDurationSeconds) * time.Second
}

// servers are the DNS servers of pods, without those that are no addresses.
func (o *options) servers() []string {
	return slices.DeleteFunc(slices.Clone(o.kubelet.ClusterDNS), func(s string) bool { _, err := netip.ParseAddr(strings.TrimSpace(s)); return err != nil })
}
