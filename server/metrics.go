package server

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/observe"
)

// metrics of requests, under the kubelet's names.
type metrics struct {
	requests, duration, inflight observe.Metric
	paths                        map[string]bool // what may be a value of the label path
	server                       string          // the value of the label server_type

	mu  sync.Mutex // guards now, and the order of its values
	now map[[4]string]int
}

func newMetrics(o observe.To, routes map[string]route, readOnly bool) (*metrics, error) {
	in := o.Instruments()
	labels := []string{"method", "path", "server_type", "long_running"}
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	m := &metrics{
		requests: in.Counter("kubelet_http_requests_total", "Requests since the server started.", labels...),
		duration: in.Histogram("kubelet_http_requests_duration_seconds", "How long requests took.", buckets, labels...),
		inflight: in.Gauge("kubelet_http_inflight_requests", "Requests under way.", labels...),
		paths:    map[string]bool{bucket(openPath): true},
		server:   "readwrite",
		now:      map[[4]string]int{},
	}
	if readOnly {
		m.server = "readonly"
	}
	for pattern := range routes {
		m.paths[bucket(pattern)] = true
	}
	return m, in.Err
}

// begin counts a request in; the function it returns counts it out.
func (m *metrics) begin(r *http.Request) func() {
	l := m.labels(r)
	start := time.Now()
	m.requests.Record(1, l[:]...)
	m.under(l, 1)
	return func() {
		m.under(l, -1)
		m.duration.Record(time.Since(start).Seconds(), l[:]...)
	}
}

func (m *metrics) under(l [4]string, change int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now[l] += change
	m.inflight.Record(float64(m.now[l]), l[:]...)
}

// labels have few values, whatever is asked for.
func (m *metrics) labels(r *http.Request) [4]string {
	method, path := r.Method, bucket(r.URL.Path)
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
	default:
		method = "other"
	}
	if !m.paths[path] {
		path = "other"
	}
	long := path == "exec" || path == "attach" || path == "debug" // portForward is none, as dashboards know it
	return [4]string{method, path, m.server, strconv.FormatBool(long)}
}

// bucket is the first part of a path, of /metrics/x both.
func bucket(path string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	if parts[0] == "metrics" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}
