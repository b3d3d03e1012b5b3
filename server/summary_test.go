package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/server"
)

func TestSummary(t *testing.T) {
	var asked []bool
	n, size := uint64(7), uint64(9)
	figures := &stats.Summary{
		Node: stats.NodeStats{NodeName: "n1", CPU: &stats.CPUStats{UsageNanoCores: &n}, Swap: &stats.SwapStats{}, Fs: &stats.FsStats{CapacityBytes: &size}},
		Pods: []stats.PodStats{{
			PodRef: stats.PodReference{Name: "web"}, Swap: &stats.SwapStats{}, Network: &stats.NetworkStats{},
			Containers: []stats.ContainerStats{{Name: "app", CPU: &stats.CPUStats{UsageNanoCores: &n}, Swap: &stats.SwapStats{}, Rootfs: &stats.FsStats{}}},
		}},
	}
	h := node(t, func(c *server.Config) {
		c.Summary = func(_ context.Context, fresh bool) (*stats.Summary, error) {
			asked = append(asked, fresh)
			return figures, nil
		}
	})
	for _, tt := range []struct {
		path   string
		fs     bool
		answer int
	}{
		{"/stats/summary", true, 200},
		{"/stats/summary?only_cpu_and_memory=true", false, 200},
		{"/stats/summary?only_cpu_and_memory=maybe", false, 400},
		{"/stats/summary/?only_cpu_and_memory=true", false, 200}, // as old metrics servers ask
	} {
		w := get(h, tt.path)
		if w.Code != tt.answer {
			t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
			continue
		}
		var s stats.Summary
		if err := json.Unmarshal(w.Body.Bytes(), &s); w.Code == 200 && err != nil {
			t.Fatal(err)
		}
		if w.Code == 200 && (s.Node.Swap == nil || s.Pods[0].Swap == nil || s.Pods[0].Containers[0].Swap == nil) {
			t.Errorf("%s: there is no swap: %s", tt.path, w.Body)
		}
		if w.Code == 200 && (s.Node.NodeName != "n1" || (s.Node.Fs != nil) != tt.fs || (s.Pods[0].Network != nil) != tt.fs || (s.Pods[0].Containers[0].Rootfs != nil) != tt.fs ||
			*s.Pods[0].Containers[0].CPU.UsageNanoCores != 7) {
			t.Errorf("%s: %s", tt.path, w.Body)
		}
	}
	if !slices.Equal(asked, []bool{false, true, true}) {
		t.Errorf("fresh was asked for %v", asked)
	}
	if w := get(node(t, nil), "/stats/summary"); w.Code != 501 {
		t.Errorf("without figures: %d", w.Code)
	}
	failing := node(t, func(c *server.Config) {
		c.Summary = func(context.Context, bool) (*stats.Summary, error) { return nil, errors.New("broken") }
	})
	if w := get(failing, "/stats/summary"); w.Code != 500 {
		t.Errorf("broken: %d %s", w.Code, w.Body)
	}
}
