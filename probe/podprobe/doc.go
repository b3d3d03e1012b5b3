// Package podprobe makes a check out of a probe in a pod spec.
//
// You have a *v1.Probe and want to know what the kubelet would find: [Check] works out where it points (named ports of
// the same container, the pod's address as default host, $(VAR) in commands) and returns a [probe.Check] that asks
// once. [Rule] gives its thresholds, [Delay], [Period] and [Timeout] its times, with the API's defaults where the spec
// says nothing.
//
// Making a check does no I/O and keeps nothing; a check may run many times and at the same time with others. The
// caller gives each run a context with the deadline [Timeout]. What the address of the pod is, how a command gets into
// a container and who speaks gRPC is handed in with a [Target]; probes of a kind for which the function is missing
// are reported by [ErrUndecided].
package podprobe
