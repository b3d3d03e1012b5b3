//go:build cluster

package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/cluster"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// patience is how long anything may take that takes seconds on an idle machine.
const patience = time.Minute

// shared is the cluster of all tests, attached to by TestMain.
var shared *cluster.Cluster

// monitor are flags that let tests see within half a minute what takes longer otherwise: a node whose agent is silent for
// 20 seconds is NotReady, and certificates last 90 seconds.
var monitor = []string{"--node-monitor-period=1s", "--node-monitor-grace-period=20s", "--cluster-signing-duration=90s"}

func TestMain(m *testing.M) {
	code, err := onCluster(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "member:", err)
		code = 1
	}
	os.Exit(code)
}

// onCluster ends the cluster's agent, runs the tests, starts that agent again, and looks through the whole audit log.
func onCluster(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if shared, err = cluster.Open(cluster.Config{Dir: os.Getenv("KUBELETKIT_CLUSTER"), Program: os.Getenv("KUBELETKIT_NODEAGENT")}); err != nil {
		return 1, err
	}
	if err := shared.Attach(ctx); err != nil {
		return 1, err
	}
	audit, err := NewAudit(shared.AuditLog())
	if err != nil {
		return 1, err
	}
	if err := errors.Join(shared.EndAgent(ctx, syscall.SIGTERM), shared.EndService(ctx, "kube-controller-manager"),
		shared.StartService(ctx, "kube-controller-manager", monitor...)); err != nil {
		return 1, err
	}
	code = m.Run()
	all, err := audit.Next()
	if err != nil {
		return 1, err
	}
	return code, errors.Join(forbidden(all), shared.EndAgent(ctx, syscall.SIGTERM), shared.StartAgent(ctx, cluster.NodeAgent))
}

// forbidden is an error when our agent was refused anything that was not granted five seconds later.
func forbidden(all []Request) error {
	var errs []error
	for _, r := range Lasting(all, 5*time.Second) {
		if strings.HasPrefix(r.UserAgent, "kubeletkit/") && !hopeless(r, all) {
			errs = append(errs, fmt.Errorf("refused for good: %s", r))
		}
	}
	return errors.Join(errs...)
}

// hopeless says that anybody would have been refused: nothing is made in a namespace that is being deleted, and a pod that is
// gone is not the node's.
func hopeless(r Request, all []Request) bool {
	if r.Verb == "create" {
		return strings.HasSuffix(r.Response.Message, "because it is being terminated")
	}
	return r.Object.Resource == "pods" && !slices.ContainsFunc(all, func(o Request) bool {
		return o.Object == r.Object && o.At.After(r.At) && o.Response.Code < 300
	})
}

// node is the cluster's node in the hands of one test: its agent, its way to the API server, and ways to look at it.
type node struct {
	*cluster.Cluster

	t     testing.TB
	api   kubernetes.Interface
	cri   cri.RuntimeServiceClient
	proxy *Proxy
	audit *Audit
	agent cluster.Agent
	flags []string // of the agent, after the proxied kubeconfig
	ns    string   // of the test's pods
}

// newNode makes a namespace and starts the agent, and waits until it is ready. In the end the namespace is deleted, the agent
// gone, and nothing of the test's pods left.
func newNode(t testing.TB, flags ...string) *node {
	t.Helper()
	n := bareNode(t)
	n.flags = append(n.flags, flags...)
	n.start()
	n.ready()
	return n
}

