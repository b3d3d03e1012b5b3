package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// disorder is what the calls of a history suffer. Each takes a time of its own, some nanoseconds to some milliseconds, which
// follows from the seed, from what is called and from when: so no two things happen at one moment that the scheduler could
// put in another order, and the same seed plays the same history.
type disorder struct {
	seed  uint64
	began time.Time

	mu       sync.Mutex                         // guards the rest
	accident func(*rand.Rand) runtimetest.Fault // what happens to one call in two besides; nil: nothing
	until    time.Time                          // that lasts
	lossy    bool                               // events are lost, late and doubled
	set      []setting                          // how the engine's clock was set, the first one first
	asked    []string                           // every call that took its time, and every event, with when
}

// setting of a clock: from a moment on it is wrong by so much.
type setting struct {
	from time.Time
	by   time.Duration
}

// roll is chance for one event at this moment.
func (d *disorder) roll(words ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, words...)
	return rand.New(rand.NewPCG(d.seed^uint64(time.Now().UnixNano()), h.Sum64()))
}

// wait lets a call take its time.
func (d *disorder) wait(ctx context.Context, words ...any) error {
	takes := 1 + time.Duration(d.roll(words...).Int64N(int64(3*time.Millisecond)))
	d.ask(takes, words...)
	t := time.NewTimer(takes)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask writes down what was asked, and how long it takes.
func (d *disorder) ask(takes time.Duration, words ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, moment(d.began)+fmt.Sprint(words...)+" takes "+takes.String())
}

// moment is how long something has begun ago, in one width.
func moment(began time.Time) string { return fmt.Sprintf("%16.9fs ", time.Since(began).Seconds()) }

// suffer is a runtimetest.Fault.
func (d *disorder) suffer(ctx context.Context, c runtimetest.Call) error {
	what := fmt.Sprint(c.Method, " ", c.ID, " ", c.Pod.UID, " ", c.Container)
	if err := d.wait(ctx, what); err != nil || c.Method == "Events" {
		return err
	}
	r := d.roll("accident ", what)
	d.mu.Lock()
	happens, f := time.Now().Before(d.until) && r.IntN(2) == 0, d.accident
	d.mu.Unlock()
	if !happens {
		return nil
	}
	return f(r)(ctx, c)
}

func (d *disorder) happen(f func(*rand.Rand) runtimetest.Fault, within time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.accident, d.until = f, time.Now().Add(within)
}

func (d *disorder) loseEvents(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lossy = yes
}

func (d *disorder) setClock(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set = append(d.set, setting{time.Now(), by})
}

// clock is what the engine wrote down for a moment.
func (d *disorder) clock(at time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	told := at
	for _, s := range d.set {
		if !at.IsZero() && !at.Before(s.from) {
			told = at.Add(s.by)
		}
	}
	return told
}

// faults are what can happen to calls: one kind at a time, or all of them.
var faults = []func(*rand.Rand) runtimetest.Fault{kind(0), kind(1), kind(2), kind(3), kind(4), func(r *rand.Rand) runtimetest.Fault { return kind(r.IntN(5))(r) }}

func kind(which int) func(*rand.Rand) runtimetest.Fault {
	return func(r *rand.Rand) runtimetest.Fault { return fault(r, which) }
}

func fault(r *rand.Rand, which int) runtimetest.Fault {
	switch which {
	case 0:
		return runtimetest.Fail(runtime.ErrUnavailable)
	case 1:
		return runtimetest.Fail(errors.New("the engine says no"))
	case 2:
		return runtimetest.Lost(fmt.Errorf("the answer was lost: %w", context.DeadlineExceeded))
	case 3:
		return runtimetest.Delay(time.Duration(r.Int64N(int64(5 * time.Second))))
	default:
		return func(ctx context.Context, _ runtimetest.Call) error {
			select { // hangs, but not for ever: a real engine's calls have deadlines
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Minute):
				return context.DeadlineExceeded
			}
		}
	}
}

// lossy is a notifier of which some events never come, some late, some twice. No two are heard at one moment: not of one
// container, nor one by two who listen.
type lossy struct {
	runtime.Notifier
	*disorder
	hearer string
}

func (l lossy) Events(ctx context.Context, tell func(runtime.Event)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	heard := map[runtime.Event]int{} // how often; the time is in it
	return l.Notifier.Events(ctx, func(e runtime.Event) {
		what := fmt.Sprint("event ", l.hearer, " ", e.Pod.UID, " ", e.Container, " ", e.Gone)
		r := l.roll(what)
		for range heard[e] {
			r = rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		}
		heard[e]++
		times, late := 1, time.Duration(1+r.Int64N(int64(time.Millisecond)))
		l.mu.Lock()
		if l.lossy {
			times = r.IntN(3)
			late = 1 + time.Duration(r.Int64N(int64(20*time.Second)))
		}
		l.mu.Unlock()
		l.ask(late, what, " ", times, " times")
		for i := range times {
			wg.Go(func() {
				select {
				case <-time.After(late * time.Duration(i+1)):
					tell(e)
				case <-ctx.Done():
				}
			})
		}
	})
}

// paced is a Runtime whose looks take a time of their own, publishers' others than steps'.
type paced struct {
	syncloop.Runtime
	*disorder
	run context.Context //nolint:containedctx // by which publishers are known: it is what they pass on
}

