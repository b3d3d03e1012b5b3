package podruntime

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestHalfOfABurstRunsAfterHalfOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{turns: turns{free: 4}}
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		var wg sync.WaitGroup
		for i := range 50 {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(rune('a' + i))}}
			wg.Go(func() {
				for _, d := range []time.Duration{300 * time.Millisecond, 200 * time.Millisecond} { // sandbox, container
					done, err := r.begin(t.Context(), pod)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(d)
					done()
				}
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(start))
			})
		}
		wg.Wait()
		slices.Sort(at)
		if median, total := at[25], at[49]; median > total*60/100 {
			t.Errorf("the median pod runs after %v of %v", median, total)
		}
	})
}

func TestUrgentPodsGoFirstThenByPriorityThenAsTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &turns{free: 1}
		done, err := q.take(t.Context(), turn{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := q.take(ctx, turn{urgent: true}); err == nil {
				t.Error("one that gave up had its turn")
			}
		})
		var order []string
		for name, at := range map[string]turn{"third": {number: 1}, "first": {urgent: true, number: 9}, "second": {priority: 5, number: 8}} {
			wg.Go(func() {
				done, err := q.take(t.Context(), at)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				done()
			})
		}
		time.Sleep(2 * time.Second)
		done()
		wg.Wait()
		if !slices.Equal(order, []string{"first", "second", "third"}) || q.free != 1 {
			t.Error(order, q.free)
		}
	})
}

func TestTurnOf(t *testing.T) {
	file, high, critical := pod("x"), pod("x"), pod("x")
	file.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	high.Spec.Priority, critical.Spec.Priority = new(int32(1000)), new(int32(2_000_000_000))
	all := []turn{turnOf(pod("x"), 1), turnOf(high, 2), turnOf(critical, 4), turnOf(file, 3)}
	slices.SortFunc(all, func(a, b turn) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	var numbers []uint64
	for _, a := range all {
		numbers = append(numbers, a.number)
	}
	if !slices.Equal(numbers, []uint64{4, 3, 2, 1}) {
		t.Error(numbers)
	}
}

func TestStartsThatHangKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &turns{free: 2}
		var hang []func()
		for range 2 {
			done, err := q.take(t.Context(), turn{})
			if err != nil {
				t.Fatal(err)
			}
			hang = append(hang, done)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 3 {
			done, err := q.take(ctx, turn{})
			if err != nil {
				t.Fatalf("another pod: %v", err)
			}
			done()
		}
		for _, done := range hang {
			done()
		}
		if q.free != 2 {
			t.Errorf("%d places in the end", q.free)
		}
	})
}
