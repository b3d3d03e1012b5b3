package offline

import "github.com/kubeletkit/kubeletkit/observe"

type metrics struct{ answers, damaged observe.Metric }

func newMetrics(o observe.To) (metrics, error) {
	i := o.Instruments()
	m := metrics{
		answers: i.Counter("kubeletkit_offline_answers_total", "Objects that were answered from the disk, as nobody else answered.", "kind"),
		damaged: i.Counter("kubeletkit_offline_damaged_files_total", "Files of remembered objects that were set aside."),
	}
	return m, i.Err
}
