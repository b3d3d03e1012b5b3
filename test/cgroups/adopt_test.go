package cgroups

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
)

// Pods whose sandboxes lie elsewhere, because who started them kept no cgroups, go on untouched and are measured right. What
// starts from then on lies in the cgroup of its pod, and at the end nothing is left of either.
func TestPodsThatHaveNoneAreAdopted(t *testing.T) {
	n := newNode(t, bed.ForTest(t), "--cgroups-per-qos=false", "--enforce-node-allocatable=none")
	pods := []*v1.Pod{podOf("idle", ""), podOf("sized", "cpu=10m memory=8Mi memory<64Mi")}
	pods[0].Spec.Containers[0].Command = []string{"sh", "-c", "trap 'exit 3' TERM; sleep 1d & wait"}
	for i, p := range pods {
		pods[i] = n.create(p)
	}
	n.Start()
	pods = n.ready(pods...)
	ids := []string{n.only(pods[0]), n.only(pods[1])}
	for i, p := range pods {
		if got := has("memory", n.Cgroup+"/"+ids[i], "cgroup.procs"); got == "" || strings.Contains(got, "no such") {
			t.Errorf("%s does not run in the agent's cgroup: %s", p.Name, got)
		}
	}
	if left := cgroups.Pods(n.Cgroup); len(left) > 0 {
		t.Errorf("there are cgroups: %v", left)
	}

	n.Kill()
	n.Flag("--cgroups-per-qos=true", "--enforce-node-allocatable=pods")
	n.Start()
	n.Ready()
	agent.Eventually(t, patience, "the pods have cgroups", func() error {
		if got := say(n.of(pods[1])); got != "shares 10 quota - memory 67108864 pids -" {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	})
	for i, p := range n.ready(pods...) {
		if id := n.only(p); id != ids[i] || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s was restarted", p.Name)
		}
	}
	agent.Eventually(t, patience, "memory of the pod is told", func() error {
		text, err := n.Get(t.Context(), "/stats/summary")
		if err != nil {
			return err
		}
		var s struct {
			Pods []struct {
				Memory struct{ WorkingSetBytes uint64 }
			}
		}
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		if len(s.Pods) != 2 || s.Pods[0].Memory.WorkingSetBytes == 0 || s.Pods[1].Memory.WorkingSetBytes == 0 {
			return fmt.Errorf("%s", text)
		}
		return nil
	})

	kill(t, has("memory", n.Cgroup+"/"+ids[0], "cgroup.procs"))
	agent.Eventually(t, patience, "it runs in the cgroup of its pod", func() error {
		p := n.now(pods[0])
		if p.Status.ContainerStatuses[0].RestartCount == 0 || !agent.PodReady(p) {
			return fmt.Errorf("%+v", p.Status.ContainerStatuses)
		}
		if got := has("memory", n.of(p)+"/"+n.only(p), "cgroup.procs"); got == "" || strings.Contains(got, "no such") {
			return fmt.Errorf("cgroup.procs: %q", got)
		}
		return nil
	})
	n.end(pods...)
	n.empty()
	n.bare()
}

// kill ends processes whose numbers are given.
func kill(t *testing.T, numbers string) {
	t.Helper()
	for word := range strings.FieldsSeq(numbers) {
		var pid int
		if _, err := fmt.Sscan(word, &pid); err != nil {
			t.Fatal(err)
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended with the others
		}
	}
}
