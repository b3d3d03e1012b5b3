// Package shutdown ends pods by priority before the machine goes down.
//
// Who switches a machine off ends its pods in whatever order init finds their processes, and nobody learns why. This package
// hears of it before, by a [Notice], holds the shutdown up, and ends pods group by group, the least important first, each
// group within its own period. Then the machine may go. A shutdown that is called off ends the ending.
//
// What it promises:
//
//   - Static and critical pods are ended too, in the group of their priority. Each gets the shorter of its own grace period
//     and that of its group, a second at least.
//   - A group takes no longer than its period, whatever its pods do, and a group without pods takes no time.
//   - While the machine is about to go down, new pods are refused and [Manager.Healthy] is an error: the node is not ready.
//   - Statuses are told before the machine is let go, as far as the sum of all periods allows.
//   - Reasons, messages and metrics are the kubelet's.
//
// Who ends a pod makes it Failed unless it has succeeded already; that is the loop's rule, not this package's.
package shutdown
