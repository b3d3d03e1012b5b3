package eviction

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Source observes a node. It looks anew each time: a pod is ended for what it says.
type Source interface {
	Observe(ctx context.Context) (Observation, error)
}

// Observation is all that a pass looks at. A signal that is missing is not known: thresholds for it are not met. So is a pod,
// which then goes before all others, since nobody can say that it is not the one; of one of which nothing runs, such as while its
// image is pulled, it should be said that it uses nothing.
type Observation struct {
	Levels map[Signal]Level
	Usage  map[types.UID]Usage
	Layout Layout
}

// Level of one signal: bytes, inodes or threads.
type Level struct {
	Available, Capacity int64
	Used                int64     // of memory: all that is charged to the cgroup, what the kernel can drop at once included; 0: not known
	At                  time.Time // when it was measured; one that has not moved since the last pass ends no pod. Zero is always new
}

// Usage of one pod. What is not known is zero.
type Usage struct {
	Memory     int64 // working set in bytes
	Processes  int64
	Storage    int64 // bytes on disks in all, as the limit of a pod's ephemeral storage counts them
	Containers []ContainerUsage
	Volumes    map[string]Amount // by name in the pod's spec
}

// ContainerUsage is the part of one container.
type ContainerUsage struct {
	Name         string
	Memory       int64
	Rootfs, Logs Amount
}

// Amount of a file system.
type Amount struct{ Bytes, Inodes int64 }

func (a Amount) plus(b Amount) Amount { return Amount{a.Bytes + b.Bytes, a.Inodes + b.Inodes} }

// Layout says which of a node's file systems are one.
type Layout uint8

const (
	OneDisk     Layout = iota // all three
	ImagesApart               // images and what containers write, apart from the node's
	Split                     // images alone; what containers write is on the node's
)
