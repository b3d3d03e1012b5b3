package staticpod

import "github.com/kubeletkit/kubeletkit/observe"

type metrics struct{ files observe.Metric }

func newMetrics(o observe.To) (metrics, error) {
	i := o.Instruments()
	m := metrics{
		files: i.Gauge("kubeletkit_static_pod_files", "Entries of the static pod directory: those whose pod is delivered, and those that are refused.", "state"),
	}
	return m, i.Err
}

type mirrorMetrics struct{ mirrors observe.Metric }

func newMirrorMetrics(o observe.To) (mirrorMetrics, error) {
	i := o.Instruments()
	m := mirrorMetrics{mirrors: i.Gauge("kubelet_mirror_pods", "Static pods that have, or are to have, a mirror pod.")}
	return m, i.Err
}

type urlMetrics struct{ requests observe.Metric }

func newURLMetrics(o observe.To) (urlMetrics, error) {
	i := o.Instruments()
	m := urlMetrics{
		requests: i.Counter("kubeletkit_static_pod_url_requests_total", "Answers of the address of static pods: usable, refused for what they say, or failed.", "result"),
	}
	return m, i.Err
}
