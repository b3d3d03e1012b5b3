// Package status says in API terms how a pod is, and tells it.
//
// # Compute
//
// You have a pod spec, what a runtime shows of it, and what probes say. The rest of Kubernetes wants a
// v1.PodStatus: phase, conditions, one status a container. [Compute] makes it. It is a pure function: it
// reads no clock, calls nothing, remembers nothing and changes none of its arguments; what a status must
// remember it finds in [Input].Last, the status it gave before. Every rule is therefore a row in a table
// test. The rules follow kubelet v1.37.2, with its order of conditions, reasons and messages.
//
// What holds whatever the input is:
//
//   - A pod that was Succeeded or Failed keeps that phase.
//   - A restart count never goes down.
//   - A container is ready only while it runs and has started, and then, with a readiness probe, only while
//     the probe passes. It has started once it runs and its startup probe, if it has one, passed; until a
//     probe has decided, Started of the same container ID is kept from the last status.
//   - The exit code and reason of a termination are the engine's, never reworked. Once recorded, a
//     termination is not replaced by a look that has less to say about the same container.
//   - Times are cut to whole seconds, as the API keeps them.
//
// # Merge
//
// A status may be terminal while a container status still shows as running: the pod was evicted and is being
// stopped. Whoever gives a terminal phase to others that conclude "nothing runs" (the API server is one) holds
// phase, reason, message and DisruptionTarget back until no container status is Running any more. [Merge] does, and
// keeps what others wrote into the same object.
//
// # Manager
//
// [Manager] is a [Sink] in front of a Sink that may be slow or away. UpdateStatus never blocks; only the newest
// status of each pod is kept and sent, in order for one pod and with bounded parallelism over all. What fails
// is tried again with the newest. Finished comes once, after the last status was delivered. A status equal to the
// one delivered is not sent again, unless the pod as its source shows it says otherwise for ten seconds: somebody
// has written over it.
//
// A status in which a container leaves Terminated although nothing allows it to restart is refused, but for init containers
// that succeeded: in a new sandbox they run once more.
// Whether the receiver's copy may go from terminal back to running is the receiver's to decide; a Sink that
// writes into an object others write to, too, sends what [Merge] says.
//
// [QOS] and [Requests] are what Compute says of a pod's class and sizes, for parts that need only these.
package status
