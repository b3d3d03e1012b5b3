package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal names something of which there is only so much on a node.
type Signal string

// The signals. Those of file systems come in pairs, bytes and inodes.
const (
	MemoryAvailable            Signal = "memory.available"            // of the whole node
	AllocatableMemoryAvailable Signal = "allocatableMemory.available" // of what all pods together may use
	NodeFsAvailable            Signal = "nodefs.available"            // where the agent keeps its things: volumes, logs
	NodeFsInodesFree           Signal = "nodefs.inodesFree"
	ImageFsAvailable           Signal = "imagefs.available" // where images lie
	ImageFsInodesFree          Signal = "imagefs.inodesFree"
	ContainerFsAvailable       Signal = "containerfs.available" // where containers write into their root file system
	ContainerFsInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available" // threads
)

// What messages and events call the things a signal is about. Inodes and threads are no resources of the API.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// kind is what a signal is about.
type kind struct {
	resource  v1.ResourceName
	condition v1.NodeConditionType
	place     place
}

// place is one of the file systems of a node; none for what is not on a disk.
type place uint8

const (
	none place = iota
	nodeFs
	imageFs
	containerFs
)

// kind of a signal; false for one that does not exist.
func (s Signal) kind() (kind, bool) {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return kind{v1.ResourceMemory, v1.NodeMemoryPressure, none}, true
	case NodeFsAvailable:
		return kind{v1.ResourceEphemeralStorage, v1.NodeDiskPressure, nodeFs}, true
	case NodeFsInodesFree:
		return kind{inodes, v1.NodeDiskPressure, nodeFs}, true
	case ImageFsAvailable:
		return kind{v1.ResourceEphemeralStorage, v1.NodeDiskPressure, imageFs}, true
	case ImageFsInodesFree:
		return kind{inodes, v1.NodeDiskPressure, imageFs}, true
	case ContainerFsAvailable:
		return kind{v1.ResourceEphemeralStorage, v1.NodeDiskPressure, containerFs}, true
	case ContainerFsInodesFree:
		return kind{inodes, v1.NodeDiskPressure, containerFs}, true
	case PIDAvailable:
		return kind{pids, v1.NodePIDPressure, none}, true
	}
	return kind{}, false
}

func (s Signal) resource() v1.ResourceName { k, _ := s.kind(); return k.resource }

// amount is a figure of this signal as messages show it.
func (s Signal) amount(n int64) *resource.Quantity {
	format := resource.DecimalSI
	switch s.resource() {
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		format = resource.BinarySI
	default:
	}
	return resource.NewQuantity(n, format)
}

// urgentFirst orders thresholds that are met: memory before all others, which keep their order.
func urgentFirst(list []Threshold) {
	other := func(t Threshold) int {
		if t.Signal.resource() == v1.ResourceMemory {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b Threshold) int { return cmp.Compare(other(a), other(b)) })
}
