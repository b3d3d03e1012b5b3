//go:build cluster

package member

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// crowd is as many pods as a node takes.
const crowd = 110

// crowdPatience is how long starting or ending all of them may take on a busy machine.
const crowdPatience = 4 * time.Minute

// As many pods as a node takes are started; an agent that starts again touches none of them and has next to nothing to
// write; deleted all at once they are gone without a trace.
func TestCrowd(t *testing.T) {
	n := newNode(t)
	agent.Eventually(t, patience, "the node is empty", func() error { return n.clean() })
	begun := time.Now()
	n.createMany(crowd)
	agent.Eventually(t, crowdPatience, "all are ready", n.allReady)
	t.Logf("%d pods were ready %v after the first was made", crowd, time.Since(begun).Round(time.Millisecond))
	time.Sleep(3 * time.Second) // what is on its way to the API server arrives

	before := n.containers()
	n.kill()
	n.requests()
	begun = time.Now()
	n.start()
	n.ready()
	t.Logf("Ready %v after the start of the agent", time.Since(begun).Round(time.Millisecond))
	time.Sleep(15 * time.Second) // for it to do what it should not
	if after := n.containers(); !maps.Equal(before, after) {
		t.Errorf("an agent that starts again changed containers: %d before, %d after", len(before), len(after))
	}
	check(t, n.allReady())
	all := n.requests()
	patches, pods := map[string]int{}, 0
	for _, r := range all {
		if r.What() == "patch pods/status" {
			patches[r.Object.Name]++
			pods++
		}
	}
	t.Logf("requests in the 15 seconds after: %v", Count(all))
	for name, times := range patches {
		if times > 1 {
			t.Errorf("the status of %s, which has not changed, was patched %d times", name, times)
		}
	}
	if pods > 0 {
		t.Errorf("%d pods were patched after an agent's start, though none has changed", pods)
	}

	begun = time.Now()
	check(t, n.api.CoreV1().Pods(n.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	agent.Eventually(t, crowdPatience, "all are gone", func() error {
		list, err := n.api.CoreV1().Pods(n.ns).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(list.Items))
		}
		return err
	})
	t.Logf("%d pods were gone %v after they were deleted", crowd, time.Since(begun).Round(time.Millisecond))
	agent.Eventually(t, patience, "nothing is left on the node", func() error { return n.clean() })
}

// createMany makes pods that need next to nothing, eight at a time.
func (n *node) createMany(count int) {
	n.t.Helper()
	names := make(chan string)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for name := range names {
				if _, err := n.api.CoreV1().Pods(n.ns).Create(n.t.Context(), holder(name), metav1.CreateOptions{}); err != nil {
					n.t.Error(err)
				}
			}
		})
	}
	for i := range count {
		names <- fmt.Sprintf("crowd-%d", i)
	}
	close(names)
	wg.Wait()
}

// allReady says whether all pods of the namespace are ready.
func (n *node) allReady() error {
	list, err := n.api.CoreV1().Pods(n.ns).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	var not []string
	for i := range list.Items {
		if p := &list.Items[i]; podCondition(p, v1.PodReady) != v1.ConditionTrue {
			not = append(not, p.Name)
		}
	}
	if len(not) > 0 {
		return fmt.Errorf("%d of %d are not ready: %s", len(not), len(list.Items), strings.Join(not[:min(5, len(not))], ", "))
	}
	return nil
}
