// Package cgroups has tests of the cgroups that the agent keeps above the containers of pods, on a containerd: what the kernel's
// files say of pods of each class, of the classes and of all pods together; that nothing of it is left behind when a pod ends,
// whatever ran in it; that a restart changes nothing, also of pods that others started; and that no kill of the agent loses
// sizes that were promised to a pod, or gives them twice.
//
// Run the long version with
//
//	go test ./cgroups -run Killed -kill-seeds 100
//
// With the build tag pressure it has pods that eat up the memory of all, and counts who is faster, the agent or the kernel.
package cgroups
