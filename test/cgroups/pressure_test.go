//go:build pressure

package cgroups

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
)

var (
	runs = flag.Int("runs", 10, "how many pods grow, one after the other")
	rate = flag.Int("rate", 200, "by how many MB a second")
)

const (
	all       = 1 << 30   // what pods may use together, in bytes
	threshold = 300 << 20 // of what is left
)

// A pod grows by 200 MB a second and hears no signal, where all pods together may have 1 GiB. In at least nine of ten runs the
// agent ends it before the kernel has to, and its neighbour never notices.
func TestPodThatEatsMemoryIsEndedBeforeTheKernelHasTo(t *testing.T) {
	reserved := machine(t, "/proc/meminfo") - all
	n := newNode(t, bed.ForTest(t), fmt.Sprint("--system-reserved=memory=", reserved), fmt.Sprint("--eviction-hard=memory.available<", threshold),
		"--eviction-pressure-transition-period=1s")
	neighbour := podOf("neighbour", "cpu=10m cpu<100m memory=32Mi memory<32Mi")
	neighbour = n.create(neighbour)
	n.Start()
	neighbour = n.ready(neighbour)[0]
	if got := has("memory", n.Cgroup+"/kubepods", "memory.limit_in_bytes"); got != strconv.Itoa(all) {
		t.Fatalf("all pods together may have %s bytes", got)
	}
	id := n.only(neighbour)
	won := 0
	for i := range *runs {
		if n.run(i) {
			won++
		}
	}
	t.Logf("the agent was first in %d of %d runs at %d MB a second", won, *runs, *rate)
	if won*10 < *runs*9 {
		t.Errorf("the agent was first in %d of %d runs, want nine of ten", won, *runs)
	}
	if is := n.ready(neighbour)[0]; n.only(is) != id {
		t.Error("the neighbour was restarted")
	}
	n.end(neighbour)
	n.bare()
}

// run has one pod grow, and says whether the agent was first.
func (n *node) run(i int) (won bool) {
	n.t.Helper()
	p := podOf(fmt.Sprint("eater-", i), "cpu=10m memory=32Mi")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Containers[0].Image, p.Spec.Containers[0].Command, p.Spec.Containers[0].Args = "kubeletkit.dev/demo:1", nil, []string{"grow", "-rate", strconv.Itoa(*rate)}
	peak := filepath.Join(cgroups.Mount, "memory", n.Cgroup, "kubepods", "memory.max_usage_in_bytes")
	if err := os.WriteFile(peak, []byte("0"), 0); err != nil {
		n.t.Fatal(err)
	}
	kills := oomKills(n.t)
	p = n.create(p)
	var crossed time.Time
	took := agent.Eventually(n.t, patience, "the pod ends", func() error {
		if usage, err := strconv.ParseInt(has("memory", n.Cgroup+"/kubepods", "memory.usage_in_bytes"), 10, 64); err == nil && usage > all-threshold && crossed.IsZero() {
			crossed = time.Now()
		}
		if is := n.now(p); is.Status.Phase != v1.PodFailed {
			return fmt.Errorf("it is %s", is.Status.Phase)
		}
		return nil
	})
	is := n.now(p)
	killed := oomKills(n.t) - kills
	most, _ := strconv.ParseInt(has("memory", n.Cgroup+"/kubepods", "memory.max_usage_in_bytes"), 10, 64)
	won = is.Status.Reason == "Evicted" && killed == 0
	n.t.Logf("run %d: %s after %v, %v above the threshold; pods together had %d MiB at most, the kernel killed %d",
		i, is.Status.Reason, took.Round(10*time.Millisecond), time.Since(crossed).Round(10*time.Millisecond), most>>20, killed)
	n.end(p)
	agent.Eventually(n.t, patience, "there is memory again", func() error {
		if usage, err := strconv.ParseInt(has("memory", n.Cgroup+"/kubepods", "memory.usage_in_bytes"), 10, 64); err != nil || usage > all/4 {
			return fmt.Errorf("%d bytes are in use, %w", usage, err)
		}
		return nil
	})
	return won
}

// oomKills is how many processes of this machine the kernel has killed for want of memory, whoever else is on it.
func oomKills(t *testing.T) int {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/vmstat")) {
		if text, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("this kernel does not count whom it kills")
	return 0
}
