// Package offline keeps what a node needs to start its pods without an API server: a machine at the edge that reboots while
// its uplink is down shall do again what it did before.
//
// A [Cache] is a pod source in front of a pod source, and Objects in front of Objects. What goes through it is remembered in
// a directory: the pods of the last complete set, and the ConfigMaps, Services, runtime classes, Secrets and tokens that were
// answered for them. It promises:
//
//   - At the start the remembered pods are delivered at once, with complete being false: they run, and nothing is stopped
//     for being absent. Whatever the real source says then replaces them.
//   - A pod that is known to be deleted, or was absent from a complete set, is forgotten on disk before the set is passed on.
//     What started once to end does not start again.
//   - The objects behind it are always asked first. What was kept is the answer only when they fail, and the source has not
//     been complete yet or nobody answers there at all. An object that is said not to exist is forgotten, too.
//   - Files have mode 0600, are replaced as a whole, and carry a checksum. One that is damaged is named in the log and set
//     aside as name.damaged; the others count. What no pod of the last complete set uses is removed.
//   - Secrets and tokens are kept only with a Key, and sealed with it (AES-GCM). With another key they are as if they were
//     not there, with an error that says so; pods that need none of them start all the same.
//   - A disk that is full or broken is told of once. Pods are passed on all the same, and writing goes on when it can.
//
// Writing does not hold up the source or a reader of objects. Everything that was queued when Run ends is tried once more. A
// token that cannot be renewed is the last one, even when its time is over, and an event tells so.
//
// Pods themselves are not sealed: do not write passwords into their specs. The directory belongs to one agent.
package offline
