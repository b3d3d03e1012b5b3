package agent_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
)

const waiting = `apiVersion: v1
kind: Pod
metadata: {name: agent-package}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: app, image: "kubeletkit.dev/demo:1", imagePullPolicy: IfNotPresent, args: [wait]}
`

// The life of an agent: started, asked, killed, started again, stopped.
func TestLife(t *testing.T) {
	b := bed.Private(t)
	a := agent.New(t, b.Endpoint())
	a.Write("pod.yaml", waiting)
	a.Start()
	a.Ready()
	running := func() error {
		p, err := a.Pod(t.Context(), "default", "agent-package-"+agent.Node)
		switch {
		case err != nil:
			return err
		case p.Status.Phase != v1.PodRunning || !agent.PodReady(p):
			return errors.New("the pod is " + string(p.Status.Phase))
		}
		return nil
	}
	agent.Eventually(t, time.Minute, "the pod is ready", running)
	pid := a.PID()
	a.Kill()
	if err := a.Healthy(t.Context(), ""); err == nil {
		t.Error("a killed agent answers")
	}
	a.Start()
	agent.Eventually(t, time.Minute, "the pod is ready again", running)
	if a.PID() == pid {
		t.Error("the process is the same")
	}
	a.Remove("pod.yaml")
	agent.Eventually(t, time.Minute, "the pod is gone", func() error {
		if pods, err := a.Pods(t.Context()); err != nil || len(pods) > 0 {
			return errors.Join(err, errors.New("it is there"))
		}
		return nil
	})
	agent.Eventually(t, time.Minute, "its log directory is gone", func() error {
		if left, err := os.ReadDir(a.Logs); err != nil || len(left) > 0 {
			return errors.Join(err, fmt.Errorf("there are %v", left))
		}
		return nil
	})
	if code, took := a.Stop(); code != 0 {
		t.Errorf("exit code %d after %s", code, took)
	}
	if a.Log() == "" {
		t.Error("there is no log")
	}
}
