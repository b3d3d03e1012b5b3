// Package podprobe makes a check out of a probe in a pod spec.
//
// You have a *v1.Probe and want to know what the kubelet would find: a test of a manifest against a program that runs
// here, a tool that says why a pod is not ready, an agent of your own.
//
//	check, err := podprobe.Check(container.ReadinessProbe, podprobe.Target{Container: container, IP: "10.0.0.5"})
//	if err != nil {
//		return err
//	}
//	ctx, cancel := context.WithTimeout(ctx, podprobe.Timeout(container.ReadinessProbe))
//	defer cancel()
//	result, text, err := check(ctx)
//
// # Rules
//
// The rules are the kubelet's (v1.37).
//
//   - A probe that names no host asks the pod's address; an address of IPv6 is bracketed. Without any address there is an
//     error: this machine is not the pod.
//   - A port by name is one of the same container. A port that does not exist, or is out of range, is an error.
//   - A path that is no URL is taken as it is. Headers are all sent, also two of one name.
//   - $(VAR) in a command is replaced by what the container's environment says literally, and by nothing where the value
//     comes from elsewhere; $$ is a $.
//   - [Rule] gives the thresholds, [Delay], [Period] and [Timeout] the times, with the API's defaults where the spec says
//     nothing.
//
// How a command gets into a container, and who speaks gRPC, is handed in with a [Target]. Probes of a kind for which the
// function is missing are [ErrUndecided]: neither healthy nor unhealthy will ever be known.
//
// # What it costs
//
// Making a check does no I/O, takes a few microseconds and keeps nothing; a check may run many times, and at the same time
// with others. A run costs what package probe says.
//
// # What it leaves to you
//
// When to ask, and the deadline of each run. Package probe and the types of the Kubernetes API are imported, no client and
// no gRPC. probe/manager asks for a whole node.
package podprobe
