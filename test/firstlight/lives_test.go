package firstlight

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/images"
)

var (
	programs = flag.String("agents", "", "NAME=FILE of each agent whose pods' lives BenchmarkLives takes in turns; empty: the one of this checkout")
	lives    = flag.Int("lives", 40, "of pods of each agent in BenchmarkLives")
)

// BenchmarkLives measures how long agents keep the processor for a pod, in their own code and in the kernel, from a file to a
// running container and back to nothing. Each agent has a containerd of its own. They take turns, pod by pod, as what a pod
// costs depends on what else the machine does: compare only what one run says.
func BenchmarkLives(b *testing.B) {
	type one struct {
		*node
		name string
		used []float64 // milliseconds, by pod
	}
	var all []*one
	for program := range strings.FieldsSeq(cmp.Or(*programs, "agent=")) {
		name, file, _ := strings.Cut(program, "=")
		n := newNode(b, private(b))
		if file != "" {
			n.Use(file)
		}
		n.Start()
		n.Ready()
		all = append(all, &one{node: n, name: name})
	}
	time.Sleep(15 * time.Second) // the streams of events stand: pods are listed once a minute
	const warm = 4
	for k := range warm + *lives {
		for _, o := range all {
			before := o.cpu(b)
			o.live(b, fmt.Sprint("life-", k))
			o.used = append(o.used, millis(o.cpu(b)-before))
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, o := range all {
		used, sum := o.used[warm:], 0.0
		for _, u := range used {
			sum += u
		}
		b.ReportMetric(sum/float64(len(used)), o.name+"-cpu-ms/pod")
		b.ReportMetric(median(used), o.name+"-cpu-p50-ms")
		b.ReportMetric(float64(o.rss(b))/(1<<20), o.name+"-rss-MiB")
	}
}

// live has a pod run and end, and returns when nothing is left of it. The agent is not asked.
func (n *node) live(b *testing.B, name string) {
	b.Helper()
	n.put(b, name+".json", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"containers": [`+
		`{"name": "main", "image": %q}], "terminationGracePeriodSeconds": 2}}`, name, images.Pause))
	n.seen.await(b, name+"-"+agent.Node, "its start", patience, func(l []instance) bool { return len(l) > 0 && !l[0].told.IsZero() })
	time.Sleep(150 * time.Millisecond) // that it is ready is seen and told, however late
	n.take(b, name+".json")
	agent.Eventually(b, patience, "the pod is gone", func() error {
		logs, err := os.ReadDir(n.Logs)
		if boxes := sandboxes(b, n.cri, ""); err == nil && len(logs)+len(boxes) > 0 {
			err = fmt.Errorf("there are %d log directories and %d sandboxes", len(logs), len(boxes))
		}
		return err
	})
	time.Sleep(50 * time.Millisecond) // what the runtime tells of that is heard
}
