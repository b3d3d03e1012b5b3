// Package kubeletkit is a Kubernetes kubelet taken apart: each part of one is a package here that a
// program can import alone. This package itself is empty; it is the map.
//
// What a node does with pods:
//
//   - syncloop: keeps wanted pods and running pods the same, one worker a pod; syncloop/admit has the standard
//     refusals, syncloop/offline remembers pods for a start without their source
//   - syncloop/agent: that loop, an engine, and all that belongs between them, joined: an agent of your own in one value
//   - staticpod: pods from a directory of YAML files, or an address
//   - kubeapi: pods, statuses, the node and objects of an API server; kubeapi/access says who may use the node's API,
//     kubeapi/certificate has certificates renewed
//   - status: what to report of a pod, computed and then sent; status/nodestatus the same of the node
//   - probe: HTTP, TCP and command checks, with nothing but the standard library; probe/podprobe makes
//     them from a pod's spec, probe/grpcprobe adds gRPC, probe/manager keeps them going
//   - eviction: ends pods before memory, disks or process ids run out; eviction/shutdown before the machine goes down
//   - imagegc: removes images, dead containers and sandboxes that nobody needs, or says which these are
//   - stats: what a machine has and what is used of it
//   - server: the kubelet's HTTP API as a handler; server/stream passes exec, attach and port-forward on
//
// What it does that with:
//
//   - runtime: the words for pods, sandboxes, containers and images, and the Engine that makes them
//   - runtime/plan: from a spec and what is seen to the next steps, as a pure function
//   - runtime/podruntime: makes pods real with any engine
//   - runtime/image: brings images by policy and holds them until they are used; runtime/image/keyring has credentials
//   - runtime/logs: reads, follows and rotates the log files of containers
//   - runtime/cri: the engine for containerd and CRI-O
//   - runtime/process: the engine for processes of this host
//   - runtime/runtimetest: an engine in memory, and the suite every engine must pass
//   - pleg: tells which pods changed
//   - resource/cgroup: a cgroup for each pod, above its containers
//   - volume: a pod's volumes, put in place and kept up to date
//   - network: a pod's hosts and resolv.conf files
//   - observe: logger, events, steps and metrics as one small value; observe/prom shows metrics to Prometheus
//
// The order to read them in is docs/design.md, and examples/nodeagent puts all of them together. Which
// package may import which other one is held by a test in this directory.
package kubeletkit