// bareNode is a node whose agent was not started.
func bareNode(t testing.TB) *node {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", shared.Kubeconfig())
	check(t, err)
	config.QPS, config.Burst = 500, 500
	api, err := kubernetes.NewForConfig(config)
	check(t, err)
	conn, err := grpc.NewClient(shared.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	proxy, err := NewProxy(shared.APIServer())
	check(t, err)
	t.Cleanup(func() {
		proxy.Close()
		_ = conn.Close()
	})
	audit, err := NewAudit(shared.AuditLog())
	check(t, err)
	n := &node{Cluster: shared, t: t, api: api, cri: cri.NewRuntimeServiceClient(conn), proxy: proxy, audit: audit, agent: cluster.NodeAgent}
	n.flags = []string{"--kubeconfig=" + n.through(shared.Path("node.kubeconfig"))}
	n.ns = n.namespace()
	return n
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// through is a copy of a kubeconfig that leads through the proxy.
func (n *node) through(kubeconfig string) string {
	n.t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	check(n.t, err)
	for _, c := range config.Clusters {
		c.Server = "https://" + n.proxy.Address()
	}
	file := filepath.Join(n.t.TempDir(), "kubeconfig")
	check(n.t, clientcmd.WriteToFile(*config, file))
	return file
}

// namespace makes one that goes with the test, and the agent after it.
func (n *node) namespace() string {
	n.t.Helper()
	ctx := context.WithoutCancel(n.t.Context())
	n.t.Cleanup(func() { // when the namespaces are empty
		if n.t.Failed() {
			n.tell(ctx)
		}
		if err := n.EndAgent(ctx, syscall.SIGTERM); err != nil {
			n.t.Error(err)
		}
	})
	return n.ownNamespace()
}

// ownNamespace makes one that goes with the test.
func (n *node) ownNamespace() string {
	n.t.Helper()
	ctx := context.WithoutCancel(n.t.Context())
	ns, err := n.api.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "member-"}}, metav1.CreateOptions{})
	check(n.t, err)
	n.until("the namespace has a service account", func() error {
		_, err := n.api.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	n.t.Cleanup(func() {
		if err := n.empty(ctx, ns.Name); err != nil {
			n.t.Error(err)
		}
	})
	return ns.Name
}

// empty lets the agent take the pods of a namespace away, and has the namespace deleted.
func (n *node) empty(ctx context.Context, ns string) error {
	n.proxy.Heal()
	if n.AgentPID(n.agent) == 0 {
		if err := n.StartAgent(ctx, n.agent, n.flags...); err != nil {
			return err
		}
	}
	soon := int64(1)
	if err := n.api.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &soon}, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := n.api.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		pods, err := n.api.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("%d pods of namespace %s are left", len(pods.Items), ns))
		}
	}
}

// tell logs what helps to understand a failure.
func (n *node) tell(ctx context.Context) {
	log, _ := os.ReadFile(n.AgentLog(n.agent)) // none when it never started
	n.t.Logf("the end of the agent's log:\n%s", log[max(0, len(log)-12000):])
	out, err := n.Kubectl(ctx, "get", "pods", "-A", "-o", "wide")
	n.t.Logf("pods: %v\n%s", err, out)
}

func (n *node) start() {
	n.t.Helper()
	check(n.t, n.StartAgent(n.t.Context(), n.agent, n.flags...))
}

func (n *node) stop() {
	n.t.Helper()
	check(n.t, n.EndAgent(n.t.Context(), syscall.SIGTERM))
}

func (n *node) kill() {
	n.t.Helper()
	check(n.t, n.EndAgent(n.t.Context(), syscall.SIGKILL))
}

func (n *node) until(what string, ok func() error) time.Duration {
	n.t.Helper()
	return agent.Eventually(n.t, patience, what, ok)
}

// ready waits for the agent's server and the Ready node.
func (n *node) ready() {
	n.t.Helper()
	n.until("the node is ready", func() error { return n.AgentReady(n.t.Context()) })
}

// readyNode waits for the Ready node, whether its agent serves or not.
func (n *node) readyNode() {
	n.t.Helper()
	n.until("the node is Ready", func() error {
		o, err := n.api.CoreV1().Nodes().Get(n.t.Context(), cluster.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := condition(o.Status.Conditions); s != v1.ConditionTrue {
			return fmt.Errorf("Ready is %q", s)
		}
		return nil
	})
}

// requests are those of the node since the last call.
func (n *node) requests() []Request {
	n.t.Helper()
	all, err := n.audit.Next()
	check(n.t, err)
	return all
}

// object is the Node object.
func (n *node) object() *v1.Node {
	n.t.Helper()
	o, err := n.api.CoreV1().Nodes().Get(n.t.Context(), cluster.NodeName, metav1.GetOptions{})
	check(n.t, err)
	return o
}

// sleeper is a pod of one container that runs until it is told to end, which takes no time. It is not created.
func sleeper(name string, changes ...func(*v1.Pod)) *v1.Pod {
	grace := int64(2)
	p := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []v1.Container{{Name: "main", Image: images.Busybox, Command: shell("trap 'exit 0' TERM; sleep 3600 & wait")}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// holder is a pod that needs next to nothing.
func holder(name string, changes ...func(*v1.Pod)) *v1.Pod {
	return sleeper(name, append([]func(*v1.Pod){func(p *v1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = images.Pause, nil
	}}, changes...)...)
}

func shell(script string) []string { return []string{"sh", "-c", script} }

// script makes a pod's first container run a script.
func script(text string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Command = shell(text) }
}

func restart(policy v1.RestartPolicy) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.RestartPolicy = policy }
}

