// Package plan decides what a pod needs next.
//
// [Sync] and [Stop] are pure functions: the pod's spec, what exists of it, what probes say and the time go in, an
// ordered list of actions comes out. Nothing is called, no clock is read and nothing is remembered, so every rule of
// the kubelet (restart policies, init containers in order, sidecars, crash back-off, sandbox recreation, new sizes in
// place) is a row in a table test, and the same decision can be shown to a person before it is carried out.
//
// Whoever carries the actions out decides again afterwards from what is then seen; runtime/podruntime does.
// The rules follow kubelet v1.37.2.
package plan
