package stats

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ResourceMetrics answers with the figures of a summary as /metrics/resource has them: CPU, memory and swap of the node, its
// pods and their containers, in Prometheus' text format with the time of each sample.
func (c *Collector) ResourceMetrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := c.Summary(r.Context(), false)
		if err != nil {
			c.log.Warn("there are no figures for /metrics/resource", "err", err)
			s = &stats.Summary{}
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write([]byte(exposition(s, err != nil))) // who went away does not need it
	})
}

// exposition writes a summary as metrics.
func exposition(s *stats.Summary, failed bool) string {
	var m families
	m.cpu("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", s.Node.CPU, nil)
	m.memory("node_memory_working_set_bytes", "Current working set of the node in bytes", s.Node.Memory, nil)
	if swap := s.Node.Swap; swap != nil {
		m.sample("node_swap_usage_bytes", "Current swap usage of the node in bytes", gauge, nil, swap.SwapUsageBytes, 1, swap.Time)
	}
	for _, p := range oneOfEachName(s.Pods) {
		labels := []string{"namespace", p.PodRef.Namespace, "pod", p.PodRef.Name}
		for j := range p.Containers {
			m.container(&p.Containers[j], append([]string{"container", p.Containers[j].Name}, labels...))
		}
		m.cpu("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", p.CPU, labels)
		m.memory("pod_memory_working_set_bytes", "Current working set of the pod in bytes", p.Memory, labels)
		if p.Swap != nil {
			m.sample("pod_swap_usage_bytes", "Current amount of the pod swap usage in bytes", gauge, labels, p.Swap.SwapUsageBytes, 1, p.Swap.Time)
		}
	}
	bad := uint64(0)
	if failed {
		bad = 1
	}
	m.sample("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", gauge, nil, &bad, 1, metav1.Time{})
	return m.String()
}

// oneOfEachName leaves out pods that still end beside a later one of their name: whoever scrapes takes no two samples that are
// called the same.
func oneOfEachName(all []stats.PodStats) (out []*stats.PodStats) {
	at := map[string]int{} // in out
	for i := range all {
		p := &all[i]
		key := p.PodRef.Namespace + "/" + p.PodRef.Name
		other, twice := at[key]
		switch {
		case !twice:
			at[key] = len(out)
			out = append(out, p)
		case out[other].StartTime.Before(&p.StartTime):
			out[other] = p
		}
	}
	return out
}

type metricType string

const (
	gauge   metricType = "gauge"
	counter metricType = "counter"
)

// families are metrics, in the order in which they came first; samples of one stand together.
type families struct {
	order []string
	text  map[string]*strings.Builder
}

func (m *families) container(c *stats.ContainerStats, labels []string) {
	m.cpu("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", c.CPU, labels)
	m.memory("container_memory_working_set_bytes", "Current working set of the container in bytes", c.Memory, labels)
	if swap := c.Swap; swap != nil {
		m.sample("container_swap_usage_bytes", "Current amount of the container swap usage in bytes", gauge, labels, swap.SwapUsageBytes, 1, swap.Time)
		if swap.SwapUsageBytes != nil && swap.SwapAvailableBytes != nil {
			limit := *swap.SwapUsageBytes + *swap.SwapAvailableBytes
			m.sample("container_swap_limit_bytes", "Current amount of the container swap limit in bytes", gauge, labels, &limit, 1, swap.Time)
		}
	}
	if c.StartTime.Unix() > 0 {
		nanos := uint64(c.StartTime.UnixNano())
		m.sample("container_start_time_seconds", "Start time of the container since unix epoch in seconds", gauge, labels, &nanos, 1e9, metav1.Time{})
	}
}

func (m *families) cpu(name, help string, c *stats.CPUStats, labels []string) {
	if c != nil {
		m.sample(name, help, counter, labels, c.UsageCoreNanoSeconds, 1e9, c.Time)
	}
}

func (m *families) memory(name, help string, s *stats.MemoryStats, labels []string) {
	if s != nil {
		m.sample(name, help, gauge, labels, s.WorkingSetBytes, 1, s.Time)
	}
}

// sample adds a value, which is divided; one that is not known is left out. labels are names and values.
func (m *families) sample(name, help string, kind metricType, labels []string, value *uint64, by float64, at metav1.Time) {
	if value == nil {
		return
	}
	b := m.text[name]
	if b == nil {
		if m.text == nil {
			m.text = map[string]*strings.Builder{}
		}
		b = new(strings.Builder)
		m.order, m.text[name] = append(m.order, name), b
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		fmt.Fprintf(b, `%c%s="%s"`, sep, labels[i], escaped(labels[i+1]))
	}
	if len(labels) > 0 {
		b.WriteByte('}')
	}
	fmt.Fprintf(b, " %v", float64(*value)/by)
	if !at.IsZero() {
		fmt.Fprintf(b, " %d", at.UnixMilli())
	}
	b.WriteByte('\n')
}

// escaped is a value as it is written between quotes, in which other escapes are errors, for the whole of what is scraped. A pod may
// call its interfaces whatever it likes.
func escaped(value string) string {
	if utf8.ValidString(value) && !strings.ContainsAny(value, "\\\"\n") {
		return value
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(value, "\uFFFD"))
}

func (m *families) String() string {
	var all strings.Builder
	for _, name := range m.order {
		all.WriteString(m.text[name].String())
	}
	return all.String()
}
