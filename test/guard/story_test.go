package guard

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// member is a node of a cluster whose API server is in memory.
type member struct {
	*node

	api *apifake.Server
}

func newMember(t *testing.T, b *bed.Bed, flags ...string) *member {
	t.Helper()
	api := apifake.New()
	t.Cleanup(api.Close)
	server := httptest.NewServer(api)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": %q}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {"token": "none asks for it"}}]}`, server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"--kubeconfig=" + config, "--authorization-mode=AlwaysAllow", "--authentication-token-webhook=false", "--anonymous-auth=true"}, flags...)
	return &member{newNode(t, b, flags...), api}
}

// writer is a pod that writes so many MiB into an emptyDir, and waits.
func writer(name string, mib, priority int32, edits ...func(*v1.Pod)) *v1.Pod {
	grace, no := int64(60), false // nobody waits for it in a hard eviction
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uuid.NewUUID()},
		Spec: v1.PodSpec{
			NodeName: agent.Node, TerminationGracePeriodSeconds: &grace, EnableServiceLinks: &no, RestartPolicy: v1.RestartPolicyAlways, Priority: &priority,
			DNSPolicy: v1.DNSDefault, SecurityContext: &v1.PodSecurityContext{}, SchedulerName: "default-scheduler",
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
			Containers: []v1.Container{{
				Name: "app", Image: images.Busybox, ImagePullPolicy: v1.PullIfNotPresent, VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}},
				Command:                []string{"sh", "-c", fmt.Sprintf("trap '' TERM; dd if=/dev/zero of=$AT bs=1M count=%d && touch /dev/shm/written; while :; do sleep 1; done", mib)},
				ReadinessProbe:         &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-e", "/dev/shm/written"}}}, PeriodSeconds: 1, TimeoutSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3},
				Env:                    []v1.EnvVar{{Name: "AT", Value: "/data/file"}},
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	for _, e := range edits {
		e(p)
	}
	return p
}

// now is a pod as the cluster sees it.
func (m *member) now(p *v1.Pod) *v1.Pod {
	is, ok := apifake.Get(m.api, p)
	if !ok {
		m.t.Fatalf("%s is gone from the cluster", p.Name)
	}
	return is
}

func (m *member) wait(what string, ok func() error) {
	m.t.Helper()
	took := agent.Eventually(m.t, patience, what, ok)
	m.t.Logf("%s after %v", what, took.Round(100*time.Millisecond))
}

// start has pods run, and write what they want to.
func (m *member) start(pods ...*v1.Pod) {
	m.t.Helper()
	for _, p := range pods {
		m.api.Put(p)
	}
	m.wait("pods are ready", func() error {
		for _, p := range pods {
			if is := m.now(p); !agent.PodReady(is) {
				return fmt.Errorf("%s is %s %s %s", p.Name, is.Status.Phase, is.Status.Reason, is.Status.Message)
			}
		}
		return nil
	})
}

// evicted waits until a pod has been, and returns why.
func (m *member) evicted(p *v1.Pod) string {
	m.t.Helper()
	var is *v1.Pod
	m.wait(p.Name+" is evicted", func() error {
		is = m.now(p)
		if is.Status.Phase != v1.PodFailed || is.Status.Reason != "Evicted" {
			return fmt.Errorf("it is %s %s %s", is.Status.Phase, is.Status.Reason, is.Status.Message)
		}
		return nil
	})
	m.t.Logf("%s: %s", p.Name, is.Status.Message)
	return is.Status.Message
}

// pressed waits until the node says so, or says that it is not.
func (m *member) pressed(want v1.ConditionStatus) {
	m.t.Helper()
	m.wait("DiskPressure is "+string(want), func() error {
		n, ok := apifake.Get(m.api, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: agent.Node}})
		if !ok {
			return errors.New("there is no node")
		}
		i := slices.IndexFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeDiskPressure })
		if i < 0 || n.Status.Conditions[i].Status != want {
			return fmt.Errorf("conditions are %+v", n.Status.Conditions)
		}
		return nil
	})
}

// runs are pods that go on.
func (m *member) run(pods ...*v1.Pod) {
	m.t.Helper()
	for _, p := range pods {
		if is := m.now(p); is.Status.Phase != v1.PodRunning || !agent.PodReady(is) || is.Status.ContainerStatuses[0].RestartCount > 0 {
			m.t.Errorf("%s is %s %s %s", p.Name, is.Status.Phase, is.Status.Reason, is.Status.Message)
		}
	}
}

// has says whether there is an image.
func (m *member) has(ref string) bool {
	m.t.Helper()
	list, err := cri.NewImageServiceClient(m.conn).ListImages(m.t.Context(), &cri.ListImagesRequest{})
	if err != nil {
		m.t.Fatal(err)
	}
	return slices.ContainsFunc(list.GetImages(), func(i *cri.Image) bool { return slices.Contains(i.GetRepoTags(), ref) })
}

