// Package runtime is the vocabulary of what runs on a node: pods as they are seen, containers,
// sandboxes, images, and the [Engine] that makes them.
//
// You need it when you write an engine of your own (a container runtime, host processes, micro VMs),
// or a part that looks at what runs: a garbage collector, a metrics exporter, a health checker. The
// package has types, interfaces and errors, and no behaviour; it does not import k8s.io/api, so that
// a backend which has never heard of a PodSpec stays small.
//
// Parts ask for the narrow interfaces ([Lister], [Sandboxes], [Containers], [Execer], [Images]) and
// are handed an Engine, which is all of them together. What only some engines can do ([Notifier],
// [StreamURLs], [LogReopener], [Stats]) is given to the part that uses it by a Config field of that
// part, nil meaning absent; no part finds out by a type assertion.
//
// Values returned by an engine are the caller's to keep but not to change: maps and slices inside
// may be shared.
package runtime
