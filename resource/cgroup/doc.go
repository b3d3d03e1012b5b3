// Package cgroup keeps the cgroups of pods.
//
// Containers of a pod are limited one by one. That pods together leave the machine enough to live on, that a pod which asked
// for nothing gives way to one that did, and that a pod as a whole has no more processes than it may: that takes cgroups above
// the containers. A [Tree] keeps the kubelet's: kubepods, in it burstable and besteffort, in those one for each pod (pods that
// are guaranteed what they ask for lie in kubepods itself). An engine is told to put a pod's sandbox into [Tree.Parent]; the
// order is Ensure, the sandbox, and at the end, when nothing of the pod runs, Remove.
//
// A pod that gets other sizes is given more room by [Tree.Ensure] before its containers are, and has it taken away by
// [Tree.Shrink] after them, so that a container is never given what its pod does not have.
//
// It works on plain files, with version 1 and version 2, and all methods may be called at once from anywhere. With Systemd the
// names are those of slices; the slices themselves belong to systemd, and as it writes over values when it is told to reload,
// [Tree.Run] writes them again with each round. Removing a pod's cgroup kills what is left in it. Nothing is touched outside
// the tree, and of version 1 only in hierarchies that kernel and systemd are known to have.
package cgroup
