// Package eviction ends pods before the node runs out of something.
//
// When memory, disk or process ids run out the kernel chooses who dies, and often chooses the node. This package chooses
// before: it looks at the node each ten seconds, and when less of something is available than a [Threshold] asks for, it has
// what nobody needs removed, and if that is not enough, ends one pod: the one that uses most beyond what it requested, among
// those of the lowest priority. Independently of all that it ends pods that exceed limits of their own: the size of an
// emptyDir, ephemeral storage.
//
// You need not use anything else of this module. Bring a [Source] of figures (yours, or summaries in the kubelet's form by
// [FromSummary]) and [Pods] that can be ended, and run a [Manager]. [Rank] is useful without one. The example shows it whole.
//
// What it promises:
//
//   - Static, mirror and critical pods are never ended; the next in rank is taken. One pod goes for pressure in each pass.
//   - A pod is ended for figures that are newer than the end of the pod before. What is not known ends nobody; a pod of which
//     nothing is known goes before those whose usage is known.
//   - A soft threshold ends a pod only when it was met for its whole grace period; one pass above it starts that anew. The
//     condition of the node is there from the first moment, and stays for Transition after the last.
//   - After a threshold counted it counts until MinReclaim more than its value is available.
//   - Dead containers go before images, images before pods, and the node is looked at again after each.
//   - Passes never overlap. Check returns when what it ended is gone and its resources are back, after 40 s at the latest unless
//     a soft threshold grants more.
//   - Reasons, messages, event annotations and metrics are the kubelet's.
//
// Nothing is written to disk: a full one keeps nobody from being ended. What is remembered is lost with a restart, which only
// makes soft thresholds wait anew.
//
// It leaves to the caller: what the figures are, the node object's conditions ([Manager.Pressure] names them) and taints.
package eviction
