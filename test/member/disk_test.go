//go:build cluster

package member

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/test/cluster"
)

// smallRoot mounts a small file system for the agent's files.
func smallRoot(t *testing.T, mib int64) string {
	t.Helper()
	dir := t.TempDir()
	image, root := filepath.Join(dir, "image"), filepath.Join(dir, "root")
	check(t, os.WriteFile(image, nil, 0o600))
	check(t, os.Truncate(image, mib<<20))
	check(t, os.Mkdir(root, 0o755))
	for _, c := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, root}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", c, err, out)
		}
	}
	t.Cleanup(func() { // what pods of the cluster have mounted below it goes with them
		if out, err := exec.Command("umount", "-l", root).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return root
}

// fillUp leaves so many MiB of a file system, and returns the file that takes the rest.
func fillUp(t *testing.T, root string, left int64) string {
	t.Helper()
	var s syscall.Statfs_t
	check(t, syscall.Statfs(root, &s))
	f, err := os.Create(filepath.Join(root, "somebody's"))
	check(t, err)
	check(t, syscall.Fallocate(int(f.Fd()), 0, 0, int64(s.Bavail)*s.Frsize-left<<20))
	check(t, f.Close())
	return f.Name()
}

// writing has a pod fill an emptyDir with so many MiB.
func writing(mib int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "data", MountPath: "/data"})
		c.Command = shell(fmt.Sprintf("trap 'exit 0' TERM; dd if=/dev/zero of=/data/file bs=1M count=%d; sleep 3600 & wait", mib))
	}
}

// The disk fills: the pod that takes most is evicted, the condition becomes a taint, what its owner makes in its place waits
// and is not evicted too. When somebody makes room, all comes back, and stays.
func TestDiskFills(t *testing.T) {
	root := smallRoot(t, 512)
	n := newNode(t, "--root-dir="+root, "--eviction-hard=nodefs.available<20%", "--eviction-pressure-transition-period=30s")
	for app, mib := range map[string]int{"large": 150, "small": 20} {
		one := int32(1)
		_, err := n.api.AppsV1().Deployments(n.ns).Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: app},
			Spec:       appsv1.DeploymentSpec{Replicas: &one, Selector: selector(app), Template: template(app, writing(mib))},
		}, metav1.CreateOptions{})
		check(t, err)
	}
	n.replicas("large", 1)
	n.replicas("small", 1)
	small := n.of("small")[0]
	n.pressed(v1.ConditionFalse)

	filler := fillUp(t, root, 50)
	n.until("the large pod is evicted", func() error {
		if got := evicted(n.of("large")); got != 1 {
			return fmt.Errorf("%d pods of it were", got)
		}
		return nil
	})
	n.pressed(v1.ConditionTrue)
	begun := time.Now()
	for time.Since(begun) < 15*time.Second { // the pressure lasts at least twice as long
		if all := n.of("large"); evicted(all) != 1 || len(all) > 2 || slices.ContainsFunc(all, func(p v1.Pod) bool { return p.Status.Phase != v1.PodFailed && p.Spec.NodeName != "" }) {
			t.Fatalf("under pressure there are %d pods of it, %d of them evicted", len(all), evicted(all))
		}
		time.Sleep(time.Second)
	}
	check(t, os.Remove(filler))
	n.pressed(v1.ConditionFalse)
	n.until("another large pod runs", func() error {
		if !slices.ContainsFunc(n.of("large"), func(p v1.Pod) bool { return podCondition(&p, v1.PodReady) == v1.ConditionTrue }) {
			return fmt.Errorf("there are %d", len(n.of("large")))
		}
		return nil
	})
	time.Sleep(45 * time.Second) // some passes, with figures made anew
	if got := evicted(n.of("large")); got != 1 {
		t.Errorf("%d pods were evicted", got)
	}
	n.pressed(v1.ConditionFalse)
	if all := n.of("small"); len(all) != 1 || all[0].UID != small.UID || all[0].Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the small pod did not stay: %+v", all)
	}
	said, err := n.Kubectl(t.Context(), "describe", "node", cluster.NodeName)
	check(t, err)
	for _, want := range []string{"NodeHasDiskPressure", "NodeHasNoDiskPressure", "EvictionThresholdMet", "KubeletHasNoDiskPressure"} {
		if !strings.Contains(said, want) {
			t.Errorf("kubectl describe node does not tell of %s:\n%s", want, said)
		}
	}
}

// of are all pods of an application, wherever and whatever they are.
func (n *node) of(app string) []v1.Pod {
	n.t.Helper()
	list, err := n.api.CoreV1().Pods(n.ns).List(n.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	check(n.t, err)
	return list.Items
}

// evicted counts those that were.
func evicted(pods []v1.Pod) (count int) {
	for i := range pods {
		if s := pods[i].Status; s.Phase == v1.PodFailed && s.Reason == "Evicted" {
			count++
		}
	}
	return count
}

// pressed waits until the node says so, and has the taint that follows; or has neither.
func (n *node) pressed(want v1.ConditionStatus) {
	n.t.Helper()
	n.until("DiskPressure is "+string(want), func() error {
		o := n.object()
		i := slices.IndexFunc(o.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeDiskPressure })
		tainted := slices.ContainsFunc(o.Spec.Taints, func(t v1.Taint) bool {
			return t.Key == v1.TaintNodeDiskPressure && t.Effect == v1.TaintEffectNoSchedule
		})
		if i < 0 || o.Status.Conditions[i].Status != want || tainted != (want == v1.ConditionTrue) {
			return fmt.Errorf("conditions %+v, taints %+v", o.Status.Conditions, o.Spec.Taints)
		}
		return nil
	})
}
