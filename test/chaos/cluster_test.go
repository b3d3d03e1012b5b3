//go:build cluster

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/cluster"
	"github.com/kubeletkit/kubeletkit/test/member"
)

// The same as TestDisturbances on the node of a cluster that is up, where the API server goes away as well, and the wire
// between it and the agent.
func TestClusterDisturbances(t *testing.T) {
	for s := *seed; s < *seed+uint64(*seeds); s++ {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			t.Logf("to have this plan again: make chaos-cluster SEED=%d", s)
			m := join(t)
			d := &driver{world: m, kinds: slices.Concat(services, jobs), patience: 2 * patience, log: t.Logf}
			d.steady = []kind{kindNamed("plain"), kindNamed("web"), kindNamed("sidecar")}
			for _, found := range d.run(t.Context(), plan(s, *lasts, d.kinds, m.Faults())) {
				t.Error(found)
			}
			if t.Failed() {
				log, _ := os.ReadFile(m.AgentLog(cluster.NodeAgent)) // there is one
				t.Logf("the end of the agent's log:\n%s", log[max(0, len(log)-16000):])
			}
		})
	}
}

// joined is a node of a cluster.
type joined struct {
	*cluster.Cluster

	t     *testing.T
	bed   *bed.Bed
	eyes  eyes
	api   kubernetes.Interface
	wire  *member.Proxy
	flags []string
	ns    string

	mu     sync.Mutex // guards wanted
	wanted map[string]op
}

