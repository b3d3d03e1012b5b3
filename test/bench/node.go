package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/cluster"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// NodeConfig describes what [Node] measures. Cluster is required, and must be up or attached to.
type NodeConfig struct {
	Cluster *cluster.Cluster

	Sizes  map[string]int64 // of the stripped programs, by agent
	Serial int              // pods one after the other; 0 means 20
	Burst  int              // pods at once; 0 means 50
	Idle   time.Duration    // how long the agent is looked at with the burst's pods; 0 means 30 seconds
	Rounds int              // 0 means 1
	Agents []string         // whose figures are wanted; nil means those of both
	// Profile is a directory for CPU profiles of nodeagent with pods one after the other, for go tool pprof; empty: none.
	Profile string
	Log     io.Writer // gets a line for each step; nil: nothing is said
}

// What is measured of more than the agents themselves.
const (
	readyEach = "one by one: from create to Ready, p50"
	goneEach  = "one by one: from delete to gone, p50"
	readyAll  = "at once: until the last is Ready"
	readyHalf = "at once: until a pod is Ready, p50"
	goneAll   = "at once: until the last is gone"
)

// Node measures both agents as the one of a cluster's node, with containerd, and what no agent can be quicker than: one that
// does only what each must, and the same calls of the runtime and the API server without an agent. Each has a root directory to itself and finds a node without pods. In the
// end no agent runs.
func Node(ctx context.Context, cfg NodeConfig) (*Table, error) {
	n, err := newNode(cfg)
	if err != nil {
		return nil, err
	}
	defer n.conn.Close()
	if err := n.namespace(ctx); err != nil {
		return nil, err
	}
	for round := range n.cfg.Rounds {
		for _, agent := range turns(n.cfg.Agents, round) {
			if err := n.turn(ctx, agent); err != nil {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				n.say("%s: %v", agent, err)
				n.table.Miss(agent, "all figures that are not here", "", err.Error())
			}
		}
		if err := n.bareTurn(ctx); err != nil {
			return nil, fmt.Errorf("the bare agent: %w", err)
		}
		if err := n.floor(ctx); err != nil {
			return nil, fmt.Errorf("the floor: %w", err)
		}
	}
	for agent, size := range n.cfg.Sizes {
		n.table.Add(agent, "program, stripped", "MB", float64(size)/1e6)
	}
	return n.table, n.api.CoreV1().Namespaces().Delete(ctx, n.ns, metav1.DeleteOptions{})
}

// node is the cluster's node.
type node struct {
	cfg   NodeConfig
	table *Table
	api   kubernetes.Interface
	conn  *grpc.ClientConn
	cri   cri.RuntimeServiceClient
	ns    string
}

