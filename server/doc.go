// Package server is the kubelet's HTTP API: what kubectl logs, kubectl exec, monitoring and an API server ask a
// node for.
//
// [New] makes an http.Handler of the parts it is given; the caller owns listener, TLS and shutdown. A part that is
// nil makes its paths answer 501. The paths:
//
//	/healthz, /healthz/{check}                      ok, or which checks fail (verbose, exclude)
//	/pods                                           v1.PodList of all wanted pods
//	/runningpods/                                   v1.PodList of what the runtime runs
//	/containerLogs/{namespace}/{pod}/{container}    log of a container (tailLines, follow, previous, ...)
//	/exec/{namespace}/{pod}[/{uid}]/{container}     a command in a container; an upgrade to SPDY or WebSocket
//	/attach/{namespace}/{pod}[/{uid}]/{container}   the same for what runs there already
//	/portForward/{namespace}/{pod}[/{uid}]          connections to ports of a pod
//	/metrics and others                             Config.Metrics
//	/configz                                        Config.Configz
//	/logs/                                          Config.HostLogs
//	/debug/pods                                     what happened to each pod (format=json for programs)
//	/debug/gc                                       Config.Garbage; with POST, which needs the verb create, it is removed
//
// There is never an open door. [Access] first finds out who asks (or the answer is 401) and then whether that user may (or
// it is 403), before the path is even looked up; without an Access only /healthz answers, whoever asks.
// The question is the kubelet's: a verb that follows the HTTP method, on resource "nodes" and a subresource that
// follows the path. Unlike the kubelet, exec, attach and port-forward always need the verb create: a WebSocket is
// opened with GET, and a right to read must not be a shell. [AdminAccess] is the Access of a node without a cluster.
//
// It leaves to the caller: limits of the http.Server. A followed log and a session last as long as their request, so a
// write timeout cuts them; they end when the request's context does, which a BaseContext can bring about.
package server
