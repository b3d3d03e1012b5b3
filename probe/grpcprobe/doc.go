// Package grpcprobe asks whether a gRPC server is healthy, by the standard health service (grpc.health.v1.Health).
//
// Use it when a program must check a gRPC server just as a Kubernetes node would:
//
//	ctx, cancel := context.WithTimeout(ctx, time.Second)
//	defer cancel()
//	result, text, err := grpcprobe.Check(ctx, "10.0.0.5:9000", "")
//	if err == nil && !result.OK() {
//		log.Print("not healthy: ", text)
//	}
//
// # Rules
//
// Everything package probe promises holds here too: one call is one check on a connection of its own, nothing is kept,
// [probe.Failure] means that the server was asked and is not healthy, and an error is no answer.
//
//   - SERVING is [probe.Success]. Every other status is a failure, and so are a service the server does not know and a
//     server without the health service.
//   - The empty service name asks for the server as a whole.
//   - Connections are in plain text and go through no proxy. A server that speaks TLS only is not healthy.
//   - A server that does not listen yet is tried again until the deadline of ctx.
//
// # What it costs
//
// What a gRPC client costs: some four times a check over HTTP, in time as in memory while it runs. BenchmarkScale of
// probe/manager measures it.
//
// # What it leaves to you
//
// When to ask, and the deadline. The function may be handed to probe/podprobe and probe/manager, which do not import gRPC
// themselves; this package does, and package probe. It is safe for concurrent use.
package grpcprobe
