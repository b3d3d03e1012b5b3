// Package guard fills disks and logs under an agent, on a real containerd.
//
// The disk is a small file system of its own, on which all of the node lies: the agent's files, its pods', logs and images. It
// runs full to the last byte, under a node with files for pods, and under one of a cluster whose API server is in memory.
// The tests need root; without it they are skipped.
package guard
