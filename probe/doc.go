// Package probe asks whether something is healthy: over HTTP, by a TCP connection, or with a command.
//
// Use it when a program must check a server just as a Kubernetes node would, without having a cluster: in a test of a
// readiness endpoint, in a smoke test after a deployment, in an agent of your own. One call is one check:
//
//	ctx, cancel := context.WithTimeout(ctx, time.Second)
//	defer cancel()
//	result, text, err := probe.HTTP(ctx, probe.HTTPTarget{URL: "http://10.0.0.5:8080/healthz"})
//	if err == nil && !result.OK() {
//		log.Print("not healthy: ", text)
//	}
//
// # Rules
//
// The answers are the kubelet's (v1.37): the same headers, redirects, limits and the same line between failing and
// not being able to ask.
//
//   - [Failure] means that the target was asked and is not healthy, which includes every refused connection, every answer
//     that breaks off and every deadline of ctx that passed.
//   - [Warning] counts as healthy and should be looked at: a redirect that was not followed.
//   - An error means that there is no answer worth counting: the request made no sense, or the caller cancelled ctx.
//   - HTTP follows redirects within one host name, up to nine, whatever port and scheme; the last answer decides. One that
//     cannot be followed is a failure, whose text says where it led. One deadline covers all requests of a check.
//   - Certificates of servers are not verified, no proxy is used, and no connection is used twice.
//   - A command is healthy when it exits with 0 in time.
//   - Texts are for people, begin as the kubelet's do, and are at most 10 KiB, whatever a target sends; the body of an
//     answer that says "not healthy" is never in one. A failure that comes again has the same text.
//
// [Rule] turns a row of results into the one that counts, with the thresholds of a Kubernetes probe.
//
// # What it costs
//
// Nothing is kept between two checks: no connection, no goroutine, no state. All functions are safe for concurrent use
// and return soon after ctx ends. A check is a new connection, which is most of its price: a few hundred microseconds of
// one core for TCP and for HTTP, a little less when checks share a [Client]. Like the kubelet's, connections are closed
// in the normal way, so that the port of one is taken for a minute more; ports are counted for each target address alone.
//
// # What it leaves to you
//
// When to ask, and how long an answer may take (the deadline of ctx). Only the standard library is imported. Checks over
// gRPC are in probe/grpcprobe, probe/podprobe makes a [Check] of a probe in a pod spec, and probe/manager runs those of
// a whole node. In examples/probetest a web service tests its health endpoints with this package.
package probe
