package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/stats"
)

// logSizes shows what logs of containers take up, under the kubelet's name. Each scrape has those that there are: a gauge with a
// value for each container would keep those that are gone.
type logSizes struct {
	figures *stats.Collector
	desc    *prometheus.Desc
}

func newLogSizes(figures *stats.Collector) logSizes {
	return logSizes{figures, prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes", "Bytes used by the container's logs on the filesystem.",
		[]string{"uid", "namespace", "pod", "container"}, nil)}
}

// Describe implements prometheus.Collector.
func (l logSizes) Describe(to chan<- *prometheus.Desc) { to <- l.desc }

// Collect implements prometheus.Collector.
func (l logSizes) Collect(to chan<- prometheus.Metric) {
	var all []prometheus.Metric // who reads may be slow
	l.figures.LogSizes(func(pod runtime.PodRef, container string, bytes int64) {
		all = append(all, prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(bytes), string(pod.UID), pod.Namespace, pod.Name, container))
	})
	for _, m := range all {
		to <- m
	}
}
