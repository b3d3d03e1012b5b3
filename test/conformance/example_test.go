package conformance_test

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/test/conformance"
)

func ExampleCompare() {
	kubelet := conformance.Entry{Name: "kubelet", Rows: []conformance.Row{
		{Result: conformance.Pass, Seconds: 5, Name: "[sig-node] Pods should be updated [Conformance]"},
	}}
	ours := conformance.Entry{Name: "nodeagent", Rows: []conformance.Row{
		{Result: conformance.Fail, Seconds: 30, Name: "[sig-node] Pods should be updated [Conformance]", Failure: "timed out"},
	}}
	fmt.Print(conformance.Table(kubelet, ours), "\n", conformance.Compare(kubelet, ours))
	// Output:
	// | passed / total | kubelet | nodeagent |
	// |---|---:|---:|
	// | sig-node | 1 / 1 | 0 / 1 |
	// | all | 1 / 1 | 0 / 1 |
	//
	// kubelet passes, nodeagent fails: 1
	//   [sig-node] Pods should be updated [Conformance]
	//     timed out
	// kubelet fails, nodeagent passes: 0
	// both fail: 0
	// kubelet ran, nodeagent did not: 0
}