func newNode(cfg NodeConfig) (*node, error) {
	if cfg.Cluster == nil {
		return nil, errors.New("bench: Cluster is required")
	}
	for _, d := range []struct {
		n        *int
		standard int
	}{{&cfg.Serial, 20}, {&cfg.Burst, 50}, {&cfg.Rounds, 1}} {
		if *d.n == 0 {
			*d.n = d.standard
		}
	}
	if cfg.Idle == 0 {
		cfg.Idle = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	if cfg.Agents == nil {
		cfg.Agents = []string{Kubelet, NodeAgent}
	}
	config, err := clientcmd.BuildConfigFromFlags("", cfg.Cluster.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.UserAgent = 500, 1000, own
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(cfg.Cluster.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &node{cfg: cfg, table: &Table{Title: "Pods on containerd, in a cluster of one node"}, api: api, conn: conn, cri: cri.NewRuntimeServiceClient(conn)}, nil
}

func (n *node) say(format string, args ...any) {
	fmt.Fprintf(n.cfg.Log, "bench: "+format+"\n", args...)
}

// namespace makes one with a service account, whose token every pod gets.
func (n *node) namespace(ctx context.Context) error {
	ns, err := n.api.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	n.ns = ns.Name
	return until(ctx, time.Minute, func() error {
		_, err := n.api.CoreV1().ServiceAccounts(n.ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// turn is that of one agent: it is started on an empty node, measured, and ended.
func (n *node) turn(ctx context.Context, agent string) error {
	c := n.cfg.Cluster
	if err := c.EndAgent(ctx, syscall.SIGTERM); err != nil {
		return err
	}
	n.forget()
	root := c.Path("bench", agent)
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return err
	}
	a := cluster.Agent(agent)
	if err := c.StartAgent(ctx, a, "--root-dir="+root); err != nil {
		return err
	}
	defer func() {
		if err := c.EndAgent(context.WithoutCancel(ctx), syscall.SIGTERM); err != nil {
			n.say("%v", err)
		}
		_ = os.RemoveAll(root) // without pods there are no mounts in it
	}()
	if err := until(ctx, time.Minute, func() error { return c.AgentReady(ctx) }); err != nil {
		return err
	}
	watcher, err := n.api.CoreV1().Pods(n.ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	t := &turn{node: n, agent: agent, root: root, pid: c.AgentPID(a), events: watcher.ResultChan()}
	time.Sleep(5 * time.Second) // it comes to rest
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"one by one", t.serial}, {"many at once", t.burst}, {"at rest", t.rest}, {"all go", t.empty}} {
		n.say("%s: %s", agent, step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, errors.Join(err, n.wipe(ctx)))
		}
	}
	return nil
}

// forget has the kernel give up what it keeps of pods that are no more: a thousand cgroups that only wait for their memory to be
// needed make each pod's start a third slower, whoever comes later.
func (n *node) forget() {
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		n.say("what the kernel keeps of earlier pods stays: %v", err)
	}
}

// wipe deletes all pods of the namespace without grace, for whoever comes next.
func (n *node) wipe(ctx context.Context) error {
	now := int64(1)
	if err := n.api.CoreV1().Pods(n.ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		return err
	}
	return until(ctx, time.Minute, func() error {
		list, err := n.api.CoreV1().Pods(n.ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(list.Items))
		}
		return err
	})
}

// holder is a pod of one container that waits, on a node, with the token of its service account.
func holder(name, on string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		NodeName: on, Containers: []v1.Container{{Name: "main", Image: images.Pause, ImagePullPolicy: v1.PullIfNotPresent}},
	}}
}

// turn is that of an agent which runs.
type turn struct {
	*node

	agent  string
	root   string
	pid    int
	events <-chan watch.Event
}

func (t *turn) add(name, unit string, value float64) { t.table.Add(t.agent, name, unit, value) }

// serial makes and deletes pods one after the other.
func (t *turn) serial(ctx context.Context) error {
	before, err := usageOf(t.pid)
	if err != nil {
		return err
	}
	t.add("RSS at the start", "MB", before.rss)
	profiled := unwanted()
	if t.cfg.Profile != "" && t.agent == NodeAgent {
		profiled = doorOf(t.root, 10250).profile(ctx, time.Duration(t.cfg.Serial)*time.Second/2, filepath.Join(t.cfg.Profile, "node.pprof"))
	}
	ready, gone, err := t.oneByOne(ctx, cluster.NodeName)
	if err != nil {
		return err
	}
	after, err := usageOf(t.pid)
	if err != nil {
		return err
	}
	t.add(readyEach, "ms", median(ready))
	t.add(goneEach, "ms", median(gone))
	t.add("one by one: the agent's CPU for each pod", "ms", (after.cpu-before.cpu).Seconds()*1000/float64(t.cfg.Serial))
	return <-profiled
}

// oneByOne makes and deletes pods one after the other, on a node, and says how many milliseconds each took to be Ready and to be gone.
func (t *turn) oneByOne(ctx context.Context, on string) (ready, gone []float64, err error) {
	for i := range t.cfg.Serial {
		name := fmt.Sprint("serial-", i)
		begun := time.Now()
		if _, err := t.api.CoreV1().Pods(t.ns).Create(ctx, holder(name, on), metav1.CreateOptions{}); err != nil {
			return nil, nil, err
		}
		at, err := t.see(ctx, 1, func(e watch.Event, p *v1.Pod) bool { return p.Name == name && isReady(p) })
		if err != nil {
			return nil, nil, err
		}
		ready = append(ready, at[name].Sub(begun).Seconds()*1000)
		begun = time.Now()
		if err := t.api.CoreV1().Pods(t.ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return nil, nil, err
		}
		at, err = t.see(ctx, 1, func(e watch.Event, p *v1.Pod) bool { return p.Name == name && e.Type == watch.Deleted })
		if err != nil {
			return nil, nil, err
		}
		gone = append(gone, at[name].Sub(begun).Seconds()*1000)
	}
	return ready, gone, nil
}

