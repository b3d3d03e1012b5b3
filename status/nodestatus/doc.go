// Package nodestatus says of a node what a cluster must know: that it is there, how big it is, how it is.
//
// You run pods on a host and want a scheduler to find it. A [Reporter] registers a Node object with a [Sink], an API server
// as a rule, and keeps its status up to date. What the status says is composed of [Setter] functions that run in order; one
// that fails or hangs hinders no other. Here are those for what the kubelet says:
//
//	Addresses, MachineInfo, VersionInfo, Capacity, DaemonEndpoints, Images, Engine.SetNode, Pressure, Ready
//
// and others come from the parts that know: volumes in use from the volume manager, say. Ready comes behind all that set
// capacity or conditions.
//
// # What is sent when
//
// The status is computed every ten seconds and at once after a kick. It is sent when something but a heartbeat differs from
// what the server has, and every five minutes otherwise; after a change the next regular report is up to half that time
// earlier or later, so that many nodes do not speak at once. A round makes five attempts without waiting in between. In the
// first 30 s the status is computed ten times a second until the node is ready, and an agent that starts on a node that is
// ready has two seconds to find out that it still is before it says otherwise. A node that is gone from the server is
// registered anew.
//
// Conditions that a setter owns are put right when somebody else wrote to them; all others are left alone. The time of the
// last transition moves only with the status. All times are cut to whole seconds, as the API keeps them. Intervals are
// measured by the monotonic clock: a clock that is set back or forward changes the time stamps in reports and nothing else.
//
// An existing node is put right as the kubelet does it, see [Reconcile]: its taints and labels that are not the agent's are
// left to whoever changed them since the first registration.
//
// # Events
//
// The Reporter tells Starting, Rebooted, NodeReady, NodeNotReady, NodeSchedulable, NodeNotSchedulable, the three pressures
// both ways, and NodeCapacityChanged, each once the change it is about was delivered. [Reporter.Ref] is how others name the
// node in their events.
//
// The caller keeps the lease in which the node shows that it is alive.
package nodestatus
