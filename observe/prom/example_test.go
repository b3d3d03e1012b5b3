package prom_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/observe/prom"
)

func ExampleNew() {
	registry := prometheus.NewRegistry()
	to := observe.To{Metrics: prom.New(registry)}

	// What a part does with it:
	ins := to.Instruments()
	started := ins.Counter("kubelet_started_containers_total", "Containers started.", "container_type")
	if ins.Err != nil {
		fmt.Println(ins.Err)
		return
	}
	started.Record(1, "init_container")
	started.Record(2, "container")

	// What a scrape sees:
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			fmt.Println(f.GetName(), m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
		}
	}
	// Output:
	// kubelet_started_containers_total container 2
	// kubelet_started_containers_total init_container 1
}
