package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Source shows pods. Its methods are called concurrently and return soon after ctx ends.
type Source interface {
	// Pods are all that exist. They may be shallow: IDs and states are enough.
	Pods(ctx context.Context) ([]runtime.Pod, error)

	// Pod is one, complete. A pod that does not exist is an empty one, and no error.
	Pod(ctx context.Context, uid types.UID) (runtime.Pod, error)
}

// Config of a Generator. Source is required; every other field works at zero.
type Config struct {
	Source   Source
	Notifier runtime.Notifier // nil: relists only
	Period   time.Duration    // from the end of a relist to the next one; 0 means 1 s. A minute while the notifier's stream stands
	Patience time.Duration    // so long without a listing is unhealthy; 0 means 3 min
	Timeout  time.Duration    // of one listing or look; 0 means 2 min
	Answers  func() error     // nil error: the runtime answers, by whoever asks it every few seconds, see Healthy. nil: not known
	Inspect  int              // pods looked at at once, while looks are quick; 0 means 8

	// Busy is closed when whoever works on a pod now has done a step. What events tell of meanwhile is mostly that work: it is
	// looked at when it is done, but no later than after a second. A nil channel: nobody works on it. It must not block. nil:
	// not known, every event leads to a look at once.
	Busy func(uid types.UID) <-chan struct{}

	// Tell is called for each event, in order for one pod, from many goroutines. It must not block. nil: nobody listens.
	Tell func(Event)

	// Died is called, after Tell, when a look shows that something of the pod died: with what it saw, nothing when all of the pod
	// is gone. It must neither block nor change what it gets. nil: nobody listens.
	Died func(seen runtime.Pod)

	Observe observe.To
}

// Generator finds out what changes. Make one with New.
type Generator struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics
	room    *semaphore.Weighted // for looks
	listing *semaphore.Weighted // one listing at a time
	kick    chan struct{}       // do not wait a minute for the next relist

	mu      sync.Mutex            // guards what follows
	pods    map[types.UID]*record // all that exist, and those looked at since the last listing
	flights map[types.UID]*flight // looks under way
	listed  time.Time             // just before the last listing that succeeded; zero: none did
	round   uint64                // listings that succeeded
	failure error                 // why the last listing failed; nil: it did not
	stream  time.Time             // since when the notifier's stream is open; zero: it is not
	hints   map[types.UID]hint    // pods the stream named that are being looked at
}

// New makes a Generator.
func New(cfg Config) (*Generator, error) {
	if cfg.Source == nil {
		return nil, errors.New("pleg: Source is required")
	}
	if cfg.Period < 0 || cfg.Patience < 0 || cfg.Timeout < 0 || cfg.Inspect < 0 {
		return nil, fmt.Errorf("pleg: Period %v, Patience %v, Timeout %v and Inspect %d must not be negative", cfg.Period, cfg.Patience, cfg.Timeout, cfg.Inspect)
	}
	cfg.Period = cmp.Or(cfg.Period, time.Second)
	cfg.Patience = cmp.Or(cfg.Patience, 3*time.Minute)
	cfg.Timeout = cmp.Or(cfg.Timeout, 2*time.Minute)
	cfg.Inspect = cmp.Or(cfg.Inspect, 8)
	if cfg.Tell == nil {
		cfg.Tell = func(Event) {}
	}
	if cfg.Died == nil {
		cfg.Died = func(runtime.Pod) {}
	}
	m, err := newMetrics(cfg.Observe)
	return &Generator{
		cfg:     cfg,
		log:     cfg.Observe.Logger(),
		metrics: m,
		room:    semaphore.NewWeighted(int64(cfg.Inspect)),
		listing: semaphore.NewWeighted(1),
		kick:    make(chan struct{}, 1),
		pods:    map[types.UID]*record{},
		flights: map[types.UID]*flight{},
		hints:   map[types.UID]hint{},
	}, err
}

// Run relists, and follows the notifier, until ctx ends. It returns nil once all looks it began have returned.
func (g *Generator) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if g.cfg.Notifier != nil {
		wg.Go(func() { g.follow(ctx, &wg) })
	}
	log := throttle{log: g.log}
	for {
		changed, settled, err := g.list(ctx)
		for _, f := range changed {
			wg.Go(func() { g.inspect(ctx, f) })
		}
		if ctx.Err() != nil {
			return nil
		}
		log.say(err)
		if !g.pause(ctx, err == nil && settled) {
			return nil
		}
	}
}

// pause waits for the time of the next relist; false: ctx has ended.
func (g *Generator) pause(ctx context.Context, settled bool) bool {
	soon := time.Now().Add(g.cfg.Period)
	wait := g.cfg.Period
	if settled && g.streamStands() {
		wait = max(wait, quietPeriod)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-g.kick:
			timer.Reset(time.Until(soon))
		}
	}
}

// hurry makes Run relist within a period, however long it meant to wait.
func (g *Generator) hurry() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// Healthy is nil while the last listing is recent enough. It is nil, too, however long the next one takes, while the
// notifier's stream stands and Config.Answers says that the runtime answers. The error says for how long there was no
// listing, and why.
func (g *Generator) Healthy() error {
	err := g.listedInTime()
	if err != nil && g.cfg.Answers != nil && g.listedOnce() && g.streamStands() && g.cfg.Answers() == nil {
		return nil
	}
	return err
}

func (g *Generator) listedOnce() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.listed.IsZero()
}

func (g *Generator) listedInTime() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if g.listed.IsZero() {
		err = errors.New("the pods of this node have not been listed yet")
	} else if age := time.Since(g.listed); age > g.cfg.Patience {
		err = fmt.Errorf("the pods of this node were listed last %v ago, allowed are %v", age.Round(time.Second), g.cfg.Patience)
	}
	if err != nil && g.failure != nil {
		err = fmt.Errorf("%w: %w", err, g.failure)
	}
	return err
}

// throttle reports failing listings: the first, one a minute, and that they work again.
type throttle struct {
	log  *slog.Logger
	last time.Time // zero: listings work
}

func (t *throttle) say(err error) {
	switch {
	case err == nil && !t.last.IsZero():
		t.log.Info("pods are listed again")
		t.last = time.Time{}
	case err != nil && time.Since(t.last) >= time.Minute:
		t.log.Warn("listing pods failed; it is tried again each period", "err", err)
		t.last = time.Now()
	case err != nil:
		t.log.Debug("listing pods failed", "err", err)
	}
}
