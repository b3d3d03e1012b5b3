package status

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
)

type metrics struct {
	duration   observe.Metric // seconds from the first change to its delivery
	terminated observe.Metric
}

func newMetrics(in *observe.Instruments) metrics {
	return metrics{
		duration: in.Histogram("kubelet_pod_status_sync_duration_seconds",
			"Seconds from a change of a pod's status until it was delivered, changes in between included.",
			[]float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60}),
		terminated: in.Counter("kubelet_terminated_containers_total",
			"Containers that ended.", "container_type", "exit_code", "reason"),
	}
}

// ends counts the containers that ended between two statuses of a pod.
func (m *metrics) ends(from, to *v1.PodStatus) {
	m.endsOf("init_container", from.InitContainerStatuses, to.InitContainerStatuses)
	m.endsOf("container", from.ContainerStatuses, to.ContainerStatuses)
	m.endsOf("ephemeral_container", from.EphemeralContainerStatuses, to.EphemeralContainerStatuses)
}

func (m *metrics) endsOf(kind string, from, to []v1.ContainerStatus) {
	for i := range to {
		end := to[i].State.Terminated
		if end != nil && find(from, to[i].Name).State.Terminated == nil {
			m.terminated.Record(1, kind, strconv.Itoa(int(end.ExitCode)), end.Reason)
		}
	}
}
