package main

import (
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// buildInfo is the metric by which dashboards and alerts see what versions the components of a cluster have. It says
// which kubelet this agent is like, as the Node object does.
func buildInfo() prometheus.Collector {
	number := strings.Split(strings.TrimPrefix(kubeVersion, "v"), ".")
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "The kubelet this agent is like, and by what it was built, always 1.",
		ConstLabels: prometheus.Labels{
			"git_version": kubeVersion, "major": number[0], "minor": number[1],
			"go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
		},
	})
	info.Set(1)
	return info
}
