package eviction

import "context"

// Notifier hears from the kernel that memory runs short, sooner than the next pass.
type Notifier interface {
	// Wait returns nil when more than used bytes are charged to the cgroup a signal is about, or processes have to wait for
	// memory because the machine is short of it; an error when ctx ends or the kernel cannot tell. It is called once a pass for
	// each signal of memory that has a threshold which is not met, and for one by which a pod ends, each from a goroutine of
	// its own.
	Wait(ctx context.Context, s Signal, used int64) error
}
