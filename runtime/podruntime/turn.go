package podruntime

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// turn is the place of a pod among those that start: lower goes first. A pod keeps its number until it is complete, so that
// its containers come before the sandboxes of pods that came later: half of a burst runs after half of the time.
type turn struct {
	urgent   bool  // from a file, or critical to the system
	priority int32 // of the pod
	number   uint64
}

func turnOf(pod *v1.Pod, number uint64) turn {
	return turn{urgent: podspec.Critical(pod), priority: podspec.Priority(pod), number: number}
}

func (a turn) before(b turn) bool {
	switch {
	case a.urgent != b.urgent:
		return a.urgent
	case a.priority != b.priority:
		return a.priority > b.priority
	}
	return cmp.Less(a.number, b.number)
}

// turns lets so many starts go on at once, the first one first.
type turns struct {
	mu    sync.Mutex // guards the rest
	free  int
	queue waiters
}

type waiter struct {
	turn
	index int // in the queue; -1: out of it
	ready chan struct{}
}

// patience is how long a start has its place. One that hangs costs nobody else more than that.
const patience = 20 * time.Second

// take waits for a place; done gives it back, if it still has it.
func (t *turns) take(ctx context.Context, at turn) (done func(), err error) {
	w := &waiter{turn: at, ready: make(chan struct{})}
	t.mu.Lock()
	heap.Push(&t.queue, w)
	t.serve()
	t.mu.Unlock()
	select {
	case <-w.ready:
		give := sync.OnceFunc(t.give)
		late := time.AfterFunc(patience, give)
		return func() { late.Stop(); give() }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.index < 0 { // served in the same moment
		t.free++
		t.serve()
	} else {
		heap.Remove(&t.queue, w.index)
	}
	return nil, context.Cause(ctx)
}

func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.serve()
}

func (t *turns) serve() {
	for t.free > 0 && t.queue.Len() > 0 {
		t.free--
		close(t.queue[0].ready)
		heap.Pop(&t.queue)
	}
}

// waiters is a heap.Interface.
type waiters []*waiter

func (q waiters) Len() int           { return len(q) }
func (q waiters) Less(i, j int) bool { return q[i].before(q[j].turn) }
func (q waiters) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].index, q[j].index = i, j }

// Push is the heap's.
func (q *waiters) Push(x any) {
	w, _ := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}

// Pop is the heap's.
func (q *waiters) Pop() any {
	last := (*q)[len(*q)-1]
	last.index = -1
	*q = (*q)[:len(*q)-1]
	return last
}

// begin waits for a place to start something of the pod.
func (r *Runtime) begin(ctx context.Context, pod *v1.Pod) (done func(), err error) {
	return r.turns.take(ctx, turnOf(pod, r.memory.turnOf(pod.UID)))
}
