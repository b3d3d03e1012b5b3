// Package cri is the engine for container runtimes that speak the Container Runtime Interface, version 1:
// containerd and CRI-O.
//
// [Dial] opens the runtime's socket, [New] makes the [Engine] over it:
//
//	conn, err := cri.Dial("unix:///run/containerd/containerd.sock")
//	engine, err := cri.New(cri.Config{Runtime: conn})
//
// The engine translates and keeps nothing a restart could lose. Identity is what the kubelet writes:
// the labels io.kubernetes.pod.* and io.kubernetes.container.name, set over the labels that were given,
// and the attempt in the metadata, so crictl and log shippers find what they know.
//
// Every call has a deadline of its own besides that of its ctx, so that a runtime which hangs cannot hold
// a caller for ever. Errors read as "run sandbox default/web: " and what the runtime said (of a pull they
// are what the runtime said, alone) and answer errors.Is for runtime.ErrNotFound, runtime.ErrUnavailable
// (nobody listens), errors.ErrUnsupported (an older runtime), context.DeadlineExceeded and
// context.Canceled; status.FromError of the gRPC library finds the rest.
//
// A runtime that was restarted is found again within a second or so; calls meanwhile fail at once
// with runtime.ErrUnavailable. The connection is the caller's to close.
//
// The engine also is a runtime.Notifier, runtime.StreamURLs, runtime.LogReopener and runtime.Stats.
package cri