// The disk fills: images go first, then a pod, the one of low priority that has taken most; what comes meanwhile is refused.
// When somebody makes room the node is as before, and nobody else was ended.
func TestTheDiskFills(t *testing.T) {
	d := newDisk(t, 1536)
	b := bed.Private(t)
	const unused = "kubeletkit.dev/unused:1"
	big, err := images.Random(unused, 100<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ImportImages(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	m := newMember(t, b, "--eviction-hard=nodefs.available<10%,imagefs.available<10%", "--eviction-pressure-transition-period=15s", "--node-status-update-frequency=5s")
	m.Start()
	important, large, small := writer("important", 200, 1000), writer("large", 180, 0), writer("small", 20, 0)
	m.start(important, large, small)
	m.pressed(v1.ConditionFalse)

	if said := m.gc("--dry-run"); !strings.Contains(said, "nobody uses it, but there is room") || strings.Contains(said, "remove ") {
		t.Errorf("a round would\n%s", said)
	}
	if said := m.gc("--dry-run", "--all"); !strings.Contains(said, unused) || !strings.Contains(said, "images of 1") || !m.has(unused) {
		t.Errorf("a round of a full disk would\n%s", said)
	}

	d.fill(100 << 20) // a tenth is 150 MiB
	m.pressed(v1.ConditionTrue)
	m.wait("an image that nobody uses is gone", func() error {
		if m.has(unused) {
			return errors.New("it is there")
		}
		return nil
	})
	m.pressed(v1.ConditionFalse)
	m.run(important, large, small)

	d.fill(0)
	if text := m.evicted(large); !strings.HasPrefix(text, "The node was low on resource: ephemeral-storage. Threshold quantity: ") {
		t.Error(text)
	}
	m.pressed(v1.ConditionTrue)
	again := writer("again", 180, 0) // an owner that makes another at once, on a node without a taint
	m.api.Put(again)
	if text := m.evicted(again); text != "Pod was rejected: The node had condition: [DiskPressure]. " {
		t.Error(text)
	}
	m.run(important, small)
	if err := whole(m.Root); err != nil {
		t.Error(err)
	}

	d.free()
	m.pressed(v1.ConditionFalse)
	next := writer("next", 20, 0)
	m.start(next)
	m.run(important, small, next)
	m.tells("EvictionThresholdMet Node", "Evicted Pod/large", "NodeHasDiskPressure Node", "NodeHasNoDiskPressure Node")
}

// gc asks the agent what it would remove.
func (m *member) gc(flags ...string) string {
	m.t.Helper()
	args := append([]string{"gc", "--root-dir=" + m.Root, fmt.Sprintf("--port=%d", m.Port())}, flags...)
	out, err := exec.Command(agent.Program(m.t), args...).CombinedOutput()
	if err != nil {
		m.t.Errorf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// tells looks for events in the cluster.
func (m *member) tells(want ...string) {
	m.t.Helper()
	m.wait("events are told", func() error {
		got := map[string]bool{}
		for _, e := range apifake.All[*v1.Event](m.api) {
			got[e.Reason+" "+e.InvolvedObject.Kind] = true
			got[e.Reason+" "+e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name] = true
		}
		for _, w := range want {
			if !got[w] {
				return fmt.Errorf("%s is not among %v", w, got)
			}
		}
		return nil
	})
}

// Pods end that exceed limits of their own, of an emptyDir, of a container, of all containers; others stay.
func TestLocalLimits(t *testing.T) {
	newDisk(t, 1024)
	m := newMember(t, bed.Private(t))
	m.Start()
	limit := func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10Mi")}
	}
	size := func(p *v1.Pod) { p.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse("10Mi")) }
	layer := func(p *v1.Pod) { p.Spec.Containers[0].Env[0].Value = "/file" }
	logs := func(p *v1.Pod) {
		p.Spec.Containers[0].Command[2] = "trap '' TERM; yes 0123456789012345678901234567890123456789 | head -c 15000000; while :; do sleep 1; done"
	}
	beside := func(p *v1.Pod) { // another container may use much: that of the pod is not reached
		other := *p.Spec.Containers[0].DeepCopy()
		other.Name, other.Command[2] = "other", "while :; do sleep 1; done"
		other.Resources.Limits[v1.ResourceEphemeralStorage] = resource.MustParse("100Mi")
		p.Spec.Containers = append(p.Spec.Containers, other)
	}
	hosts := func(p *v1.Pod) { p.Spec.Containers[0].Env[0].Value = "/etc/hosts" }
	within := writer("within", 5, 0, limit, size)
	over := map[*v1.Pod]string{
		writer("volume", 15, 0, size):                    `Usage of EmptyDir volume "data" exceeds the limit "10Mi". `,
		writer("layer", 15, 0, limit, layer, beside):     `Container app exceeded its local ephemeral storage limit "10Mi". `,
		writer("logs", 0, 0, limit, logs, beside):        `Container app exceeded its local ephemeral storage limit "10Mi". `,
		writer("emptydir-counts", 15, 0, limit):          "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
		writer("hosts-file-counts", 15, 0, limit, hosts): "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
	}
	m.api.Put(within)
	for p := range over {
		m.api.Put(p)
	}
	for p, want := range over {
		if got := m.evicted(p); got != want {
			t.Errorf("%s: %q, want %q", p.Name, got, want)
		}
	}
	time.Sleep(15 * time.Second) // another pass
	m.run(within)
}