func (p paced) who(ctx context.Context) string {
	if ctx == p.run {
		return "publisher"
	}
	return "step"
}

func (p paced) Pod(ctx context.Context, uid types.UID) (runtime.Pod, error) {
	if err := p.wait(ctx, "look ", p.who(ctx), " ", uid); err != nil {
		return runtime.Pod{}, err
	}
	return p.Runtime.Pod(ctx, uid)
}

// Sync, Stop and Remove take their time after what they did, so that who was woken by that comes before what follows it.
func (p paced) Sync(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
	result, err := p.Runtime.Sync(ctx, pod, in)
	_ = p.wait(ctx, "synced ", pod.UID)
	return result, err
}

func (p paced) Stop(ctx context.Context, pod *v1.Pod, seen runtime.Pod, how runtime.Termination) error {
	if p.roll("lies ", seen.UID).IntN(8) == 0 { // it says that it has stopped the pod, and did nothing
		return nil
	}
	err := p.Runtime.Stop(ctx, pod, seen, how)
	_ = p.wait(ctx, "stopped ", seen.UID)
	return err
}

func (p paced) Remove(ctx context.Context, uid types.UID, what runtime.Removal) error {
	err := p.Runtime.Remove(ctx, uid, what)
	_ = p.wait(ctx, "removed ", uid, what)
	return err
}

func (p paced) Pods(ctx context.Context) ([]runtime.Pod, error) {
	if err := p.wait(ctx, "list ", p.who(ctx)); err != nil {
		return nil, err
	}
	return p.Runtime.Pods(ctx)
}

// glimpses are States over a pleg, whose looks take a time of their own.
type glimpses struct {
	paced
	pleg *pleg.Generator
}

func (g glimpses) Pod(ctx context.Context, uid types.UID, after time.Time) (runtime.Pod, error) {
	if err := g.wait(ctx, "glimpse ", g.who(ctx), " ", uid); err != nil {
		return runtime.Pod{}, err
	}
	return g.pleg.Pod(ctx, uid, after)
}

// tune has a new agent live in disorder: with a pleg or without.
func (h *history) tune(ctx context.Context, wg *sync.WaitGroup, cfg *syncloop.Config) {
	looks := paced{cfg.Runtime, h.disorder, ctx}
	if h.withPleg {
		wake := cfg.Roster.Wake
		g, err := pleg.New(pleg.Config{
			Source: paced{cfg.Runtime, h.disorder, nil}, Notifier: lossy{h.engine, h.disorder, "pleg"}, Busy: cfg.Roster.Busy,
			Tell: func(e pleg.Event) {
				wg.Go(func() { // not while who looked takes up what he saw
					if h.disorder.wait(ctx, "told ", e.Pod.UID, " ", e.Container, " ", e.Kind) == nil {
						wake(e.Pod.UID)
					}
				})
			},
		})
		if err != nil {
			h.t.Error(err)
			return
		}
		wg.Go(func() { _ = g.Run(ctx) })
		cfg.States = glimpses{looks, g}
	}
	cfg.Runtime, cfg.Sink, cfg.Volumes = looks, slowSink{cfg.Sink, h.disorder}, h.volumes
	for name, s := range cfg.Sources {
		cfg.Sources[name] = slowSource{s, h.disorder, name}
	}
}

// slowSink takes a time of its own for what it is told.
type slowSink struct {
	syncloop.StatusSink
	*disorder
}

func (s slowSink) UpdateStatus(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	if err := s.wait(ctx, "tell ", pod.UID); err != nil {
		return err
	}
	return s.StatusSink.UpdateStatus(ctx, pod, st)
}

func (s slowSink) Finished(ctx context.Context, pod *v1.Pod) error {
	if err := s.wait(ctx, "finish ", pod.UID); err != nil {
		return err
	}
	return s.StatusSink.Finished(ctx, pod)
}

// slowSource takes a time of its own for each set.
type slowSource struct {
	syncloop.PodSource
	*disorder
	name string
}

func (s slowSource) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	return s.PodSource.Run(ctx, func(pods []*v1.Pod, complete bool) {
		if s.wait(ctx, "set ", s.name) == nil {
			set(pods, complete)
		}
	})
}

// volumes are mounted and taken away in their own time, and now and then that fails. No pod is finished that has some.
type volumes struct {
	*disorder

	mu   sync.Mutex // guards held
	held map[types.UID]bool
}

func (v *volumes) Mount(ctx context.Context, pod *v1.Pod) (map[string]runtime.Volume, error) {
	v.mu.Lock()
	v.held[pod.UID] = true
	v.mu.Unlock()
	return nil, v.wait(ctx, "mount ", pod.UID)
}

func (v *volumes) Unmount(ctx context.Context, uid types.UID) error {
	if err := v.wait(ctx, "unmount ", uid); err != nil {
		return err
	}
	if v.roll("unmounts ", uid).IntN(4) == 0 {
		return errors.New("a volume is in use")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.held, uid)
	return nil
}

func (v *volumes) holds(uid types.UID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.held[uid]
}

// words are the words of a list that chance picks, in their order.
func words(r *rand.Rand, from ...string) string {
	return " " + strings.TrimSpace(from[r.IntN(len(from))])
}
