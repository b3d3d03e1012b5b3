package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// What follows is for tests that disturb a cluster which is up, after Attach.

// NodeName is the name of the cluster's node.
const NodeName = nodeName

// Attach learns of a cluster that is up what Up would know.
func (c *Cluster) Attach(ctx context.Context) error {
	s, err := c.load("")
	if err != nil {
		return err
	}
	if s.Agent == "" {
		return fmt.Errorf("attach to the cluster in %s: none is up there; see make cluster", c.dir)
	}
	return c.loadNetwork(ctx)
}

// Kubectl runs kubectl as the cluster's administrator and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, args...)
}

// Path is a file or directory of the cluster. Agents have kubelet, the root directory, kubelet.json, the
// configuration, node.kubeconfig, manifests, and podlogs; pki has the certificates.
func (c *Cluster) Path(elem ...string) string { return c.path(elem...) }

// APIServer is the address and port of the API server.
func (c *Cluster) APIServer() string { return net.JoinHostPort(c.node.String(), apiPort) }

// NodeIP is the address of the node.
func (c *Cluster) NodeIP() net.IP { return slices.Clone(c.node) }

// Endpoint is the address of the container runtime.
func (c *Cluster) Endpoint() string { return c.bed.Endpoint() }

// AuditLog is the file in which the API server keeps book of the node's requests. Older lines go to files beside it.
func (c *Cluster) AuditLog() string { return c.path("log", "audit.log") }

// StartAgent starts an agent with further flags, which win over those it has in every cluster, and returns at once. Down
// ends it like the one that Up starts, of which it takes the place: that must have been ended.
func (c *Cluster) StartAgent(ctx context.Context, a Agent, flags ...string) error {
	for _, other := range []Agent{Kubelet, NodeAgent} {
		if c.pid(string(other)) != 0 {
			return fmt.Errorf("start %s: %s runs already", a, other)
		}
	}
	s := c.agentService(a)
	s.args = append(s.args, flags...)
	if err := c.launch(ctx, s); err != nil {
		return fmt.Errorf("start %s: %w", a, err)
	}
	return nil
}

// AgentPID is the number of an agent's process; zero: it does not run.
func (c *Cluster) AgentPID(a Agent) int { return c.pid(string(a)) }

// EndAgent sends a signal to whichever agent runs and returns when it has ended; one that does not end for ten
// seconds is killed.
func (c *Cluster) EndAgent(ctx context.Context, sig syscall.Signal) error {
	for _, a := range []Agent{Kubelet, NodeAgent} {
		pid := c.pid(string(a))
		if pid == 0 {
			continue
		}
		if err := process.End(ctx, pid, c.isOurs, sig); err != nil {
			return fmt.Errorf("end %s: %w", a, err)
		}
	}
	return nil
}

// AgentReady is whether the node's server listens, and its node is Ready and takes pods.
func (c *Cluster) AgentReady(ctx context.Context) error { return c.agentReady(ctx) }

// AgentLog is the file an agent writes its log to.
func (c *Cluster) AgentLog(a Agent) string { return c.logFile(string(a)) }

// EndService ends a process of the control plane. Pods and agents go on without it.
func (c *Cluster) EndService(ctx context.Context, name string) error { return c.end(ctx, name) }

// StartService starts a process of the control plane with further flags, which win over those it has, and returns when
// it answers.
func (c *Cluster) StartService(ctx context.Context, name string, flags ...string) error {
	services := c.controlPlane()
	i := slices.IndexFunc(services, func(s service) bool { return s.name == name })
	if i < 0 {
		return errors.New("start " + name + ": the control plane has no such process")
	}
	s := services[i]
	s.args = append(s.args, flags...)
	return c.start(ctx, s)
}
