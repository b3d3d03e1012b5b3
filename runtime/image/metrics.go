package image

import (
	"strings"

	"github.com/kubeletkit/kubeletkit/observe"
)

// Values of labels.
const (
	yes     = "true"
	no      = "false"
	unknown = "unknown"
)

type metrics struct{ requests, duration observe.Metric }

func newMetrics(o observe.To) (*metrics, error) {
	in := o.Instruments()
	m := &metrics{
		requests: in.Counter("kubelet_image_manager_ensure_image_requests_total", "Images asked for, for a container.", "pull_policy", "present_locally", "pull_required"),
		duration: in.Histogram("kubelet_image_pull_duration_seconds", "Time from asking for a pull until the image is there, in seconds.",
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}, "image_size_in_bytes"),
	}
	return m, in.Err
}

func (w *wish) count() {
	w.metrics.requests.Record(1, strings.ToLower(string(w.c.ImagePullPolicy)), w.present, w.pulled)
}

// sizeLabel is the kubelet's for images of such a size.
func sizeLabel(bytes int64) string {
	const mega, giga = 1 << 20, 1 << 30
	label := "N/A"
	for _, step := range [...]struct {
		above int64
		label string
	}{
		{0, "0-10MB"},
		{10 * mega, "10MB-100MB"},
		{100 * mega, "100MB-500MB"},
		{500 * mega, "500MB-1GB"},
		{giga, "1GB-5GB"},
		{5 * giga, "5GB-10GB"},
		{10 * giga, "10GB-20GB"},
		{20 * giga, "20GB-30GB"},
		{30 * giga, "30GB-40GB"},
		{40 * giga, "40GB-60GB"},
		{60 * giga, "60GB-100GB"},
		{100 * giga, "GT100GB"},
	} {
		if bytes > step.above {
			label = step.label
		}
	}
	return label
}
