package stats

import (
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ContainerMetrics answers with the figures of a summary under the names and labels by which monitoring knows them from
// /metrics/cadvisor: CPU, memory, swap, pressure, network, root file systems and threads of the node, its pods and their
// containers, and of containers with a limit of CPU time how that slows them down. A row without a container is that of its pod, one without a pod that of the node.
func (c *Collector) ContainerMetrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := c.Summary(r.Context(), false)
		if err != nil {
			c.log.Warn("there are no figures for /metrics/cadvisor", "err", err)
			s = &stats.Summary{}
		}
		m, _ := c.Machine() // what is not known is left out
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write([]byte(c.containerExposition(s, m, err != nil))) // who went away does not need it
	})
}

// row names what a sample is about, as cAdvisor does.
type row struct{ container, id, image, name, namespace, pod string }

// with has more labels, names and values, behind the others.
func (r row) with(more ...string) []string {
	return append([]string{
		"container", r.container, "id", r.id, "image", r.image, "name", r.name, "namespace", r.namespace, "pod", r.pod,
	}, more...)
}

func (c *Collector) containerExposition(s *stats.Summary, m Machine, failed bool) string {
	known := map[types.UID]*v1.Pod{}
	if c.cfg.Pods != nil {
		for _, p := range c.cfg.Pods() {
			known[p.UID] = p
		}
	}
	var f families
	g := newGroups(c.cfg.Root, c.host)
	node := row{id: "/"}
	f.use(node, s.Node.CPU, s.Node.Memory, s.Node.Swap, s.Node.IO)
	f.network(node, s.Node.Network)
	for _, p := range oneOfEachName(s.Pods) {
		if pod := known[types.UID(p.PodRef.UID)]; pod != nil {
			f.pod(p, pod, c.groupOf(pod), g)
		}
	}
	machine := func(name, help string, n int64) {
		if n > 0 {
			f.sample(name, help, gauge, nil, bytes(n), 1, metav1.Time{})
		}
	}
	machine("machine_cpu_cores", "Number of logical CPU cores.", int64(m.Cores))
	machine("machine_memory_bytes", "Amount of memory installed on the machine.", m.Memory)
	machine("machine_swap_bytes", "Amount of swap memory available on the machine.", m.Swap)
	bad := bytes(0)
	if failed {
		bad = bytes(1)
	}
	f.sample("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", gauge, nil, bad, 1, metav1.Time{})
	return f.String()
}

// groupOf is the cgroup of a pod with a slash before it, which is all for a pod without one.
func (c *Collector) groupOf(pod *v1.Pod) string {
	if c.cfg.Cgroup == nil {
		return "/"
	}
	return "/" + strings.Trim(c.cfg.Cgroup(pod), "/")
}

// pod has the rows of a pod and its containers.
func (f *families) pod(p *stats.PodStats, pod *v1.Pod, group string, g *groups) {
	own := row{id: group, namespace: p.PodRef.Namespace, pod: p.PodRef.Name}
	f.use(own, p.CPU, p.Memory, p.Swap, p.IO)
	f.network(own, p.Network)
	if p.ProcessStats != nil {
		f.sample("container_threads", "Number of threads running inside the container", gauge, own.with(), p.ProcessStats.ProcessCount, 1, metav1.Time{})
	}
	statuses := containers(&pod.Status)
	for i := range p.Containers {
		c := &p.Containers[i]
		one := own
		one.container = c.Name
		for _, s := range statuses {
			if _, id, ok := strings.Cut(s.ContainerID, "://"); ok && s.Name == c.Name {
				one.name, one.image, one.id = id, s.Image, strings.TrimSuffix(group, "/")+"/"+id
			}
		}
		f.use(one, c.CPU, c.Memory, c.Swap, c.IO)
		if limitedCPU(pod, c.Name) {
			f.throttling(one, strings.TrimPrefix(group, "/"), g)
		}
		if c.Rootfs != nil {
			f.sample("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", gauge,
				one.with("device", ""), c.Rootfs.UsedBytes, 1, c.Rootfs.Time)
		}
		if c.StartTime.Unix() > 0 {
			f.sample("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", gauge, one.with(), bytes(c.StartTime.Unix()), 1, metav1.Time{})
		}
		f.sample("container_last_seen", "Last time a container was seen by the exporter", gauge, one.with(), bytes(time.Now().Unix()), 1, metav1.Time{})
	}
}

