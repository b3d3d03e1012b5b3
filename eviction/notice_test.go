package eviction_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/eviction"
)

// bell is a Notifier.
type bell struct {
	ring chan struct{}
	mu   sync.Mutex
	used map[eviction.Signal]int64
}

func (b *bell) Wait(ctx context.Context, s eviction.Signal, used int64) error {
	b.mu.Lock()
	b.used[s] = used
	b.mu.Unlock()
	if s == eviction.AllocatableMemoryAvailable {
		return errors.ErrUnsupported
	}
	select {
	case <-b.ring:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestAPodThatEndsTooSlowlyIsKilled(t *testing.T) {
	for _, tt := range []struct {
		rule       string
		hard, soft list
		ring       bool
		want       []types.UID
	}{
		{"half of what was left is gone", list{"memory.available": "200Mi"}, nil, true, []types.UID{"a"}},
		{"it is not", list{"memory.available": "200Mi"}, nil, false, nil},
		{"a soft threshold can wait", nil, list{"memory.available": "200Mi"}, true, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.run("a", 100*mi)
			n.taken[eviction.MemoryAvailable] = 750 * mi
			b := &bell{ring: make(chan struct{}, 1), used: map[eviction.Signal]int64{}}
			var killed []types.UID
			grace := list{}
			for signal := range tt.soft {
				grace[signal] = "0.1s"
			}
			m := n.manager(parse(t, tt.hard, tt.soft, grace, nil), func(c *eviction.Config) {
				c.Notifier, c.Kill = b, func(uid types.UID) error { killed = append(killed, uid); return nil }
			})
			if tt.soft != nil {
				n.check(m, "")
				time.Sleep(time.Second)
			}
			if tt.ring {
				b.ring <- struct{}{}
			}
			n.check(m, "a")
			if !slices.Equal(n.ended, []string{"a"}) || !slices.Equal(killed, tt.want) {
				t.Errorf("%s: ended %v, killed %v, want %v", tt.rule, n.ended, killed, tt.want)
			}
			if got := b.used[eviction.MemoryAvailable]; tt.hard != nil && got != 150*mi {
				t.Errorf("%s: armed at %d", tt.rule, got)
			}
		})
	}
}

func TestTheKernelsNoticeComesBeforeTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.run("a", 100*mi)
		n.capacity[eviction.AllocatableMemoryAvailable] = 500 * mi
		n.taken[eviction.AllocatableMemoryAvailable] = 1
		b := &bell{ring: make(chan struct{}), used: map[eviction.Signal]int64{}}
		thresholds := eviction.Allocatable(parse(t, list{"memory.available": "100Mi"}, nil, nil, nil))
		m := n.manager(thresholds, func(c *eviction.Config) { c.Notifier = b })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := b.used[eviction.MemoryAvailable]; got != 900*mi {
			t.Errorf("armed at %d", got)
		}
		n.mu.Lock()
		n.taken[eviction.MemoryAvailable] = 850 * mi
		n.mu.Unlock()
		b.ring <- struct{}{}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a"}, n.ended); diff != "" {
			t.Error(diff)
		}
		stop()
		<-done
	})
}
