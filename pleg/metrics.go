package pleg

import (
	"time"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

type metrics struct {
	duration, interval, one, lastSeen, pods, containers, merged observe.Metric
}

func newMetrics(to observe.To) (metrics, error) {
	in := to.Instruments()
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	m := metrics{
		duration:   in.Histogram("kubelet_pleg_relist_duration_seconds", "Time a listing of all pods took, without the looks it led to.", buckets),
		interval:   in.Histogram("kubelet_pleg_relist_interval_seconds", "Time from one relist to the next.", buckets),
		one:        in.Histogram("kubelet_pleg_pod_relist_duration_seconds", "Time a look at one pod took.", buckets),
		lastSeen:   in.Gauge("kubelet_pleg_last_seen_seconds", "When pods were listed last, in seconds since 1970."),
		pods:       in.Gauge("kubelet_running_pods", "Pods with a running sandbox."),
		merged:     in.Counter("kubeletkit_pleg_merged_events_total", "Events of the runtime's stream that came while their pod was being looked at: they share the next look."),
		containers: in.Gauge("kubelet_running_containers", "Containers that exist, by state.", "container_state"),
	}
	return m, in.Err
}

func (m metrics) begin(at, last time.Time) {
	if !last.IsZero() {
		m.interval.Record(at.Sub(last).Seconds())
	}
}

func (m metrics) end(begun time.Time) { m.duration.Record(time.Since(begun).Seconds()) }

func (m metrics) looked(begun time.Time) { m.one.Record(time.Since(begun).Seconds()) }

// count records what a listing showed.
func (m metrics) count(pods []runtime.Pod, at time.Time) {
	m.lastSeen.Record(float64(at.Unix()))
	running := 0
	states := [runtime.Exited + 1]int{}
	for _, p := range pods {
		if ready(p) {
			running++
		}
		for _, c := range p.Containers {
			states[min(c.State, runtime.Exited)]++
		}
	}
	m.pods.Record(float64(running))
	for s, n := range states {
		m.containers.Record(float64(n), runtime.State(s).String())
	}
}
