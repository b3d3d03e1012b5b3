// Package podruntime makes whole pods real over an engine that knows only sandboxes, containers and images.
//
// A container runtime starts a container when told to. Somebody has to know that init containers come first and one by
// one, that a container which crashes waits longer each time, that a sidecar is stopped last, where the log file lies and
// what stands in the environment. [Runtime] does, for any runtime.Engine: it asks runtime/plan what a pod needs, carries
// that out, and reads everything back from the engine, so that it may be killed at any instant and the next one goes on.
//
// Sync, Stop and Remove must not overlap for one pod; for different pods all methods are safe for concurrent use. They
// return soon after their context ends, and may be repeated. What keeps a container from running stands in
// runtime.Pod.Waiting as soon as it is known, and Config.Changed is called. A container that lacks a ConfigMap, a Secret or
// a key of one is tried again as soon as that object changes; nothing is followed longer than a container waits for it.
//
// Names, labels, annotations, log files and directories are laid out as the kubelet does, so that crictl and log shippers
// need no change. [Runtime] is a syncloop.Runtime, but needs no loop: a program may call it directly.
package podruntime
