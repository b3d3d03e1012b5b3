package firstlight

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/images"
)

const benchPods = 20

var profileFile = flag.String("agent-profile", "", "a file for a CPU profile of the agent while BenchmarkManifestToStarted runs; read with go tool pprof")

// BenchmarkManifestToStarted measures the time from the moment a manifest is renamed into the directory until its
// container has started, over 20 pods one after the other, each beside the bare calls RunPodSandbox, CreateContainer
// and StartContainer with the same configurations: those that containerd says the agent has used. The bare calls go to
// a second containerd, as the agent would end pods it does not know; they are over when StartContainer returns. The
// agent is over when containerd's event of the start arrives, which it sends at the end of StartContainer.
func BenchmarkManifestToStarted(b *testing.B) {
	n := newNode(b, private(b))
	n.Start()
	n.Ready()
	bare := newFloor(b)
	pause := func(k int) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bench-%d"}, "spec": {"containers": [`+
			`{"name": "main", "image": %q}], "terminationGracePeriodSeconds": 2}}`, k, images.Pause)
	}
	var used time.Duration // of the processor by the agent, but for what it answers to this benchmark
	round := func(k int) (pod, floor time.Duration, parts map[string]time.Duration) {
		name := fmt.Sprintf("bench-%d-node", k)
		hidden, file := filepath.Join(n.Manifests, ".bench"), filepath.Join(n.Manifests, "bench.json")
		write(b, hidden, pause(k))
		cpu, before := n.cpu(b), time.Now()
		rename(b, hidden, file)
		ran := n.seen.await(b, name, "its start", patience, func(l []instance) bool { return len(l) > 0 && !l[0].told.IsZero() })
		pod = ran[0].told.Sub(before)
		used += n.cpu(b) - cpu
		parts = n.timeline(b, name, before, ran[0].told)
		floor = bare.start(b, n, k, sandboxes(b, n.cri, name)[0].GetId(), ran[0].id)
		cpu = n.cpu(b)
		n.take(b, "bench.json")
		agent.Eventually(b, patience, "the pod is gone", func() error {
			logs, err := os.ReadDir(n.Logs)
			if boxes := sandboxes(b, n.cri, ""); err == nil && len(logs)+len(boxes) > 0 {
				err = fmt.Errorf("there are %d log directories and %d sandboxes", len(logs), len(boxes))
			}
			return err
		})
		used += n.cpu(b) - cpu
		return pod, floor, parts
	}
	for k := range 3 { // both are warm then
		round(k)
	}
	used = 0
	asked := n.calls(b)
	profiled := make(chan struct{})
	go func() {
		defer close(profiled)
		if *profileFile != "" {
			write(b, *profileFile, n.get(b, fmt.Sprintf("/debug/pprof/profile?seconds=%d", benchPods)))
		}
	}()
	var pods, floors, ratios []float64
	parts := map[string][]float64{}
	k := 3
	for b.Loop() {
		for range benchPods {
			pod, floor, steps := round(k)
			k++
			pods, floors = append(pods, millis(pod)), append(floors, millis(floor))
			ratios = append(ratios, float64(pod)/float64(floor))
			for name, d := range steps {
				parts[name] = append(parts[name], millis(d))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of 20 pairs of pods, and so of no interest
	b.ReportMetric(median(pods), "agent-p50-ms")
	b.ReportMetric(median(floors), "bare-p50-ms")
	b.ReportMetric(median(pods)/median(floors), "ratio")
	b.ReportMetric(millis(used)/float64(len(pods)), "agent-cpu-ms/pod")
	total := 0.0
	for op, count := range n.calls(b) {
		each := (count - asked[op]) / float64(len(pods))
		total += each
		b.Logf("agent: %-35s %.1f calls a pod", op, each)
	}
	b.ReportMetric(total, "calls/pod")
	<-profiled
	b.ReportMetric(float64(n.rss(b))/(1<<20), "agent-rss-MiB")
	b.Logf("%d pods; of single pairs the median ratio is %.2f", len(pods), median(ratios))
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		b.Logf("agent: %-35s p50 %6.1f ms", name, median(parts[name]))
	}
	b.Logf("bare:  %-35s p50 %6.1f ms", "RunPodSandbox", median(bare.sandbox))
	b.Logf("bare:  %-35s p50 %6.1f ms", "CreateContainer and StartContainer", median(bare.container))
	b.Logf("bare:  %-35s p50 %6.1f ms", "from there to the event", median(bare.late))
}

// calls is how many calls of the runtime the agent has made, by operation.
func (n *node) calls(tb testing.TB) map[string]float64 {
	tb.Helper()
	calls := map[string]float64{}
	for line := range strings.Lines(n.get(tb, "/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), `"} `)
		if op, is := strings.CutPrefix(name, `kubelet_runtime_operations_total{operation_type="`); is {
			one, err := strconv.ParseFloat(value, 64)
			if err != nil {
				tb.Fatal(err)
			}
			calls[op] = one
		}
	}
	return calls
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// timeline is where the time of a pod went, by the agent's own account.
func (n *node) timeline(tb testing.TB, pod string, from, to time.Time) map[string]time.Duration {
	tb.Helper()
	var all []struct {
		Name     string
		Timeline []struct {
			Step     string
			At       time.Time
			Duration time.Duration
		}
	}
	if err := json.Unmarshal([]byte(n.get(tb, "/debug/pods?format=json")), &all); err != nil {
		tb.Fatal(err)
	}
	parts := map[string]time.Duration{}
	var sandboxEnd time.Time
	for _, p := range all {
		for _, e := range p.Timeline {
			switch {
			case p.Name != pod:
			case e.Step == "run sandbox":
				parts["1 from the rename to run sandbox"] = e.At.Sub(from)
				parts["2 run sandbox"] = e.Duration
				sandboxEnd = e.At.Add(e.Duration)
			case e.Step == "start container":
				parts["3 from there to start container"] = e.At.Sub(sandboxEnd)
				parts["4 start container, to the event"] = to.Sub(e.At)
				parts["5 start container, all of it"] = e.Duration
			}
		}
	}
	return parts
}

// floor is a containerd that is asked for pods without an agent.
type floor struct {
	bed  *bed.Bed
	cri  cri.RuntimeServiceClient
	seen *witness
	dir  string

	sandbox, container, late []float64 // of all pods, in milliseconds: the first call, the other two, and from their end to the event
}

func newFloor(b *testing.B) *floor {
	b.Helper()
	bd := private(b)
	c := dial(b, bd.Endpoint())
	return &floor{bed: bd, cri: c, seen: watchRuntime(b, c), dir: b.TempDir()}
}

// start makes a pod as an agent has made it on another node, and returns how long the three calls took. The pod is
// removed.
func (f *floor) start(b *testing.B, n *node, k int, sandbox, container string) time.Duration {
	b.Helper()
	var box struct{ Config *cri.PodSandboxConfig }
	var one struct{ Config *cri.ContainerConfig }
	unpack(b, sandboxStatus(b, n.cri, sandbox).GetInfo(), &box)
	unpack(b, containerStatus(b, n.cri, container).GetInfo(), &one)
	name := fmt.Sprintf("floor-%d", k)
	box.Config.Metadata.Name, box.Config.Metadata.Uid = name, name
	box.Config.LogDirectory = filepath.Join(f.dir, name)
	one.Config.Labels[labelPod] = name
	if err := os.MkdirAll(filepath.Join(box.Config.LogDirectory, filepath.Dir(one.Config.LogPath)), 0o755); err != nil {
		b.Fatal(err)
	}
	for i, m := range one.Config.Mounts {
		own := filepath.Join(f.dir, fmt.Sprintf("%s-mount-%d", name, i))
		write(b, own, read(b, m.HostPath))
		m.HostPath = own
	}
	if len(one.Config.Mounts) != 2 || one.Config.Linux.SecurityContext == nil || box.Config.Linux.SecurityContext == nil {
		b.Fatalf("containerd does not show the configurations: %v, %v", box.Config, one.Config)
	}

	began := time.Now()
	s, err := f.cri.RunPodSandbox(b.Context(), &cri.RunPodSandboxRequest{Config: box.Config})
	if err != nil {
		b.Fatal(err)
	}
	between := time.Now()
	c, err := f.cri.CreateContainer(b.Context(), &cri.CreateContainerRequest{PodSandboxId: s.PodSandboxId, Config: one.Config, SandboxConfig: box.Config})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := f.cri.StartContainer(b.Context(), &cri.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		b.Fatal(err)
	}
	ended := time.Now()
	f.sandbox, f.container = append(f.sandbox, millis(between.Sub(began))), append(f.container, millis(ended.Sub(between)))

	ran := f.seen.await(b, name, "the event of its start", patience, func(l []instance) bool { return len(l) == 1 && !l[0].told.IsZero() })
	f.late = append(f.late, millis(ran[0].told.Sub(ended)))
	if _, err := f.cri.StopPodSandbox(b.Context(), &cri.StopPodSandboxRequest{PodSandboxId: s.PodSandboxId}); err != nil {
		b.Fatal(err)
	}
	if _, err := f.cri.RemovePodSandbox(b.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: s.PodSandboxId}); err != nil {
		b.Fatal(err)
	}
	return ended.Sub(began)
}

// unpack reads what containerd tells when it is asked to be verbose.
func unpack(b *testing.B, info map[string]string, into any) {
	b.Helper()
	if err := json.NewDecoder(strings.NewReader(info["info"])).Decode(into); err != nil {
		b.Fatal(err)
	}
}
