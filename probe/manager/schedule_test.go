package manager

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestNextTurn(t *testing.T) {
	zero := time.Time{}.Add(time.Hour)
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name      string
		last, now float64
		want      float64
	}{
		{"a period after the last", 10, 10.2, 15},
		{"exactly when it is over", 10, 15, 15},
		{"one that went by is due at once", 10, 16, 15},
		{"several that went by are one", 10, 27, 25},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := nextTurn(at(c.last), at(c.now), 5*time.Second); !got.Equal(at(c.want)) {
				t.Errorf("got %v, want %v", got, at(c.want))
			}
		})
	}
}

func TestTogether(t *testing.T) {
	begin := time.Now()
	for due, want := range map[time.Duration]time.Duration{
		0: 0, 1: grain, grain - 1: grain, grain: grain, grain + 1: 2 * grain, time.Hour: time.Hour,
	} {
		if got := together(begin, begin.Add(due), grain).Sub(begin); got != want {
			t.Errorf("what is due after %v begins after %v, want %v", due, got, want)
		}
	}
}

func TestFirstCheck(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		started time.Time
		delay   time.Duration
		want    time.Duration
	}{
		{"no delay is now", now, 0, 0},
		{"the delay counts from the start", now.Add(-2 * time.Second), 5 * time.Second, 3 * time.Second},
		{"a delay that is over is now", now.Add(-time.Hour), 5 * time.Second, 0},
		{"an unknown start is now", time.Time{}, 5 * time.Second, 5 * time.Second},
		{"a clock set back lengthens nothing", now.Add(time.Hour), 5 * time.Second, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := firstCheck(c.started, now, c.delay).Sub(now); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// Case c037: which address of a pod is asked.
func TestCase_c037_PodIP(t *testing.T) {
	for _, c := range []struct {
		name        string
		hostNetwork bool
		status      string
		seen, hosts []string
		want        string
	}{
		{"the first one seen", false, "10.0.0.9", []string{"fd00::5", "10.0.0.5"}, nil, "fd00::5"},
		{"of two families the node's", false, "", []string{"10.0.0.5", "fd00::5"}, []string{"2001:db8::1"}, "fd00::5"},
		{"the first when it is of that family", false, "", []string{"10.0.0.5", "fd00::5"}, []string{"192.0.2.1"}, "10.0.0.5"},
		{"only one, of the other family", false, "", []string{"10.0.0.5"}, []string{"2001:db8::1"}, "10.0.0.5"},
		{"the reported one while none is seen", false, "10.0.0.9", nil, []string{"192.0.2.1"}, "10.0.0.9"},
		{"none", false, "", nil, []string{"192.0.2.1"}, ""},
		{"a pod on the host's network is asked there", true, "", nil, []string{"192.0.2.1"}, "192.0.2.1"},
		{"unless it shows an address", true, "", []string{"192.0.2.7"}, []string{"192.0.2.1"}, "192.0.2.7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &v1.Pod{}
			p.Spec.HostNetwork, p.Status.PodIP = c.hostNetwork, c.status
			if got := podIP(p, c.seen, func() []string { return c.hosts }); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Many jobs that are added and stopped at random run exactly as often as a calculation says.
func TestScheduleRunsEachJobWhenItIsDue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		begin := time.Now()
		type kept struct {
			j           *job
			ran         atomic.Int64
			first, last time.Duration // last: until it was stopped
			period      time.Duration
		}
		var all []*kept
		const late = grain/2 - time.Millisecond // all are due within a grain and run at its end
		time.Sleep(time.Millisecond)
		for range 2000 {
			time.Sleep(grain)
			now := time.Since(begin)
			if rng.IntN(3) > 0 || len(all) == 0 {
				k := &kept{first: now + time.Duration(rng.IntN(500))*grain + grain/2, period: time.Duration(1+rng.IntN(300)) * grain, last: -1}
				k.j = s.add(begin.Add(k.first), k.period, func(context.Context, *job) { k.ran.Add(1) })
				all = append(all, k)
			} else if k := all[rng.IntN(len(all))]; k.last < 0 {
				s.stop(k.j)
				k.last = now
			}
		}
		synctest.Wait()
		end := time.Since(begin)
		for _, k := range all {
			var want int64
			for at := k.first; at+late <= end && (k.last < 0 || at+late < k.last); at += k.period {
				want++
			}
			if got := k.ran.Load(); got != want {
				t.Errorf("a job from %v each %v until %v ran %d times, want %d", k.first, k.period, k.last, got, want)
			}
		}
		cancel()
		<-done
	})
}

func TestFewQuickChecksRunAtOnceAndSlowOnesMakeRoom(t *testing.T) {
	for _, c := range []struct {
		name   string
		takes  time.Duration
		most   int64         // at once
		within time.Duration // all done
	}{
		{"quick ones share the room", 10 * time.Millisecond, quickChecks, time.Second},
		{"slow ones make room", 10 * time.Second, 640, 11 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var now, most, ran atomic.Int64
				for range 640 {
					s.add(time.Now(), time.Hour, func(context.Context, *job) {
						n := now.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						time.Sleep(c.takes)
						now.Add(-1)
						ran.Add(1)
					})
				}
				time.AfterFunc(c.within, cancel)
				s.run(ctx)
				if most.Load() != c.most || ran.Load() != 640 {
					t.Errorf("%d at once, want %d; %d of 640 done in %v", most.Load(), c.most, ran.Load(), c.within)
				}
			})
		})
	}
}

func TestRunWaitsForChecksUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule()
		ctx, cancel := context.WithCancel(t.Context())
		var cut, over atomic.Bool
		j := s.add(time.Now(), time.Second, func(ctx context.Context, _ *job) {
			<-ctx.Done()
			cut.Store(true)
			time.Sleep(time.Minute)
			over.Store(true)
		})
		time.AfterFunc(5*time.Second, cancel)
		s.run(ctx)
		if !cut.Load() || !over.Load() {
			t.Error("a check was still under way")
		}
		if j.index != 0 {
			t.Error("the job is not there for the next run")
		}
	})
}

func BenchmarkTrack(b *testing.B) {
	m, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	p := pod(v1.Container{LivenessProbe: every("live", 10), ReadinessProbe: every("ready", 10)})
	look := running("a", 0)
	b.ReportAllocs()
	for b.Loop() {
		m.Track(p, look, false)
		_ = m.Results("u")
	}
}

// One operation is a check that does nothing, taken from a heap of ten thousand.
func BenchmarkSchedule(b *testing.B) {
	s := newSchedule()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(b.N))
	for range 10000 {
		s.add(time.Now(), time.Nanosecond, func(context.Context, *job) {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	s.run(ctx)
}
