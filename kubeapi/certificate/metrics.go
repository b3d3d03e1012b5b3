package certificate

import (
	"crypto/tls"
	"math"
	"time"

	"github.com/kubeletkit/kubeletkit/observe"
)

type metrics struct {
	left     observe.Metric // seconds until the certificate expires; infinite without one
	failures observe.Metric
	lived    observe.Metric // seconds a certificate lived until it was renewed
}

func clientMetrics(in *observe.Instruments) metrics {
	return metrics{
		left:     in.Gauge("kubelet_certificate_manager_client_ttl_seconds", "Seconds until the node's client certificate expires; +Inf without one."),
		failures: in.Counter("kubelet_certificate_manager_client_expiration_renew_errors", "Attempts to get a client certificate that failed."),
		lived:    (&observe.Instruments{}).Histogram("", "", nil), // the kubelet has it for serving certificates alone
	}
}

func servingMetrics(in *observe.Instruments) metrics {
	const hour, day = 3600, 24 * 3600
	return metrics{
		left:     in.Gauge("kubelet_certificate_manager_server_ttl_seconds", "Seconds until the node's serving certificate expires; +Inf without one."),
		failures: in.Counter("kubelet_server_expiration_renew_errors", "Attempts to get a serving certificate that failed."),
		lived: in.Histogram("kubelet_certificate_manager_server_rotation_seconds", "Seconds a serving certificate lived until it was renewed.",
			[]float64{60, hour, 4 * hour, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 4 * 360 * day}),
	}
}

func (m metrics) tell(pair *tls.Certificate) {
	left := math.Inf(1)
	if pair != nil {
		left = math.Trunc(time.Until(pair.Leaf.NotAfter).Seconds())
	}
	m.left.Record(left)
}
