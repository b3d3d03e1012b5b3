package manager

import (
	"time"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/probe"
)

type metrics struct {
	total, duration observe.Metric
}

// series names what is recorded for one probe of a pod.
type series struct {
	container string
	kind      kind
}

const (
	successful = "successful"
	failed     = "failed"
)

func newMetrics(to observe.To) (metrics, error) {
	in := to.Instruments()
	m := metrics{
		total: in.Counter("prober_probe_total", "Probes carried out, by result.",
			"probe_type", "result", "container", "pod", "namespace", "pod_uid"),
		duration: in.Histogram("prober_probe_duration_seconds", "Time a successful probe took, all tries together.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "probe_type", "container", "pod", "namespace"),
	}
	return m, in.Err
}

func (m metrics) count(p *prober, res probe.Result, took time.Duration) {
	w, c := p.of.of, p.of.spec.Name
	pod := w.pod
	w.series[series{c, p.kind}] = struct{}{}
	if !res.OK() {
		m.total.Record(1, p.kind.String(), failed, c, pod.Name, pod.Namespace, string(pod.UID))
		return
	}
	m.total.Record(1, p.kind.String(), successful, c, pod.Name, pod.Namespace, string(pod.UID))
	m.duration.Record(took.Seconds(), p.kind.String(), c, pod.Name, pod.Namespace)
}

// forget drops the series of one container, of all with the empty name.
func (m metrics) forget(w *watch, container string) {
	for s := range w.series {
		if container != "" && s.container != container {
			continue
		}
		for _, result := range [...]string{successful, failed} {
			m.total.Forget(s.kind.String(), result, s.container, w.pod.Name, w.pod.Namespace, string(w.pod.UID))
		}
		m.duration.Forget(s.kind.String(), s.container, w.pod.Name, w.pod.Namespace)
		delete(w.series, s)
	}
}
