package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTheVersionIsAMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(buildInfo())
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "kubernetes_build_info" {
		t.Fatalf("%v, %v", families, err)
	}
	metric, labels := families[0].GetMetric()[0], map[string]string{}
	for _, l := range metric.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	if metric.GetGauge().GetValue() != 1 || labels["git_version"] != kubeVersion || "v"+labels["major"]+"."+labels["minor"]+"." != kubeVersion[:len("v1.37.")] {
		t.Errorf("%v", metric)
	}
}
