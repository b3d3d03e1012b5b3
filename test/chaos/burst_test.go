package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// Many manifests are written at once, and later deleted at once.
func TestBurst(t *testing.T) {
	const pods = 40
	n := newNode(t)
	n.Start()
	n.Ready()
	_, idle := n.used(t)

	begun := time.Now()
	var names []string
	for i := range pods {
		name := fmt.Sprintf("burst-%d", i)
		names = append(names, name)
		n.Write(name+".yaml", kindNamed("plain").manifest(name, 0))
	}
	agent.Eventually(t, 4*time.Minute, "all pods are ready", func() error { return n.ready(t.Context(), names...) })
	cpu, memory := n.used(t)
	t.Logf("%d pods ready after %v; the agent used %v of processor time, %d MiB of memory (%d MiB before)",
		pods, round(time.Since(begun)), cpu, memory>>20, idle>>20)

	const quiet = 5 * time.Second
	<-time.After(quiet)
	after, memory := n.used(t)
	t.Logf("%v later: %v of processor time more, %d MiB of memory", quiet, after-cpu, memory>>20)

	begun = time.Now()
	for _, name := range names {
		n.Remove(name + ".yaml")
	}
	agent.Eventually(t, 4*time.Minute, "nothing is left", func() error { return n.only(t.Context(), nil) })
	end, memory := n.used(t)
	t.Logf("all gone after %v; the agent used %v of processor time for it, %d MiB of memory", round(time.Since(begun)), end-after, memory>>20)
}
