package cgroups

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
)

// patience is how long anything may take that takes seconds on an idle machine.
const patience = 2 * time.Minute

const busybox = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"

// node is an agent on a containerd, with an API server in memory.
type node struct {
	*agent.Agent

	t      *testing.T
	api    *apifake.Server
	client kubernetes.Interface // of it
	cri    cri.RuntimeServiceClient
}

// newNode makes one on a bed. The agent is not started.
func newNode(t *testing.T, b *bed.Bed, flags ...string) *node {
	t.Helper()
	if _, err := os.Stat(cgroups.Mount + "/memory/memory.limit_in_bytes"); err != nil {
		t.Skip("the files looked at are those of cgroup version 1")
	}
	api := apifake.New()
	t.Cleanup(api.Close)
	web := httptest.NewServer(api)
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": %q}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {"token": "none asks for it"}}]}`, web.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: web.URL, QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(b.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	flags = append([]string{"--kubeconfig=" + config, "--authorization-mode=AlwaysAllow", "--authentication-token-webhook=false", "--anonymous-auth=true", "--sync-frequency=5s"}, flags...)
	n := &node{agent.New(t, b.Endpoint(), flags...), t, api, client, cri.NewRuntimeServiceClient(conn)}
	if n.Cgroup == "" {
		t.Skip("this machine lets nobody make cgroups")
	}
	return n
}

// sizes reads words such as cpu=100m (a request) and memory<1Mi (a limit).
func sizes(words string) v1.ResourceRequirements {
	var r v1.ResourceRequirements
	for w := range strings.FieldsSeq(words) {
		list, at := &r.Requests, strings.IndexAny(w, "=<")
		if w[at] == '<' {
			list = &r.Limits
		}
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[v1.ResourceName(w[:at])] = resource.MustParse(w[at+1:])
	}
	return r
}

// podOf is a pod with a container of each of these sizes, which waits.
func podOf(name string, containers ...string) *v1.Pod {
	grace, no := int64(1), false
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uuid.NewUUID()}, // the runtime may have those of earlier tests
		Spec: v1.PodSpec{
			NodeName: agent.Node, TerminationGracePeriodSeconds: &grace, EnableServiceLinks: &no, RestartPolicy: v1.RestartPolicyAlways,
			DNSPolicy: v1.DNSDefault, SecurityContext: &v1.PodSecurityContext{}, SchedulerName: "default-scheduler",
		},
	}
	for i, words := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: fmt.Sprint("c", i+1), Image: busybox, ImagePullPolicy: v1.PullIfNotPresent, Resources: sizes(words),
			Command: []string{"sh", "-c", "trap 'exit 0' TERM; sleep 1d & wait"}, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
		})
	}
	return p
}

// create has the cluster give a pod to the node.
func (n *node) create(p *v1.Pod) *v1.Pod {
	n.t.Helper()
	n.t.Cleanup(func() { n.forget(p.UID) })
	return n.api.Put(p).(*v1.Pod)
}

// forget has the runtime remove what a test that failed has left of a pod. Otherwise the agent may still be about it.
func (n *node) forget(uid types.UID) {
	n.t.Helper()
	if !n.t.Failed() {
		return
	}
	n.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, err := n.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(uid)}}})
	if err != nil {
		n.t.Error(err)
	}
	for _, s := range list.GetItems() {
		if _, err := n.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			n.t.Error(err)
		}
		if _, err := n.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			n.t.Error(err)
		}
	}
}

// now is a pod as the cluster sees it; nil: it is gone.
func (n *node) now(p *v1.Pod) *v1.Pod {
	is, ok := apifake.Get(n.api, p)
	if !ok || is.UID != p.UID {
		return nil
	}
	return is
}

// ready waits until pods are, and returns them.
func (n *node) ready(pods ...*v1.Pod) []*v1.Pod {
	n.t.Helper()
	out := make([]*v1.Pod, len(pods))
	agent.Eventually(n.t, patience, "pods are ready", func() error {
		for i, p := range pods {
			if out[i] = n.now(p); out[i] == nil || !agent.PodReady(out[i]) {
				return fmt.Errorf("%s is not: %+v", p.Name, out[i].Status)
			}
		}
		return nil
	})
	return out
}

// end deletes pods and waits until the cluster knows that they are gone.
func (n *node) end(pods ...*v1.Pod) {
	n.t.Helper()
	for _, p := range pods {
		if is := n.now(p); is != nil && is.DeletionTimestamp == nil {
			n.api.Delete(p)
		}
	}
	agent.Eventually(n.t, patience, "pods are gone", func() error {
		for _, p := range pods {
			if n.now(p) != nil {
				return fmt.Errorf("%s is there", p.Name)
			}
		}
		return nil
	})
}

// empty waits until no pod has a cgroup.
func (n *node) empty() {
	n.t.Helper()
	agent.Eventually(n.t, patience, "no pod has a cgroup", func() error {
		if left := cgroups.Pods(n.Cgroup); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

// bare waits until nothing is left of any pod or container.
func (n *node) bare() {
	n.t.Helper()
	agent.Eventually(n.t, patience, "no cgroup is left", func() error {
		var left []string
		for _, file := range cgroups.Files(n.Cgroup, "cgroup.procs") {
			switch _, below, _ := strings.Cut(file, n.Cgroup); below {
			case "/cgroup.procs", "/kubepods/cgroup.procs", "/kubepods/burstable/cgroup.procs", "/kubepods/besteffort/cgroup.procs":
			default:
				left = append(left, file)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

// of is the cgroup of a pod below the root of all.
func (n *node) of(p *v1.Pod) string {
	at := n.Cgroup + "/kubepods"
	switch p.Status.QOSClass {
	case v1.PodQOSBurstable:
		at += "/burstable"
	case v1.PodQOSBestEffort:
		at += "/besteffort"
	case v1.PodQOSGuaranteed:
	}
	return at + "/pod" + string(p.UID)
}

// has is what a file of a cgroup says.
func has(controller, group, file string) string {
	b, err := os.ReadFile(filepath.Join(cgroups.Mount, controller, group, file))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// say is like "shares 102 quota 20000 memory 16777216 pids 100"; what has no limit is -.
func say(group string) string {
	limit := func(controller, file string) string {
		text := has(controller, group, file)
		if n, err := strconv.ParseInt(text, 10, 64); text == "max" || err == nil && (n < 0 || n > 1<<60) {
			return "-"
		}
		return text
	}
	return fmt.Sprintf("shares %s quota %s memory %s pids %s", limit("cpu", "cpu.shares"), limit("cpu", "cpu.cfs_quota_us"), limit("memory", "memory.limit_in_bytes"), limit("pids", "pids.max"))
}

// instances are the containers of a pod that the runtime has, by ID.
func (n *node) instances(p *v1.Pod) map[string]*cri.ContainerStatus {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	list, err := n.cri.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(p.UID)}}})
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]*cri.ContainerStatus{}
	for _, c := range list.GetContainers() {
		s, err := n.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.GetId()})
		if err == nil { // else it went away
			out[c.GetId()] = s.GetStatus()
		}
	}
	return out
}

// only is the one running container of a pod.
func (n *node) only(p *v1.Pod) string {
	n.t.Helper()
	var ids []string
	for id, c := range n.instances(p) {
		if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			ids = append(ids, id)
		}
	}
	if len(ids) != 1 {
		n.t.Fatalf("%d containers of %s run", len(ids), p.Name)
	}
	return ids[0]
}
