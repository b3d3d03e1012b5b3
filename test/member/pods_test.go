//go:build cluster

package member

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeletkit/kubeletkit/test/cluster"
)

// Pods of one node at the same time, each to a rule.
func TestPods(t *testing.T) {
	n := newNode(t)
	for rule, test := range map[string]func(*node){
		"two pods of one name follow each other":               (*node).twoOfOneName,
		"a mirror pod comes with a file and goes with it":      (*node).mirror,
		"what others write to a pod's Ready is corrected":      (*node).overwrittenPod,
		"what others write to the node's Ready is corrected":   (*node).overwrittenNode,
		"a change of a ConfigMap or a Secret reaches its file": (*node).changedFiles,
		"a missing ConfigMap is waited for":                    (*node).missingConfig,
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			own := *n
			own.t = t
			own.ns = own.ownNamespace()
			test(&own)
		})
	}
}

func (n *node) twoOfOneName() {
	slow := func(p *v1.Pod) {
		grace := int64(30)
		p.Spec.TerminationGracePeriodSeconds = &grace
		p.Spec.Containers[0].Command = shell("trap 'sleep 3; exit 0' TERM; sleep 3600 & wait")
	}
	n.create(sleeper("twin", slow))
	n.running("twin")
	for _, grace := range []int64{30, 0} { // in order, and by force, after which nobody waits for the one before
		old := n.pod("twin")
		check(n.t, n.api.CoreV1().Pods(n.ns).Delete(n.t.Context(), "twin", metav1.DeleteOptions{GracePeriodSeconds: &grace}))
		n.until("the next one can be made", func() error {
			_, err := n.api.CoreV1().Pods(n.ns).Create(n.t.Context(), sleeper("twin", slow), metav1.CreateOptions{})
			return err
		})
		n.until("the next one is ready", func() error {
			if grace > 0 {
				n.containers() // complains of two
			}
			if p := n.pod("twin"); p.UID == old.UID || podCondition(p, v1.PodReady) != v1.ConditionTrue {
				return fmt.Errorf("it is %s", p.Status.Phase)
			}
			return nil
		})
		n.until("nothing is left of the one before", func() error { return n.leftOf(old.UID) })
	}
}

// leftOf says whether the node has a directory of a pod.
func (n *node) leftOf(uid types.UID) error {
	if _, err := os.Stat(n.Path("kubelet", "pods", string(uid))); !os.IsNotExist(err) {
		return fmt.Errorf("its directory is there: %w", err)
	}
	return nil
}

func (n *node) mirror() {
	file := n.Path("manifests", "mirrored.json")
	static := sleeper("mirrored")
	static.Namespace, static.UID = "default", "6f1d7a4e-0000-4000-8000-000000000001"
	data, err := json.Marshal(static)
	check(n.t, err)
	check(n.t, os.WriteFile(file, data, 0o600))
	n.t.Cleanup(func() { os.Remove(file) })

	name := static.Name + "-" + cluster.NodeName
	pods := n.api.CoreV1().Pods(static.Namespace)
	get := func() (*v1.Pod, error) { return pods.Get(n.t.Context(), name, metav1.GetOptions{}) }
	ready := func(notUID types.UID) *v1.Pod {
		var mirror *v1.Pod
		n.until("the mirror pod is ready", func() (err error) {
			if mirror, err = get(); err != nil {
				return err
			}
			if mirror.UID == notUID || podCondition(mirror, v1.PodReady) != v1.ConditionTrue {
				return fmt.Errorf("uid %s, %s", mirror.UID, mirror.Status.Phase)
			}
			return nil
		})
		return mirror
	}
	first := ready("")
	before := n.containers()[name+"/main"]
	check(n.t, pods.Delete(n.t.Context(), name, metav1.DeleteOptions{}))
	second := ready(first.UID)
	if after := n.containers()[name+"/main"]; after != before || after == "" {
		n.t.Errorf("the static pod's container was %q, and is %q after its mirror pod was deleted", before, after)
	}
	check(n.t, os.Remove(file))
	n.gone(second)
	n.until("the static pod is gone", func() error {
		if id := n.containers()[name+"/main"]; id != "" {
			return fmt.Errorf("container %s runs", id)
		}
		return n.leftOf(static.UID)
	})
}

// foreign is a condition that the agent knows nothing of.
const foreign = "example.com/Foreign"