func (n *node) create(pods ...*v1.Pod) {
	n.t.Helper()
	for _, p := range pods {
		_, err := n.api.CoreV1().Pods(n.ns).Create(n.t.Context(), p, metav1.CreateOptions{})
		check(n.t, err)
	}
}

func (n *node) delete(names ...string) {
	n.t.Helper()
	for _, name := range names {
		check(n.t, n.api.CoreV1().Pods(n.ns).Delete(n.t.Context(), name, metav1.DeleteOptions{}))
	}
}

func (n *node) pod(name string) *v1.Pod {
	n.t.Helper()
	p, err := n.api.CoreV1().Pods(n.ns).Get(n.t.Context(), name, metav1.GetOptions{})
	check(n.t, err)
	return p
}

// running waits until pods are ready, all of the namespace when none are named.
func (n *node) running(names ...string) time.Duration {
	n.t.Helper()
	return n.until("pods are ready", func() error {
		list, err := n.api.CoreV1().Pods(n.ns).List(n.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := slices.Clone(names)
		for i := range list.Items {
			p := &list.Items[i]
			at := slices.Index(left, p.Name)
			if at < 0 && len(names) > 0 {
				continue
			}
			if !agent.PodReady(p) {
				return fmt.Errorf("%s is not ready: %s", p.Name, p.Status.Phase)
			}
			if at >= 0 {
				left = slices.Delete(left, at, at+1)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("there are no pods %v", left)
		}
		return nil
	})
}

// gone waits until a pod's object is gone, or another one of its name is there.
func (n *node) gone(p *v1.Pod) time.Duration {
	n.t.Helper()
	return n.until(p.Name+" is gone", func() error {
		now, err := n.api.CoreV1().Pods(p.Namespace).Get(n.t.Context(), p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && now.UID == p.UID:
			return fmt.Errorf("it is %s", now.Status.Phase)
		}
		return err
	})
}

// containers are the IDs of the running containers on the node, by pod and container name.
func (n *node) containers() map[string]string {
	n.t.Helper()
	r, err := n.cri.ListContainers(n.t.Context(), &cri.ListContainersRequest{})
	check(n.t, err)
	ids := map[string]string{}
	for _, c := range r.GetContainers() {
		if c.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			continue
		}
		key := c.GetLabels()["io.kubernetes.pod.name"] + "/" + c.GetMetadata().GetName()
		if other, twice := ids[key]; twice {
			n.t.Errorf("two instances of %s run: %s and %s", key, other, c.GetId())
		}
		ids[key] = c.GetId()
	}
	return ids
}

// clean says whether nothing is left on the node of pods with other UIDs: containers, sandboxes, network namespaces, mounts,
// directories, logs, cgroups.
func (n *node) clean(uids ...string) error {
	ctx := n.t.Context()
	containers, err := n.cri.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	sandboxes, err := n.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var left []string
	note := func(text string) {
		if !slices.ContainsFunc(uids, func(uid string) bool { return strings.Contains(text, uid) }) {
			left = append(left, text)
		}
	}
	for _, c := range containers.GetContainers() {
		note(fmt.Sprintf("container %s of %v", c.GetId(), c.GetLabels()))
	}
	for _, s := range sandboxes.GetItems() {
		note(fmt.Sprintf("sandbox %s of %v", s.GetId(), s.GetLabels()))
	}
	for _, pattern := range []string{
		n.Path("kubelet", "pods", "*"), n.Path("podlogs", "*"), "/sys/fs/cgroup/kubepods/pod*",
		"/sys/fs/cgroup/*/kubepods/pod*", "/sys/fs/cgroup/*/kubepods/*/pod*", // of both versions
	} {
		found, _ := filepath.Glob(pattern) // the patterns are good
		for _, f := range found {
			note(strings.ReplaceAll(f, "_", "-"))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], n.Path("kubelet", "pods")) {
			note("mount " + f[4])
		}
	}
	spaces, _ := filepath.Glob(n.Path("state", "io.containerd.grpc.v1.cri", "netns", "*")) // the pattern is good
	if len(spaces) > len(sandboxes.GetItems()) {
		left = append(left, fmt.Sprintf("%d network namespaces of %d sandboxes", len(spaces), len(sandboxes.GetItems())))
	}
	if len(left) > 0 {
		return fmt.Errorf("%d things are left, such as %s", len(left), strings.Join(left[:min(len(left), 5)], "\n"))
	}
	return nil
}
