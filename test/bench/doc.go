// Package bench measures node agents side by side: upstream's kubelet and examples/nodeagent, in alternation on one
// machine, in one run. Only what was measured in the same run can be compared; so every table has the ratio of both.
//
// [Fakes] puts each agent on a runtime in memory ([criserver], in a process of its own), where hundreds of pods cost
// nothing but the agent's work: time until all are ready, steady state, pods that come and go, an agent that starts again.
// [Node] puts them on a real cluster with containerd. Beside them stand a bare agent, which watches, makes the calls of the
// runtime as both do and writes one status, and the floor: what the runtime and the API server alone need for the same pods.
//
// The results are [Table]s: every value of every round, medians, the ratio, and for a figure that an agent does not
// have, why. Both functions block until they are done and leave nothing running.
//
// [criserver]: https://pkg.go.dev/github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver
package bench
