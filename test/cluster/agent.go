package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// An Agent is who runs the pods of the cluster's node.
type Agent string

// The agents.
const (
	Kubelet   Agent = "kubelet"   // upstream's, what we are compared with
	NodeAgent Agent = "nodeagent" // examples/nodeagent
)

// ErrCannotJoin says that the agent has no way to become a node of a cluster.
var ErrCannotJoin = errors.New("cannot join a cluster")

// ParseAgent reads the name of an agent.
func ParseAgent(name string) (Agent, error) {
	switch a := Agent(name); a {
	case Kubelet, NodeAgent:
		return a, nil
	}
	return "", fmt.Errorf("unknown agent %q; there are %s and %s", name, Kubelet, NodeAgent)
}

// CanJoin asks an agent whether it can become a node; program is our agent's file. The answer wraps
// [ErrCannotJoin] when it cannot.
func CanJoin(ctx context.Context, a Agent, program string) error {
	if a == Kubelet {
		return nil
	}
	help, _ := exec.CommandContext(ctx, program, "--help").CombinedOutput() // help may count as a failure
	if len(help) == 0 {
		return fmt.Errorf("ask %s for its flags: it says nothing", program)
	}
	if !bytes.Contains(help, []byte("-kubeconfig")) {
		return fmt.Errorf("%s %w: it has no --kubeconfig flag", a, ErrCannotJoin)
	}
	return nil
}

// agentService is the process of an agent. Both get the same flags and the same file.
func (c *Cluster) agentService(a Agent) service {
	s := service{name: string(a), file: c.program, ready: c.agentReady}
	s.args = []string{
		"--kubeconfig=" + c.kubeconfig("node"),
		"--root-dir=" + c.path("kubelet"),
		"--hostname-override=" + nodeName,
		"--node-ip=" + c.node.String(),
		"--config=" + c.path("kubelet.json"),
		"--cert-dir=" + c.path("kubelet", "pki"),
		"--v=2",
	}
	if a == Kubelet {
		s.file = binary("kubelet")
	}
	return s
}

// readOnlyPort is where the agent answers without asking who it is.
const readOnlyPort = 10255

// ReadOnly is the address of the node's read-only port.
func (c *Cluster) ReadOnly() string {
	return net.JoinHostPort(c.node.String(), strconv.Itoa(readOnlyPort))
}

// kubeletConfig fits machines of many kinds: cgroups of either version, swap on, disks nearly full.
func (c *Cluster) kubeletConfig() object {
	return object{
		"apiVersion":                  "kubelet.config.k8s.io/v1beta1",
		"kind":                        "KubeletConfiguration",
		"address":                     c.node.String(),
		"readOnlyPort":                readOnlyPort,
		"healthzBindAddress":          "127.0.0.1",
		"authentication":              object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": true}, "x509": object{"clientCAFile": c.pki("ca.crt")}},
		"authorization":               object{"mode": "Webhook"},
		"tlsCertFile":                 c.pki("node-serving.crt"),
		"tlsPrivateKeyFile":           c.pki("node-serving.key"),
		"containerRuntimeEndpoint":    c.bed.Endpoint(),
		"staticPodPath":               c.path("manifests"),
		"podLogsDir":                  c.path("podlogs"),
		"clusterDNS":                  []string{dnsServiceIP},
		"clusterDomain":               clusterDomain,
		"resolvConf":                  "",
		"cgroupDriver":                "cgroupfs",
		"failCgroupV1":                false,
		"failSwapOn":                  false,
		"serializeImagePulls":         false,
		"evictionHard":                object{"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		"imageGCHighThresholdPercent": 99,
		"imageGCLowThresholdPercent":  98,
	}
}

// agentReady is whether the node's server listens, and its node is Ready and takes pods: the controller manager lifts the taint
// of one that was not ready a moment later.
func (c *Cluster) agentReady(ctx context.Context) error {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // only whether it listens
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(c.node.String(), "10250"))
	if err != nil {
		return err
	}
	conn.Close()
	out, err := c.kubectl(ctx, "get", "node", nodeName, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.spec.taints[*].key}`)
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) != "True" {
		return fmt.Errorf("node %s is not Ready, or has taints: %q", nodeName, out)
	}
	return nil
}

// kubectl runs kubectl as the cluster's administrator and returns what it printed.
func (c *Cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, binary("kubectl"), append([]string{"--kubeconfig", c.kubeconfig("admin")}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
