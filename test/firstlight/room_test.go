package firstlight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// asking is a pod that asks for processors and runs until it is ended.
func asking(name, cpu string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %s, command: [sh, -c, %q], resources: {requests: {cpu: %q}}}
`, name, images.Busybox, polite, cpu)
}

// Without a cluster a machine still has only the room it has. The kubelet ends pods for one from a file if that helps; where it
// does not, the pod fails with the words below.
func TestAPodForWhichThisMachineIsTooSmallFails(t *testing.T) {
	n := newNode(t, private(t))
	n.put(t, "modest.yaml", asking("modest", "1m"))
	n.put(t, "greedy.yaml", asking("greedy", "1000"))
	n.Start()
	n.Ready()
	refused := func(pod, lacks string) {
		t.Helper()
		p := n.runs(t, "default", pod+"-"+agent.Node, "has failed", patience, phase(v1.PodFailed))
		if s := p.Status; s.Reason != "UnexpectedAdmissionError" || !strings.Contains(s.Message, "preemption: error finding a set of pods to preempt: "+
			"no set of running pods found to reclaim resources: [(res: "+lacks) || len(sandboxes(t, n.cri, p.Name)) > 0 {
			t.Errorf("%s: %s", pod, brief(p))
		}
	}
	refused("greedy", "cpu, q: ")
	n.runs(t, "default", "modest-"+agent.Node, "is ready", patience, ready)
	n.put(t, "second.yaml", asking("second", "1m"))
	n.runs(t, "default", "second-"+agent.Node, "is ready", patience, ready)
	before := fmt.Sprint(containers(t, n.cri, "modest-"+agent.Node)[0].GetId(), containers(t, n.cri, "second-"+agent.Node)[0].GetId())
	n.stop(t)

	// Another agent is told of less room. What runs keeps its place, and what comes is refused.
	n = restarted(t, n, "--max-pods=1")
	n.put(t, "third.yaml", asking("third", "0"))
	n.Start()
	n.Ready()
	refused("third", "pods, q: 2")
	for _, pod := range []string{"modest", "second"} {
		n.runs(t, "default", pod+"-"+agent.Node, "is still ready", patience, ready)
	}
	if after := fmt.Sprint(containers(t, n.cri, "modest-"+agent.Node)[0].GetId(), containers(t, n.cri, "second-"+agent.Node)[0].GetId()); after != before {
		t.Error("other containers run than before")
	}
	refused("greedy", "") // it is not let in either
	n.stop(t)
}

// A configuration file may shorten the wait before a container that ended runs again; without that the first one is ten seconds.
func TestTheLongestWaitBeforeARestartIsOfTheConfiguration(t *testing.T) {
	config := filepath.Join(t.TempDir(), "kubelet.yaml")
	err := os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncrashLoopBackOff: {maxContainerRestartPeriod: 3s}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, private(t), "--config="+config)
	n.put(t, "crash.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: crash}\nspec:\n  containers:\n  - {name: main, image: "+images.Busybox+", command: [\"false\"]}\n")
	n.Start()
	n.Ready()
	n.runs(t, "default", "crash-"+agent.Node, "waits three seconds", patience, func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].State.Waiting == nil || !strings.HasPrefix(s[0].State.Waiting.Message, "back-off 3s restarting failed container") {
			return errors.New(brief(p))
		}
		return nil
	})
	n.stop(t)
}
