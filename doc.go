// Package kubeletkit is a Kubernetes kubelet taken apart: each part of one is a package here that a
// program can import alone. This package itself is empty; it is the map.
//
// What a node does with pods:
//
//   - syncloop: keeps wanted pods and running pods the same, one worker a pod
//   - syncloop/agent: that loop, an engine, and all that belongs between them, joined: an agent of your own in one value
//   - staticpod: pods from a directory of YAML files
//   - status: what to report of a pod, computed and then sent
//   - probe: HTTP, TCP and command checks, with nothing but the standard library; probe/podprobe makes
//     them from a pod's spec, probe/manager keeps them going
//   - server: the kubelet's HTTP API as a handler
//
// What it does that with:
//
//   - runtime: the words for pods, sandboxes, containers and images, and the Engine that makes them
//   - runtime/plan: from a spec and what is seen to the next steps, as a pure function
//   - runtime/podruntime: makes pods real with any engine
//   - runtime/image: brings images by policy and holds them until they are used
//   - runtime/logs: reads and follows the log files of containers
//   - runtime/cri: the engine for containerd and CRI-O
//   - runtime/runtimetest: an engine in memory, and the suite every engine must pass
//   - pleg: tells which pods changed
//   - network: a pod's hosts and resolv.conf files
//   - observe: logger, events, steps and metrics as one small value; observe/prom shows metrics to Prometheus
//
// The order to read them in is docs/design.md, and examples/nodeagent puts all of them together. Which
// package may import which other one is held by a test in this directory.
package kubeletkit
