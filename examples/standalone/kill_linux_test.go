package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/asuser"
)

var seeds = flag.Int("kill-seeds", 5, "how many histories of killed agents to play")

// manifest is a pod of one process.
func manifest(name, policy, script string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  restartPolicy: %s\n  terminationGracePeriodSeconds: 1\n"+
		"  containers:\n    - {name: c, image: host, command: [sh, -c, '%s']}\n", name, policy, script)
}

// numbers takes from a line how often a container was restarted, too: one that was made and then never started counts.
func numbers(line string) string {
	return regexp.MustCompile(`, restarts: \d+`).ReplaceAllString(plain(line), "")
}

// An agent is killed at any instant, several times. What runs goes on and runs once, a job that ended while nobody looked
// has its own exit code and ran once, and what is to be restarted is.
func TestKilledAtAnyInstant(t *testing.T) {
	p := asuser.Build(t)
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 2))
			manifests := t.TempDir()
			root := filepath.Join(p.Dir, fmt.Sprint(seed))
			for name, text := range map[string]string{
				"steady": manifest("steady", "Always", "echo ran; while sleep 1; do :; done"),
				"job":    manifest("job", "Never", "echo ran; sleep 0.4; exit 7"),
				"flaky":  manifest("flaky", "OnFailure", `[ -e "$KUBELETKIT_MOUNTS/../../../../again" ] && exit 0; echo > "$KUBELETKIT_MOUNTS/../../../../again"; exit 9`),
			} {
				if err := os.WriteFile(filepath.Join(manifests, name+".yaml"), []byte(strings.ReplaceAll(text, "\t", "")), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for dir := manifests; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) { // t.TempDir lets no other user in
				_ = os.Chmod(dir, 0o755)
			}
			t.Cleanup(func() { _ = p.Command(context.Background(), "-root", root, "-stop").Run() })
			for range 3 {
				a := p.Start(plain, "-root", root, manifests)
				time.Sleep(time.Duration(50+r.IntN(900)) * time.Millisecond)
				a.Kill()
			}
			a := p.Start(numbers, "-root", root, manifests)
			a.Prints(
				"default/steady-node Running 1/1 ready",
				"default/job-node Failed 0/1 ready (c after exit code 7)",
				"default/flaky-node has ended",
			)
			for name, want := range map[string]int{"steady": 1, "job": 1} {
				if n := ran(t, root, name); n != want {
					t.Errorf("%s ran %d times, want %d", name, n, want)
				}
			}
			a.Interrupt()
		})
	}
}

// ran is how often a pod has printed that it ran.
func ran(t *testing.T, root, name string) (n int) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(root, "logs", "default_"+name+"-node_*", "c", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range logs {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(b), " F ran\n")
	}
	return n
}
