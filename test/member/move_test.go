//go:build cluster

package member

import (
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeletkit/kubeletkit/test/cluster"
)

// A node moves from kubelet to nodeagent and back on the same root directory, and no container is restarted.
func TestMove(t *testing.T) {
	n := bareNode(t)
	file := n.Path("manifests", "moves.json")
	static := sleeper("static")
	static.Namespace, static.UID = "default", "6f1d7a4e-0000-4000-8000-000000000002"
	data, err := json.Marshal(static)
	check(t, err)
	check(t, os.WriteFile(file, data, 0o600))
	t.Cleanup(func() { os.Remove(file) })

	n.agent = cluster.Kubelet
	n.start()
	n.ready()
	n.objects("c", "v")
	always := v1.ContainerRestartPolicyAlways
	n.create(sleeper("plain"), sleeper("files", withEnv("c"), withFiles("c")),
		sleeper("sidecar", func(p *v1.Pod) {
			c := *p.Spec.Containers[0].DeepCopy()
			c.Name, c.RestartPolicy = "side", &always
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: c.Image, Command: shell("true")}, c}
			p.Spec.Volumes = []v1.Volume{{Name: "empty", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "empty", MountPath: "/empty"}}
		}),
		sleeper("probed", func(p *v1.Pod) {
			probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 1, TimeoutSeconds: 10}
			p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe, p.Spec.Containers[0].StartupProbe = probe, probe, probe
		}),
		sleeper("over", restart(v1.RestartPolicyNever), script("exit 0")))
	n.running("plain", "files", "sidecar", "probed")
	n.until("static pod runs", func() error {
		if n.containers()["static-"+cluster.NodeName+"/main"] == "" {
			return fmt.Errorf("running: %v", n.containers())
		}
		return nil
	})
	before := n.containers()
	for _, next := range []cluster.Agent{cluster.NodeAgent, cluster.Kubelet, cluster.NodeAgent} {
		from := n.agent
		n.stop()
		n.agent = next
		n.start()
		n.ready()
		time.Sleep(8 * time.Second) // for it to do what it should not
		if after := n.containers(); !maps.Equal(before, after) {
			t.Errorf("from %s to %s containers changed:\n%v\n%v", from, next, before, after)
			before = after
		}
		list, err := n.api.CoreV1().Pods(n.ns).List(t.Context(), metav1.ListOptions{})
		check(t, err)
		for i := range list.Items {
			p := &list.Items[i]
			if ready := podCondition(p, v1.PodReady) == v1.ConditionTrue; ready != (p.Name != "over") {
				t.Errorf("from %s to %s: %s is %s, Ready %v", from, next, p.Name, p.Status.Phase, ready)
			}
			for _, s := range p.Status.ContainerStatuses {
				if s.RestartCount != 0 {
					t.Errorf("from %s to %s: container %s of %s counts %d restarts", from, next, s.Name, p.Name, s.RestartCount)
				}
			}
		}
		name := fmt.Sprintf("made-by-%s", next)
		n.create(sleeper(name))
		n.running(name)
		p := n.pod(name)
		n.delete(name)
		n.gone(p)
	}
	check(t, os.Remove(file))
	n.until("nothing is left of the static pod", func() error { return n.leftOf(static.UID) })
}
