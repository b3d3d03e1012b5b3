package chaos

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// A container that does not listen to SIGTERM takes its grace, and nobody waits for it but its own pod.
func TestHangingContainer(t *testing.T) {
	const grace = 30 * time.Second // more than the others need on a busy machine
	n := newNode(t)
	deaf := strings.Replace(kindNamed("stubborn").manifest("deaf", 0), "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 30", 1)
	n.Write("deaf.yaml", deaf)
	names := []string{"deaf"}
	for i := range 5 {
		name := fmt.Sprintf("quick-%d", i)
		names = append(names, name)
		n.Write(name+".yaml", kindNamed("plain").manifest(name, 0))
	}
	n.Start()
	agent.Eventually(t, patience, "all pods are ready", func() error { return n.ready(t.Context(), names...) })
	deafUID := ""
	if p, err := n.pod(t.Context(), "deaf"); err != nil {
		t.Fatal(err)
	} else {
		deafUID = string(p.UID)
	}

	begun := time.Now()
	for _, name := range names {
		n.Remove(name + ".yaml")
	}
	n.Write("late.yaml", kindNamed("plain").manifest("late", 0))
	lateUID := ""
	late := agent.Eventually(t, patience, "a new pod is ready", func() error {
		p, err := n.pod(t.Context(), "late")
		if err != nil {
			return err
		}
		lateUID = string(p.UID)
		return n.ready(t.Context(), "late")
	})
	agent.Eventually(t, patience, "the others are gone", func() error {
		return n.only(t.Context(), map[string]bool{deafUID: true, lateUID: true})
	})
	others := time.Since(begun)
	if len(n.running(t, "deaf")) != 1 {
		t.Error("the container that hangs was killed before its time, or others waited for it")
	}
	agent.Eventually(t, patience, "the one that hangs is gone", func() error {
		return n.only(t.Context(), map[string]bool{lateUID: true})
	})
	took := time.Since(begun)
	t.Logf("5 pods gone after %v, a new one ready after %v; the one that hangs, with a grace of %v, gone after %v", round(others), round(late), grace, round(took))
	if took < grace || took > grace+30*time.Second {
		t.Error("its grace was not kept")
	}
	if err := n.ready(t.Context(), "late"); err != nil {
		t.Error(errors.Join(err, errors.New("after the others have gone")))
	}
}