// join takes the place of the cluster's agent with one that is disturbed, until the test ends.
func join(t *testing.T) *joined {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := cluster.Open(cluster.Config{Dir: os.Getenv("KUBELETKIT_CLUSTER"), Program: os.Getenv("KUBELETKIT_NODEAGENT")})
	check(err)
	check(c.Attach(t.Context()))
	b, err := bed.Open(c.Dir())
	check(err)
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	check(err)
	config.QPS, config.Burst = 500, 500
	api, err := kubernetes.NewForConfig(config)
	check(err)
	wire, err := member.NewProxy(c.APIServer())
	check(err)
	t.Cleanup(wire.Close)
	m := &joined{Cluster: c, t: t, bed: b, api: api, eyes: eyes{cri: dial(t, c.Endpoint())}, wire: wire, wanted: map[string]op{}}
	through, err := clientcmd.LoadFromFile(c.Path("node.kubeconfig"))
	check(err)
	for _, to := range through.Clusters {
		to.Server = "https://" + wire.Address()
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	check(clientcmd.WriteToFile(*through, file))
	m.flags = []string{"--kubeconfig=" + file}

	ns, err := api.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chaos-"}}, metav1.CreateOptions{})
	check(err)
	m.ns = ns.Name
	agent.Eventually(t, patience, "the namespace has a service account", func() error {
		_, err := api.CoreV1().ServiceAccounts(m.ns).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	check(errors.Join(c.EndAgent(t.Context(), syscall.SIGTERM), c.StartAgent(t.Context(), cluster.NodeAgent, m.flags...)))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { m.carryOut(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		ctx := context.WithoutCancel(ctx)
		err := errors.Join(api.CoreV1().Namespaces().Delete(ctx, m.ns, metav1.DeleteOptions{}),
			c.EndAgent(ctx, syscall.SIGTERM), c.StartAgent(ctx, cluster.NodeAgent))
		if err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *joined) Want(o op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted[o.pod()] = o
}

// carryOut makes the pods of the namespace those that are wanted, as a controller does, until ctx ends.
func (m *joined) carryOut(ctx context.Context) {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		m.mu.Lock()
		wanted := maps.Clone(m.wanted)
		m.mu.Unlock()
		for name, o := range wanted {
			err := m.carryOutOne(ctx, name, o)
			if err == nil && o.kind == "" {
				m.mu.Lock()
				if m.wanted[name] == o {
					delete(m.wanted, name)
				}
				m.mu.Unlock()
			}
		}
	}
}

// carryOutOne takes one step; nil: nothing is to be done. When the API server is away the next try is soon.
func (m *joined) carryOutOne(ctx context.Context, name string, o op) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	const revision = "revision"
	pods := m.api.CoreV1().Pods(m.ns)
	p, err := pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && o.kind == "":
		return nil
	case apierrors.IsNotFound(err):
		p = new(v1.Pod)
		if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(kindNamed(o.kind).manifest(name, o.revision)), 4096).Decode(p); err != nil {
			panic(err) // the manifests are good
		}
		p.Labels = map[string]string{revision: strconv.Itoa(o.revision)}
		p.Spec.NodeName = cluster.NodeName
		_, err = pods.Create(ctx, p, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	case p.DeletionTimestamp != nil:
		return errors.New("it is going")
	case o.kind == "" || p.Labels[revision] != strconv.Itoa(o.revision):
		err := pods.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		return errors.Join(err, errors.New("it has to go"))
	}
	return nil
}

func (m *joined) Told(ctx context.Context) (map[string]*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := m.api.CoreV1().Pods(m.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]*v1.Pod{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all, nil
}

// View has the namespace's pods alone.
func (m *joined) View(ctx context.Context) (view, error) {
	v, err := m.eyes.view(ctx)
	others := func(labels map[string]string) bool { return labels[labelNamespace] != m.ns }
	return view{
		slices.DeleteFunc(v.containers, func(c *cri.Container) bool { return others(c.GetLabels()) }),
		slices.DeleteFunc(v.sandboxes, func(s *cri.PodSandbox) bool { return others(s.GetLabels()) }),
	}, err
}

// Left looks for what CRI shows of the namespace, for files, mounts and cgroups of pods, and for pods that are being deleted.
func (m *joined) Left(ctx context.Context, wanted map[string]bool) error {
	v, err := m.View(ctx)
	if err != nil {
		return err
	}
	told, err := m.Told(ctx)
	errs := []error{err, mounted(m.Path("kubelet", "pods"), wanted)}
	left := func(uid, format string, args ...any) {
		if !wanted[uid] {
			errs = append(errs, fmt.Errorf(format+" is left", args...))
		}
	}
	for name, p := range told {
		left(string(p.UID), "pod %s, %s,", name, p.Status.Phase)
	}
	for _, c := range v.containers {
		left(name(c).uid, "container %s of %s, %s", c.GetId(), full(c.GetLabels()), c.GetState())
	}
	for _, s := range v.sandboxes {
		left(s.GetMetadata().GetUid(), "sandbox %s of %s, %s", s.GetId(), full(s.GetLabels()), s.GetState())
	}
	for _, dir := range files(m.Path("podlogs", m.ns+"_*")) {
		left(dir[strings.LastIndexByte(dir, '_')+1:], "log directory %s", dir)
	}
	for _, dir := range files(m.Path("kubelet", "pods", "*")) {
		left(filepath.Base(dir), "pod directory %s", dir)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/kubepods/pod*", "/sys/fs/cgroup/*/kubepods/*/pod*", "/sys/fs/cgroup/kubepods/pod*", "/sys/fs/cgroup/kubepods/*/pod*"} {
		for _, dir := range files(pattern) {
			left(strings.TrimPrefix(filepath.Base(dir), "pod"), "cgroup %s", dir)
		}
	}
	return errors.Join(errs...)
}

func (m *joined) Mending(ok func() error) func() error { return mending(m.t, m.bed, m.View, ok) }

func (m *joined) Faults() []fault {
	start := func(ctx context.Context) error { return m.StartAgent(ctx, cluster.NodeAgent, m.flags...) }
	end := func(sig syscall.Signal) func(context.Context) error {
		return func(ctx context.Context) error { return m.EndAgent(ctx, sig) }
	}
	heal := func(context.Context) error { m.wire.Heal(); return nil }
	return []fault{
		{"the agent is killed", "agent", end(syscall.SIGKILL), start},
		{"the agent is stopped", "agent", end(syscall.SIGTERM), start},
		{"containerd is killed", "runtime", m.bed.Kill, m.bed.Start},
		{"containerd is stopped", "runtime", m.bed.Stop, m.bed.Start},
		{
			"the API server is stopped", "API server", func(ctx context.Context) error { return m.EndService(ctx, "kube-apiserver") },
			func(ctx context.Context) error { return m.StartService(ctx, "kube-apiserver") },
		},
		{"the wire is cut", "wire", func(context.Context) error { m.wire.Cut(); return nil }, heal},
		{"the wire hangs", "wire", func(context.Context) error { m.wire.Hang(); return nil }, heal},
	}
}
