// Package grpcprobe asks whether a gRPC server is healthy, by the standard health service (grpc.health.v1.Health).
//
// Use it when a program must check a gRPC server just as a Kubernetes node would:
//
//	ctx, cancel := context.WithTimeout(ctx, time.Second)
//	defer cancel()
//	result, text, err := grpcprobe.Check(ctx, "10.0.0.5:9000", "")
//
// Everything package probe promises holds here too: one call is one check on a connection of its own, nothing is kept,
// [probe.Failure] means that the server was asked and is not healthy, and an error is no answer. The function may be
// handed to probe/podprobe and probe/manager, which do not import gRPC themselves. It is safe for concurrent use. What
// it costs is that of a gRPC client: many times a check over TCP.
package grpcprobe
