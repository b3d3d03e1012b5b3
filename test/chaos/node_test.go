package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// patience is how long anything may take that takes seconds on an idle machine.
const patience = 90 * time.Second

// node is an agent with a containerd to itself, and a way to look past the agent.
type node struct {
	*agent.Agent
	eyes

	bed *bed.Bed
}

// newNode makes one. The agent is not started.
func newNode(t *testing.T, flags ...string) *node {
	t.Helper()
	b := bed.Private(t)
	return &node{agent.New(t, b.Endpoint(), flags...), eyes{cri: dial(t, b.Endpoint())}, b}
}

// dial reaches a runtime again soon after it has come back.
func dial(t *testing.T, endpoint string) cri.RuntimeServiceClient {
	t.Helper()
	soon := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return cri.NewRuntimeServiceClient(conn)
}

// instance is one container as it is told apart from its successors, and from a process that got its number later.
type instance struct {
	ID      string
	Attempt uint32
	PID     int
	Born    string // start time of the process, in the kernel's ticks
}

// running are the running containers of some pods, by pod and container name.
func (n *node) running(t *testing.T, pods ...string) map[string]instance {
	t.Helper()
	v, err := n.view(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]instance{}
	for _, c := range v.containers {
		pod := strings.TrimSuffix(c.GetLabels()[labelPod], "-"+agent.Node)
		if c.GetState() == cri.ContainerState_CONTAINER_RUNNING && slices.Contains(pods, pod) {
			pid := n.pid(t, c.GetId())
			found[pod+"/"+c.GetMetadata().GetName()] = instance{c.GetId(), c.GetMetadata().GetAttempt(), pid, born(pid)}
		}
	}
	return found
}

// pid is the number of a container's first process on this machine.
func (n *node) pid(t *testing.T, id string) int {
	t.Helper()
	pid, err := n.pidOf(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// born is when a process started; empty: there is none of that number.
func born(pid int) string {
	f := procStat(pid)
	if len(f) < 20 {
		return ""
	}
	return f[19]
}

// procStat are the fields of a process behind its name: state is number 0.
func procStat(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
}

// used is the processor time and the resident memory of the agent's process.
func (n *node) used(t *testing.T) (cpu time.Duration, bytes int64) {
	t.Helper()
	cpu, bytes, err := process.Usage(n.PID())
	if err != nil {
		t.Fatal(err)
	}
	return cpu, bytes
}

// pod is a static pod by the name in its manifest.
func (n *node) pod(ctx context.Context, name string) (*v1.Pod, error) {
	return n.Pod(ctx, "default", name+"-"+agent.Node)
}

// ready says whether pods are ready.
func (n *node) ready(ctx context.Context, names ...string) error {
	pods, err := n.Pods(ctx)
	if err != nil {
		return err
	}
	is := map[string]bool{}
	for i := range pods {
		is[pods[i].Name] = agent.PodReady(&pods[i])
	}
	var errs []error
	for _, name := range names {
		if !is[name+"-"+agent.Node] {
			errs = append(errs, fmt.Errorf("pod %s is not ready", name))
		}
	}
	return errors.Join(errs...)
}

// only says whether nothing is left on the node but what belongs to these UIDs: containers, sandboxes, and files.
func (n *node) only(ctx context.Context, wanted map[string]bool) error {
	v, err := n.view(ctx)
	if err != nil {
		return err
	}
	var errs []error
	left := func(uid, format string, args ...any) {
		if !wanted[uid] {
			errs = append(errs, fmt.Errorf(format+" is left", args...))
		}
	}
	for _, c := range v.containers {
		left(name(c).uid, "container %s of %s, %s", c.GetId(), full(c.GetLabels()), c.GetState())
	}
	for _, s := range v.sandboxes {
		left(s.GetMetadata().GetUid(), "sandbox %s of %s, %s", s.GetId(), full(s.GetLabels()), s.GetState())
	}
	for _, file := range files(filepath.Join(n.Logs, "*")) {
		left(file[strings.LastIndexByte(file, '_')+1:], "log directory %s", file)
	}
	for _, file := range files(filepath.Join(n.Root, "pods", "*")) {
		left(filepath.Base(file), "pod directory %s", file)
	}
	for _, dir := range cgroups.Pods(n.Cgroup) {
		left(strings.TrimPrefix(filepath.Base(dir), "pod"), "cgroup %s", dir)
	}
	for _, file := range files(filepath.Join(n.Links, "*")) {
		if _, err := os.Stat(file); err != nil {
			errs = append(errs, fmt.Errorf("link %s to nowhere is left", file))
		}
	}
	return errors.Join(errs...)
}

// empty waits until nothing at all is left, and tells how long that took.
func (n *node) empty(t *testing.T) time.Duration {
	t.Helper()
	return agent.Eventually(t, patience, "nothing is left", func() error { return n.only(t.Context(), nil) })
}

func files(pattern string) []string {
	found, _ := filepath.Glob(pattern) // the patterns are good
	return found
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
