package bench_test

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/test/bench"
)

func ExampleTable() {
	t := &bench.Table{Title: "A hundred pods"}
	t.Add(bench.Kubelet, "until all are ready", "s", 12.4)
	t.Add(bench.NodeAgent, "until all are ready", "s", 6.2)
	t.Add(bench.Kubelet, "API requests", "a minute", 18)
	t.Miss(bench.NodeAgent, "API requests", "a minute", "there is no API server")
	fmt.Print(t)
	// Output:
	// A hundred pods
	//
	// | | kubelet | nodeagent | nodeagent : kubelet |
	// |---|---:|---:|---:|
	// | until all are ready, s | 12.4 | 6.20 | 0.50 |
	// | API requests, a minute | 18 | — |  |
	//
	// - nodeagent, API requests: there is no API server
}
