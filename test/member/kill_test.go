//go:build cluster

package member

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

var (
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()%1e6), "what happens when, in TestKillNine")
	kills = flag.Int("kills", 12, "how often TestKillNine kills the agent")
)

// The agent is killed at any moment while pods come and go. The next one goes on where it was: no container runs twice, what
// is wanted runs in the end, what is deleted is gone, and pods that nobody touched notice nothing.
func TestKillNine(t *testing.T) {
	t.Logf("-seed %d -kills %d", *seed, *kills)
	n := newNode(t)
	n.create(sleeper("bystander"))
	n.running("bystander")
	firm := n.containers()["bystander/main"]
	n.kill()

	random := rand.New(rand.NewPCG(*seed, 0))
	for range *kills {
		n.start()
		end := time.Now().Add(time.Duration(random.Int64N(int64(4 * time.Second))))
		for time.Now().Before(end) {
			n.churn(random)
			n.containers() // complains of twins
			time.Sleep(min(time.Duration(random.Int64N(int64(time.Second))), time.Until(end)))
		}
		n.kill()
	}
	n.start()
	n.ready()
	took := agent.Eventually(t, 2*patience, "all is as wanted", n.asWanted)
	t.Logf("all was as wanted %v after the last start", took.Round(time.Millisecond))
	if id := n.containers()["bystander/main"]; id != firm {
		t.Errorf("the container of a pod that nobody touched was %s and is %q", firm, id)
	}
}

// churn makes or deletes one of six pods.
func (n *node) churn(random *rand.Rand) {
	n.t.Helper()
	name := fmt.Sprintf("churn-%d", random.IntN(6))
	kinds := []func(*v1.Pod){
		func(*v1.Pod) {},
		func(p *v1.Pod) {
			p.Spec.Containers[0].Command = shell("sleep 1; exit 0")
			p.Spec.RestartPolicy = v1.RestartPolicyNever
		},
		func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: p.Spec.Containers[0].Image, Command: shell("sleep 1")}}
		},
		func(p *v1.Pod) {
			p.Spec.Containers[0].Command = shell("trap 'sleep 1; exit 0' TERM; sleep 3600 & wait")
		},
	}
	kind := kinds[random.IntN(len(kinds))]
	_, err := n.api.CoreV1().Pods(n.ns).Create(n.t.Context(), sleeper(name, kind), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		grace := []int64{0, 1, 2}[random.IntN(3)]
		err = n.api.CoreV1().Pods(n.ns).Delete(n.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}
}

// asWanted says whether every pod of the namespace is over or ready, and the node has nothing of others.
func (n *node) asWanted() error {
	list, err := n.api.CoreV1().Pods(n.ns).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	var uids []string
	for i := range list.Items {
		p := &list.Items[i]
		uids = append(uids, string(p.UID))
		switch {
		case p.DeletionTimestamp != nil:
			errs = append(errs, fmt.Errorf("%s is still being deleted", p.Name))
		case p.Spec.RestartPolicy == v1.RestartPolicyNever && p.Status.Phase != v1.PodSucceeded && !startWasCut(p):
			errs = append(errs, fmt.Errorf("%s is %s", p.Name, p.Status.Phase))
		case p.Spec.RestartPolicy != v1.RestartPolicyNever && podCondition(p, v1.PodReady) != v1.ConditionTrue:
			errs = append(errs, fmt.Errorf("%s is not ready: %s", p.Name, p.Status.Phase))
		}
	}
	return errors.Join(append(errs, n.clean(uids...))...)
}

// startWasCut says that a pod that is never restarted has failed because the agent was killed while its container was being
// started: containerd cancels the start, and that is an end like any other.
func startWasCut(p *v1.Pod) bool {
	if p.Status.Phase != v1.PodFailed || len(p.Status.ContainerStatuses) == 0 {
		return false
	}
	ended := p.Status.ContainerStatuses[0].State.Terminated
	return ended != nil && (ended.Reason == "StartError" || ended.Reason == "ContainerStatusUnknown")
}

// reboot ends all containers and sandboxes as a machine that goes down does, with the agent away.
func (n *node) reboot() {
	n.t.Helper()
	list, err := n.cri.ListPodSandbox(n.t.Context(), &cri.ListPodSandboxRequest{})
	check(n.t, err)
	for _, s := range list.GetItems() {
		_, err := n.cri.StopPodSandbox(n.t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		check(n.t, err)
	}
}
