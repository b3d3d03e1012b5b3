package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/test/bed"
)

// Config describes a Cluster. Everything but Dir works at zero.
type Config struct {
	Dir     string    // where everything is kept; a short path, sockets lie in it
	Program string    // our agent's file; empty: the node can only be the kubelet's
	Self    string    // the program whose command "registry" serves images; empty: the running one
	Log     io.Writer // gets a line for each thing that takes time; nil: nothing is said
}

// A Cluster is a Kubernetes of one node in a directory.
type Cluster struct {
	dir, program, self string
	log                io.Writer
	bed                *bed.Bed
	subnet             netip.Prefix // of the pods
	node               net.IP       // of the node, which is that of the pods' bridge
}

// Open names the cluster in a directory, which need not exist. It does nothing else.
func Open(cfg Config) (*Cluster, error) {
	b, err := bed.Open(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	b.Log = cfg.Log
	program, err := filepath.Abs(cfg.Program)
	if err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	self := cfg.Self
	if self == "" {
		if self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("open cluster: %w", err)
		}
	}
	return &Cluster{dir: b.Dir(), program: program, self: self, log: cfg.Log, bed: b}, nil
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *Cluster) pki(file string) string { return c.path("pki", file) }

func (c *Cluster) kubeconfig(identity string) string { return c.path(identity + ".kubeconfig") }

// Kubeconfig is the file with which a client is the cluster's administrator.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig("admin") }

// Dir is the cluster's directory.
func (c *Cluster) Dir() string { return c.dir }

func (c *Cluster) say(format string, args ...any) {
	if c.log != nil {
		fmt.Fprintf(c.log, "cluster: "+format+"\n", args...)
	}
}

// state is what a cluster remembers in cluster.json.
type state struct {
	Agent Agent    `json:"agent"`
	Ours  []string `json:"ours"` // directories outside its own that were not there before
}

// Up builds and starts everything that does not run, and returns when the node is Ready and names resolve. An
// agent that cannot join is not started: the error then wraps [ErrCannotJoin], and everything else is up.
func (c *Cluster) Up(ctx context.Context, a Agent) error {
	s, err := c.load(a)
	if err != nil {
		return err
	}
	if s.Agent != a {
		return fmt.Errorf("start cluster: it is up with %s already; take it down first", s.Agent)
	}
	if err := bed.EnsurePackages(ctx, c.log, packages()...); err != nil {
		return err
	}
	if err := EnsurePrograms(ctx, c.log, slices.Concat(ControlPlanePrograms(), ImagePrograms(), agentPrograms(a))...); err != nil {
		return err
	}
	if err := c.prepare(ctx, s); err != nil {
		return err
	}
	if err := c.startAll(ctx, slices.Concat(c.registries(), c.controlPlane())...); err != nil {
		return err
	}
	if err := c.apply(ctx); err != nil {
		return err
	}
	if err := c.startAll(ctx, c.dns()); err != nil {
		return err
	}
	if err := CanJoin(ctx, a, c.program); err != nil {
		return err
	}
	return c.startAll(ctx, c.agentService(a), c.proxy()) // kube-proxy waits for the node's address
}

// packages are the Debian packages of a cluster beside those of a bed: kube-proxy's and what goes into images.
func packages() []string {
	return []string{
		"bash-static", "bind9-dnsutils", "conntrack", "curl", "iperf", "netcat-openbsd", "nftables", "perl-base", "socat",
	}
}

func agentPrograms(a Agent) []string {
	if a == Kubelet {
		return []string{"kubelet"}
	}
	return nil
}

// prepare makes everything that must lie ready before the first process starts.
func (c *Cluster) prepare(ctx context.Context, s state) error {
	if err := c.bed.Up(ctx); err != nil {
		return err
	}
	if err := c.loadNetwork(ctx); err != nil {
		return err
	}
	if err := writeObject(c.path("cluster.json"), object{"agent": s.Agent, "ours": s.Ours}); err != nil {
		return err
	}
	for _, dir := range []string{"manifests", "podlogs", "kubelet"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := bed.ShareMounts(c.path("kubelet")); err != nil {
		return err
	}
	if err := writePKI(c.path("pki"), c.node, time.Now()); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	return c.fillRegistry(ctx)
}

// loadNetwork learns the pods' network and makes its bridge, on whose address servers will listen.
func (c *Cluster) loadNetwork(ctx context.Context) error {
	gateway, err := c.bed.EnsureBridge(ctx)
	if err != nil {
		return err
	}
	c.subnet, c.node = gateway.Masked(), gateway.Addr().AsSlice()
	return nil
}

// apply creates the first objects. The API server may still be making the namespaces they are in.
func (c *Cluster) apply(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := retry(ctx, time.Second, func() error {
		_, err := c.kubectl(ctx, "apply", "-f", c.path("objects.json"))
		return err
	})
	if err != nil {
		return fmt.Errorf("create the first objects: %w", err)
	}
	return nil
}

// load reads the state of a cluster, or makes that of a new one with this agent.
func (c *Cluster) load(a Agent) (state, error) {
	data, err := os.ReadFile(c.path("cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return state{Agent: a, Ours: absent(outside())}, nil
	}
	if err != nil {
		return state{}, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", c.path("cluster.json"), err)
	}
	return s, nil
}
