package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/stats"
)

func TestLogSizesAreScraped(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ns_web_u1", "app", "0.log")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	pods := []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"}}}
	figures, err := stats.New(stats.Config{RootDir: dir, LogRoot: dir, Pods: func() []*v1.Pod { return pods }})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newLogSizes(figures))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- figures.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); ; {
		all, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 {
			m := all[0].GetMetric()[0]
			if all[0].GetName() != "kubelet_container_log_filesystem_used_bytes" || m.GetGauge().GetValue() < 100<<10 || len(m.GetLabel()) != 4 {
				t.Error(all)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is scraped")
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
