package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// summary answers with what is used of the node and its pods. The query may ask for CPU and memory only.
func (h *handler) summary(w http.ResponseWriter, r *http.Request) error {
	if h.cfg.Summary == nil {
		return fmt.Errorf("summary of figures: %w", errors.ErrUnsupported)
	}
	only := false
	if text := r.FormValue("only_cpu_and_memory"); text != "" {
		var err error
		if only, err = strconv.ParseBool(text); err != nil {
			return fail(http.StatusBadRequest, "only_cpu_and_memory=%s must be true or false", text)
		}
	}
	s, err := h.cfg.Summary(r.Context(), only)
	if err != nil {
		return err
	}
	if only {
		s = cpuAndMemory(s)
	}
	return writeJSON(w, s)
}

// cpuAndMemory is a summary without the rest. Swap is memory.
func cpuAndMemory(s *stats.Summary) *stats.Summary {
	out := &stats.Summary{Node: stats.NodeStats{NodeName: s.Node.NodeName, StartTime: s.Node.StartTime, CPU: s.Node.CPU, Memory: s.Node.Memory, Swap: s.Node.Swap}}
	for _, c := range s.Node.SystemContainers {
		out.Node.SystemContainers = append(out.Node.SystemContainers, containerPart(c))
	}
	for _, p := range s.Pods {
		part := stats.PodStats{PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory, Swap: p.Swap}
		for _, c := range p.Containers {
			part.Containers = append(part.Containers, containerPart(c))
		}
		out.Pods = append(out.Pods, part)
	}
	return out
}

func containerPart(c stats.ContainerStats) stats.ContainerStats {
	return stats.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, Swap: c.Swap}
}
