//go:build cluster

package member

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// While the API server is away, pods are kept and restarted by their policy. When it is back, it is told all that happened,
// and not in a storm.
func TestAPIServerAway(t *testing.T) {
	n := newNode(t)
	n.create(sleeper("stays"), sleeper("hit"),
		sleeper("ends", restart(v1.RestartPolicyNever), script("sleep 20; exit 0")),
		sleeper("fails", restart(v1.RestartPolicyNever), script("sleep 20; exit 3")),
		sleeper("crashes", script("sleep 3; exit 1")))
	n.running("stays", "hit")
	n.until("all have started", func() error {
		if got := n.containers(); got["ends/main"] == "" || got["fails/main"] == "" {
			return errors.New("not yet")
		}
		return nil
	})
	before := n.containers()

	check(t, n.EndService(t.Context(), "kube-apiserver"))
	gone := time.Now()
	_, err := n.cri.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: before["hit/main"], Timeout: 1})
	check(t, err)
	n.until("a container that ended is started again without an API server", func() error {
		if id := n.containers()["hit/main"]; id == "" || id == before["hit/main"] {
			return fmt.Errorf("its container is %q", id)
		}
		return nil
	})
	time.Sleep(time.Until(gone.Add(40 * time.Second))) // what is tested is that nothing happens to pods meanwhile
	if after := n.containers(); after["stays/main"] != before["stays/main"] {
		t.Errorf("a pod was not kept: container %s became %s", before["stays/main"], after["stays/main"])
	}
	n.requests()
	check(t, n.StartService(t.Context(), "kube-apiserver"))
	back := time.Now()

	n.until("every status has arrived", func() error {
		if p := n.pod("ends"); p.Status.Phase != v1.PodSucceeded {
			return fmt.Errorf("ends is %s", p.Status.Phase)
		}
		p := n.pod("fails")
		if p.Status.Phase != v1.PodFailed || p.Status.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
			return fmt.Errorf("fails is %s", p.Status.Phase)
		}
		if p := n.pod("hit"); p.Status.ContainerStatuses[0].RestartCount != 1 {
			return fmt.Errorf("hit has %d restarts", p.Status.ContainerStatuses[0].RestartCount)
		}
		if p := n.pod("crashes"); p.Status.ContainerStatuses[0].RestartCount < 2 {
			return fmt.Errorf("crashes has %d restarts", p.Status.ContainerStatuses[0].RestartCount)
		}
		return nil
	})
	t.Logf("every status had arrived %v after the API server was back", time.Since(back).Round(time.Millisecond))
	n.ready()
	n.running("stays", "hit")

	time.Sleep(time.Until(back.Add(15 * time.Second))) // for a storm to come
	asked := Count(n.requests())
	t.Logf("requests from its start on, and 15 seconds after it answered: %v", asked)
	if events := asked["create events"] + asked["patch events"]; events > 40 {
		t.Errorf("%d events of 5 pods are a storm", events)
	}
	if patches := asked["patch pods/status"]; patches > 25 {
		t.Errorf("%d status patches of 5 pods", patches)
	}
}

// A wire that hangs is no reason to give up: what was asked meanwhile happens when it works again.
func TestWireHangs(t *testing.T) {
	n := newNode(t)
	n.create(sleeper("before"))
	n.running("before")
	before := n.containers()
	n.proxy.Hang()
	n.create(sleeper("meanwhile"))
	time.Sleep(12 * time.Second) // longer than a renewal of the lease
	n.proxy.Heal()
	t.Logf("a pod made meanwhile was ready after %v", n.running("before", "meanwhile").Round(time.Millisecond))
	if got := n.containers()["before/main"]; got != before["before/main"] {
		t.Errorf("container %s became %s", before["before/main"], got)
	}
}

// A node that is cut off becomes NotReady. Its pods go on, and when it is back all is as it was.
func TestCutOff(t *testing.T) {
	n := newNode(t)
	n.create(sleeper("one"), sleeper("two"))
	n.running("one", "two")
	before := n.containers()
	n.proxy.Cut()
	took := n.until("the node is NotReady", func() error {
		if s := condition(n.object().Status.Conditions); s != v1.ConditionUnknown {
			return fmt.Errorf("Ready is %s", s)
		}
		return nil
	})
	t.Logf("NotReady after %v", took.Round(time.Millisecond))
	n.until("its pods are not ready", func() error {
		if ready := podCondition(n.pod("one"), v1.PodReady); ready != v1.ConditionFalse {
			return fmt.Errorf("Ready is %s", ready)
		}
		return nil
	})
	n.proxy.Heal()
	n.ready()
	t.Logf("pods were ready again after %v more", n.running("one", "two").Round(time.Millisecond))
	n.until("the taints are gone", func() error {
		for _, taint := range n.object().Spec.Taints {
			if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
				return fmt.Errorf("%s is there", taint.Key)
			}
		}
		return nil
	})
	if after := n.containers(); !maps.Equal(before, after) {
		t.Errorf("containers changed: %v, then %v", before, after)
	}
}

// condition is the status of Ready.
func condition(all []v1.NodeCondition) v1.ConditionStatus {
	for _, c := range all {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func podCondition(p *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// A Node object that is deleted is registered again, and its pods go on running.
func TestNodeDeleted(t *testing.T) {
	n := newNode(t)
	n.create(sleeper("one"), sleeper("two"))
	n.running("one", "two")
	before, old := n.containers(), n.object()
	check(t, n.api.CoreV1().Nodes().Delete(t.Context(), old.Name, metav1.DeleteOptions{}))
	took := n.until("the node is registered again, and Ready", func() error {
		now, err := n.api.CoreV1().Nodes().Get(t.Context(), old.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := condition(now.Status.Conditions); now.UID == old.UID || s != v1.ConditionTrue {
			return fmt.Errorf("uid %s, Ready %q", now.UID, s)
		}
		return nil
	})
	t.Logf("registered again and Ready after %v", took.Round(time.Millisecond))
	n.create(sleeper("three"))
	n.running("one", "two", "three")
	after := n.containers()
	delete(after, "three/main")
	if !maps.Equal(before, after) {
		t.Errorf("containers changed: %v, then %v", before, after)
	}
}
