//go:build cluster

package member

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/test/cluster"
)

// cordon, drain and uncordon, with a disruption budget that lets one pod go, and a daemon that stays.
func TestDrain(t *testing.T) {
	n := newNode(t)
	ctx := t.Context()
	two, one := int32(2), intstr.FromInt32(1)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: selector("web"), Template: template("web")}}
	_, err := n.api.AppsV1().Deployments(n.ns).Create(ctx, deployment, metav1.CreateOptions{})
	check(t, err)
	daemon := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "daemon"}, Spec: appsv1.DaemonSetSpec{Selector: selector("daemon"), Template: template("daemon")}}
	_, err = n.api.AppsV1().DaemonSets(n.ns).Create(ctx, daemon, metav1.CreateOptions{})
	check(t, err)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: selector("web")}}
	_, err = n.api.PolicyV1().PodDisruptionBudgets(n.ns).Create(ctx, budget, metav1.CreateOptions{})
	check(t, err)
	n.replicas("web", 2)
	n.replicas("daemon", 1)
	n.until("the budget counts", func() error {
		b, err := n.api.PolicyV1().PodDisruptionBudgets(n.ns).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && b.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("it allows %d", b.Status.DisruptionsAllowed)
		}
		return err
	})
	t.Cleanup(func() { _, _ = n.Kubectl(context.WithoutCancel(ctx), "uncordon", cluster.NodeName) }) // after a failure

	drain := []string{"drain", cluster.NodeName, "--ignore-daemonsets", "--timeout=10s"}
	if out, err := n.Kubectl(ctx, drain...); err == nil || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("a drain that the budget forbids: %v\n%s", err, out)
	}
	n.replicas("web", 1)
	n.replicas("daemon", 1)
	_, err = n.Kubectl(ctx, "uncordon", cluster.NodeName)
	check(t, err)
	n.replicas("web", 2)

	check(t, n.api.PolicyV1().PodDisruptionBudgets(n.ns).Delete(ctx, "web", metav1.DeleteOptions{}))
	begun := time.Now()
	_, err = n.Kubectl(ctx, drain...)
	check(t, err)
	t.Logf("drained in %v", time.Since(begun).Round(time.Millisecond))
	n.replicas("web", 0)
	n.replicas("daemon", 1)
	_, err = n.Kubectl(ctx, "uncordon", cluster.NodeName)
	check(t, err)
	n.replicas("web", 2)
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func template(app string, changes ...func(*v1.Pod)) v1.PodTemplateSpec {
	p := sleeper(app, changes...)
	return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
}

// replicas waits until so many pods of an application are on the node, all ready.
func (n *node) replicas(app string, want int) {
	n.t.Helper()
	n.until(fmt.Sprintf("%d pods of %s are ready", want, app), func() error {
		list, err := n.api.CoreV1().Pods(n.ns).List(n.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app, FieldSelector: "spec.nodeName=" + cluster.NodeName})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if podCondition(&list.Items[i], v1.PodReady) == v1.ConditionTrue {
				ready++
			}
		}
		if ready != want || len(list.Items) != want {
			return fmt.Errorf("%d of %d are ready", ready, len(list.Items))
		}
		return nil
	})
}
