package eviction

import "github.com/kubeletkit/kubeletkit/observe"

type metrics struct {
	evictions observe.Metric
	age       observe.Metric
}

func newMetrics(in *observe.Instruments) metrics {
	return metrics{
		evictions: in.Counter("kubelet_evictions", "Pods ended by the signal that ran short or the limit they exceeded.", "eviction_signal"),
		age: in.Histogram("kubelet_eviction_stats_age_seconds", "How old the figures were for which a pod was ended.",
			[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}, "eviction_signal"),
	}
}
