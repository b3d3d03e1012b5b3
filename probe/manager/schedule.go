package manager

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const (
	quickChecks = 64                    // run at once, while they are quick
	slowAfter   = 20 * time.Millisecond // a check that takes longer makes room for another quick one
	grain       = 20 * time.Millisecond // what is due within it begins together, which spares a wake-up for each
	allChecks   = 4096                  // run at once, however slow
)

// schedule runs many jobs, each again and again, with one timer.
type schedule struct {
	bell  chan struct{} // something is due earlier, or there is room again
	grain time.Duration

	mu      sync.Mutex // guards what follows and all jobs
	waiting jobs       // a heap, next first
	quick   int        // under way and not slow yet
	running int        // under way
	full    bool       // something is due and waits for room
}

// job is something done each period, never twice at once.
type job struct {
	do     func(context.Context, *job)
	period time.Duration
	at     time.Time          // when it is due
	index  int                // in the heap; -1: not in it
	cut    context.CancelFunc // while it runs
	gone   bool
}

func newSchedule() *schedule { return &schedule{bell: make(chan struct{}, 1), grain: grain} }

// add has do called at that time, and each period after it, until stop.
func (s *schedule) add(at time.Time, period time.Duration, do func(context.Context, *job)) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &job{do: do, period: period, at: at}
	s.push(j)
	return j
}

// stop takes a job out, cutting it if it runs, and does not wait.
func (s *schedule) stop(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.gone = true
	if j.index >= 0 {
		heap.Remove(&s.waiting, j.index)
	}
	if j.cut != nil {
		j.cut()
	}
}

// run runs jobs until ctx ends, and returns once none runs any more. Those it leaves are there for the next run.
func (s *schedule) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.bell:
		case <-timer.C:
		}
		if next, ok := s.launch(ctx, &wg); ok {
			timer.Reset(time.Until(together(begin, next, s.grain)))
		} else {
			timer.Stop()
		}
	}
}

// together is the end of the grain in which something is due.
func together(begin, due time.Time, grain time.Duration) time.Time {
	if left := due.Sub(begin) % grain; left > 0 {
		return due.Add(grain - left)
	}
	return due
}

// launch starts what is due and says when to come again; not ok: the bell tells.
func (s *schedule) launch(ctx context.Context, wg *sync.WaitGroup) (next time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = false
	now := time.Now()
	for len(s.waiting) > 0 && s.quick < quickChecks && s.running < allChecks {
		if next := s.waiting[0].at; next.After(now) {
			return next, true
		}
		j := heap.Pop(&s.waiting).(*job)
		own, cut := context.WithCancel(ctx)
		j.cut = cut
		s.quick++
		s.running++
		wg.Go(func() { s.carryOut(own, j) })
	}
	s.full = len(s.waiting) > 0
	return time.Time{}, false
}

func (s *schedule) carryOut(ctx context.Context, j *job) {
	slow := time.AfterFunc(slowAfter, s.slow)
	j.do(ctx, j)
	wasQuick := slow.Stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	j.cut()
	j.cut = nil
	s.running--
	if wasQuick {
		s.quick--
	}
	if !j.gone {
		j.at = nextTurn(j.at, time.Now(), j.period)
		s.push(j)
	}
	s.roomAgain()
}

func (s *schedule) slow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quick--
	s.roomAgain()
}

func (s *schedule) roomAgain() {
	if s.full {
		s.full = false
		s.ring()
	}
}

func (s *schedule) push(j *job) {
	heap.Push(&s.waiting, j)
	if j.index == 0 {
		s.ring()
	}
}

func (s *schedule) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// nextTurn is a period after the last turn. Turns that went by meanwhile become one, which is due at once; those after
// it are at the times they would have been.
func nextTurn(last, now time.Time, period time.Duration) time.Time {
	next := last.Add(period)
	if late := now.Sub(next); late > 0 {
		next = next.Add(late.Truncate(period))
	}
	return next
}

// jobs is a heap by time.
type jobs []*job

func (h jobs) Len() int           { return len(h) }
func (h jobs) Less(a, b int) bool { return h[a].at.Before(h[b].at) }
func (h jobs) Swap(a, b int)      { h[a], h[b] = h[b], h[a]; h[a].index, h[b].index = a, b }
func (h *jobs) Push(x any)        { j := x.(*job); j.index = len(*h); *h = append(*h, j) }
func (h *jobs) Pop() any {
	old := *h
	j := old[len(old)-1]
	old[len(old)-1] = nil
	*h, j.index = old[:len(old)-1], -1
	return j
}
