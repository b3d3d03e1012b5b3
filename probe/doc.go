// Package probe asks whether something is healthy: over HTTP, by a TCP connection, or with a command.
//
// Use it when a program must check a server just as a Kubernetes node would, without having a cluster: in a test of a
// readiness endpoint, in a smoke test after a deployment, in an agent of your own. One call is one check:
//
//	result, text, err := probe.HTTP(ctx, probe.HTTPTarget{URL: "http://10.0.0.5:8080/healthz"})
//
// The answers are the kubelet's (v1.37): the same headers, redirects, limits and the same line between failing and
// not being able to ask. [Failure] means that the target was asked and is not healthy, which includes every refused
// connection and every deadline of ctx that passed. An error means that there is no answer worth counting: the request
// made no sense, the body broke off, or the caller cancelled ctx. Texts are for people and at most 10 KiB.
//
// [Rule] turns a row of results into the one that counts, with the thresholds of a Kubernetes probe.
//
// Nothing is kept between two checks: no connection, no goroutine, no state. All functions are safe for concurrent use
// and return soon after ctx ends. When to ask, and how long an answer may take (the deadline of ctx), is left to the
// caller. Only the standard library is imported; checks over gRPC are in probe/grpcprobe, and probe/podprobe makes a
// [Check] of a probe in a pod spec.
package probe