// see waits for events of so many pods, and tells when each was seen first.
func (t *turn) see(ctx context.Context, pods int, wanted func(watch.Event, *v1.Pod) bool) (map[string]time.Time, error) {
	at := map[string]time.Time{}
	for patience := time.After(2*time.Minute + time.Duration(pods)*2*time.Second); len(at) < pods; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-patience:
			return nil, fmt.Errorf("%d of %d pods are as wanted, and then nothing for long", len(at), pods)
		case e, more := <-t.events:
			if !more {
				return nil, errors.New("the watch of pods has ended")
			}
			if p, is := e.Object.(*v1.Pod); is && wanted(e, p) && at[p.Name].IsZero() {
				at[p.Name] = time.Now()
			}
		}
	}
	return at, nil
}

// burst makes many pods at once.
func (t *turn) burst(ctx context.Context) error {
	before, err := usageOf(t.pid)
	if err != nil {
		return err
	}
	took, err := t.atOnce(ctx, cluster.NodeName)
	if err != nil {
		return err
	}
	after, err := usageOf(t.pid)
	if err != nil {
		return err
	}
	t.add(readyAll, "s", quantile(took, 1))
	t.add(readyHalf, "s", median(took))
	t.add("at once: the agent's CPU for each pod", "ms", (after.cpu-before.cpu).Seconds()*1000/float64(t.cfg.Burst))
	return nil
}

// atOnce makes many pods at once, on a node, and says after how many seconds each was Ready.
func (t *turn) atOnce(ctx context.Context, on string) (took []float64, err error) {
	begun := time.Now()
	failed := make(chan error, t.cfg.Burst)
	var wg sync.WaitGroup
	for i := range t.cfg.Burst {
		wg.Go(func() {
			_, err := t.api.CoreV1().Pods(t.ns).Create(ctx, holder(fmt.Sprint("burst-", i), on), metav1.CreateOptions{})
			failed <- err
		})
	}
	at, seen := t.see(ctx, t.cfg.Burst, func(_ watch.Event, p *v1.Pod) bool { return isReady(p) })
	wg.Wait()
	close(failed)
	for err := range failed {
		seen = errors.Join(err, seen)
	}
	if seen != nil {
		return nil, seen
	}
	for _, ready := range at {
		took = append(took, ready.Sub(begun).Seconds())
	}
	return took, nil
}

// rest looks at an agent that has nothing to do for its pods.
func (t *turn) rest(ctx context.Context) error {
	time.Sleep(10 * time.Second) // what follows from the start of pods is over
	before, err := usageOf(t.pid)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t.cfg.Idle):
	}
	after, err := usageOf(t.pid)
	if err != nil {
		return err
	}
	t.add("at rest with these pods: CPU", "% of a core", 100*(after.cpu-before.cpu).Seconds()/t.cfg.Idle.Seconds())
	t.add("at rest with these pods: RSS", "MB", after.rss)
	return nil
}

// empty deletes all pods at once.
func (t *turn) empty(ctx context.Context) error {
	begun := time.Now()
	if err := t.api.CoreV1().Pods(t.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	at, err := t.see(ctx, t.cfg.Burst, func(e watch.Event, _ *v1.Pod) bool { return e.Type == watch.Deleted })
	if err != nil {
		return err
	}
	var took []float64
	for _, gone := range at {
		took = append(took, gone.Sub(begun).Seconds())
	}
	t.add(goneAll, "s", quantile(took, 1))
	return nil
}
