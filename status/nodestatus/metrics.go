package nodestatus

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
)

type metrics struct {
	name         observe.Metric
	registration observe.Metric
	firstReady   observe.Metric
}

func newMetrics(in *observe.Instruments) metrics {
	return metrics{
		name: in.Gauge("kubelet_node_name", "The name of this node, always 1.", "node"),
		registration: in.Gauge("kubelet_node_startup_registration_duration_seconds",
			"Seconds from the first attempt to register a new node until it was registered."),
		firstReady: in.Gauge("kubelet_node_startup_post_registration_duration_seconds",
			"Seconds from the registration of a new node until it was ready first."),
	}
}

// ready notes when a new node becomes ready for the first time.
func (m *metrics) ready(created time.Time, node *v1.Node) {
	if created.IsZero() || m.firstReady == nil || !isReady(node) {
		return
	}
	m.firstReady.Record(time.Since(created).Seconds())
	m.firstReady = nil
}