// limitedCPU says that a container may use only so much CPU time.
func limitedCPU(pod *v1.Pod, name string) bool {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if c.Name == name {
			return !c.Resources.Limits.Cpu().IsZero()
		}
	}
	return false
}

// throttling is how a limit slows a container down.
func (f *families) throttling(r row, group string, g *groups) {
	own, _, ok := g.container(group, r.name)
	if !ok || group == "" {
		return
	}
	t, ok := g.throttled(own)
	if !ok {
		return
	}
	f.sample("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", counter, r.with(), bytes(t.periods), 1, metav1.Time{})
	f.sample("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", counter, r.with(), bytes(t.waited), 1, metav1.Time{})
	f.sample("container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.", counter, r.with(), bytes(t.nanos), 1e9, metav1.Time{})
}

// use is what something uses; what is not known is left out.
func (f *families) use(r row, c *stats.CPUStats, m *stats.MemoryStats, swap *stats.SwapStats, io *stats.IOStats) {
	if c != nil {
		f.sample("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", counter, r.with("cpu", "total"), c.UsageCoreNanoSeconds, 1e9, c.Time)
		f.pressure(r, "cpu", c.PSI, c.Time)
	}
	if m != nil {
		f.sample("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", gauge, r.with(), m.UsageBytes, 1, m.Time)
		f.sample("container_memory_working_set_bytes", "Current working set in bytes.", gauge, r.with(), m.WorkingSetBytes, 1, m.Time)
		f.sample("container_memory_rss", "Size of RSS in bytes.", gauge, r.with(), m.RSSBytes, 1, m.Time)
		const failures, help = "container_memory_failures_total", "Cumulative count of memory allocation failures."
		f.sample(failures, help, counter, r.with("failure_type", "pgfault", "scope", "hierarchy"), m.PageFaults, 1, m.Time)
		f.sample(failures, help, counter, r.with("failure_type", "pgmajfault", "scope", "hierarchy"), m.MajorPageFaults, 1, m.Time)
		f.pressure(r, "memory", m.PSI, m.Time)
	}
	if swap != nil {
		f.sample("container_memory_swap", "Container swap usage in bytes.", gauge, r.with(), swap.SwapUsageBytes, 1, swap.Time)
	}
	if io != nil {
		f.pressure(r, "io", io.PSI, io.Time)
	}
}

// pressure is how long some or all waited for something.
func (f *families) pressure(r row, of string, p *stats.PSIStats, at metav1.Time) {
	if p == nil {
		return
	}
	f.sample("container_pressure_"+of+"_waiting_seconds_total", "Total time duration tasks in the container have waited due to "+of+" congestion.",
		counter, r.with(), &p.Some.Total, 1e9, at)
	f.sample("container_pressure_"+of+"_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to "+of+" congestion.",
		counter, r.with(), &p.Full.Total, 1e9, at)
}

// network is what went through each interface.
func (f *families) network(r row, n *stats.NetworkStats) {
	if n == nil {
		return
	}
	for i := range n.Interfaces {
		one := &n.Interfaces[i]
		for _, figure := range []struct {
			name, help string
			n          *uint64
		}{
			{"receive_bytes", "Cumulative count of bytes received", one.RxBytes},
			{"receive_errors", "Cumulative count of errors encountered while receiving", one.RxErrors},
			{"transmit_bytes", "Cumulative count of bytes transmitted", one.TxBytes},
			{"transmit_errors", "Cumulative count of errors encountered while transmitting", one.TxErrors},
		} {
			f.sample("container_network_"+figure.name+"_total", figure.help, counter, r.with("interface", one.Name), figure.n, 1, n.Time)
		}
	}
}