func (n *node) overwrittenPod() {
	n.create(sleeper("told"))
	n.running("told")
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Lie"},{"type":%q,"status":"True","reason":"Mine"}]}}`, foreign)
	_, err := n.api.CoreV1().Pods(n.ns).Patch(n.t.Context(), "told", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	check(n.t, err)
	took := n.until("Ready is true again", func() error {
		if s := podCondition(n.pod("told"), v1.PodReady); s != v1.ConditionTrue {
			return fmt.Errorf("Ready is %s", s)
		}
		return nil
	})
	n.t.Logf("corrected after %v", took.Round(time.Millisecond))
	if s := podCondition(n.pod("told"), foreign); s != v1.ConditionTrue {
		n.t.Errorf("the condition of somebody else is %q", s)
	}
}

func (n *node) overwrittenNode() {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Lie"},{"type":%q,"status":"True","reason":"Mine"}]}}`, foreign)
	nodes := n.api.CoreV1().Nodes()
	_, err := nodes.Patch(n.t.Context(), cluster.NodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	check(n.t, err)
	took := n.until("Ready is true again", func() error {
		if s := condition(n.object().Status.Conditions); s != v1.ConditionTrue {
			return fmt.Errorf("Ready is %s", s)
		}
		return nil
	})
	n.t.Logf("corrected after %v", took.Round(time.Millisecond))
	found := false
	for _, c := range n.object().Status.Conditions {
		found = found || c.Type == foreign && c.Status == v1.ConditionTrue && c.Reason == "Mine"
	}
	if !found {
		n.t.Error("the condition of somebody else is gone")
	}
	drop := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"$patch":"delete"}]}}`, foreign)
	_, err = nodes.Patch(n.t.Context(), cluster.NodeName, types.StrategicMergePatchType, []byte(drop), metav1.PatchOptions{}, "status")
	check(n.t, err)
}

// configMap and secret have one key.
func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": value}}
}

func secret(name, value string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": value}}
}

// withFiles gives a pod volumes of a ConfigMap and a Secret of one name.
func withFiles(object string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes,
			v1.Volume{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: object}}}},
			v1.Volume{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: object}}})
		for _, name := range []string{"config", "secret"} {
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	}
}

// withEnv gives a pod variables of a ConfigMap.
func withEnv(object string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: object}}}}
	}
}

// objects makes a ConfigMap and a Secret of one name.
func (n *node) objects(name, value string) {
	n.t.Helper()
	_, err := n.api.CoreV1().ConfigMaps(n.ns).Create(n.t.Context(), configMap(name, value), metav1.CreateOptions{})
	check(n.t, err)
	_, err = n.api.CoreV1().Secrets(n.ns).Create(n.t.Context(), secret(name, value), metav1.CreateOptions{})
	check(n.t, err)
}

func (n *node) changedFiles() {
	n.objects("c", "old")
	n.create(sleeper("reads", withFiles("c")))
	n.running("reads")
	dir := n.Path("kubelet", "pods", string(n.pod("reads").UID), "volumes")
	files := []string{filepath.Join(dir, "kubernetes.io~configmap", "config", "key"), filepath.Join(dir, "kubernetes.io~secret", "secret", "key")}
	says := func(want string) func() error {
		return func() error {
			for _, f := range files {
				if got, err := os.ReadFile(f); err != nil || string(got) != want {
					return fmt.Errorf("%s says %q, %w", f, got, err)
				}
			}
			return nil
		}
	}
	check(n.t, says("old")())
	_, err := n.api.CoreV1().ConfigMaps(n.ns).Update(n.t.Context(), configMap("c", "new"), metav1.UpdateOptions{})
	check(n.t, err)
	_, err = n.api.CoreV1().Secrets(n.ns).Update(n.t.Context(), secret("c", "new"), metav1.UpdateOptions{})
	check(n.t, err)
	n.t.Logf("both files have changed after %v", n.until("both files have changed", says("new")).Round(time.Millisecond))
}

func (n *node) missingConfig() {
	n.create(sleeper("env", withEnv("late")), sleeper("files", withFiles("late")))
	n.until("the container waits for its variables", func() error {
		s := n.pod("env").Status.ContainerStatuses
		if len(s) == 0 || s[0].State.Waiting == nil || s[0].State.Waiting.Reason != "CreateContainerConfigError" {
			return fmt.Errorf("status %+v", s)
		}
		if want, got := `configmap "late" not found`, s[0].State.Waiting.Message; got != want {
			return fmt.Errorf("it says %q, not %q", got, want)
		}
		return nil
	})
	n.until("an event tells of the volume", func() error {
		list, err := n.api.CoreV1().Events(n.ns).List(n.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=files,reason=FailedMount"})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return apierrors.NewNotFound(v1.Resource("events"), "FailedMount")
		}
		return nil
	})
	n.objects("late", "v")
	if took := n.running("env", "files"); took > 30*time.Second {
		n.t.Errorf("both run %v after what they need was there; want seconds", took.Round(time.Millisecond))
	}
}
