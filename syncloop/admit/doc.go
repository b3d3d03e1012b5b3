// Package admit has the refusals with which a node keeps pods away that cannot or must not run on it.
//
// You need it beside syncloop: each of [Sysctls], [Platform], [Fit], [AppArmor], [Features] and [Claims] is a value for the Admit
// field of its Config, asked in the order given, the first refusal winning; the kubelet's order is this one. A refusal is a
// *runtime.Rejection with the kubelet's reasons (SysctlForbidden, PodOSNotSupported, OutOfcpu, NodePorts, ...) and messages,
// as programs read them.
//
// The values keep no state, do no I/O and may be asked from several goroutines. A node that is not known yet (Node nil,
// or giving nil) lets pass all that depends on it: an agent without an API server still refuses wrong systems, forbidden
// sysctls and host ports that are taken. With Fit.Own it also refuses what its machine has no room for, but nothing that was let in
// before, and with Platform.Info what its container runtime cannot do. [Fit] names the pods that are to make room for a critical one (Rejection.Instead); who asks ends them.
package admit
