package nodestatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Setter fills in its part of a node: capacity, conditions, images. It gets a copy that is its own while it runs, and
// returns soon after ctx ends. One that fails should leave the node as it was, so that the last good answer stands. Setters
// are called one after the other, never twice at once.
type Setter func(ctx context.Context, node *v1.Node) error

// Sink is where the node is kept: an API server. The Reporter makes one call at a time; a call returns soon after ctx ends.
// Nodes that it is given are read-only, nodes that it answers are the Reporter's to read.
type Sink interface {
	// Register creates the node and answers it as the server has it now. When one of that name exists already, or creating
	// is forbidden and one exists, it answers that one; what differs and is ours to keep right is sent by UpdateNode then.
	Register(ctx context.Context, node *v1.Node) (*v1.Node, error)

	// Get reads the node from the server. runtime.ErrNotFound: there is none.
	Get(ctx context.Context) (*v1.Node, error)

	// UpdateNode sends what differs between two versions of the node: status, labels and annotations, never the spec. What
	// does not differ stays as it is on the server. runtime.ErrNotFound: the node is gone.
	UpdateNode(ctx context.Context, from, to *v1.Node) error
}

// Config describes a Reporter. Name and Sink are required, and Initial unless NoRegister; every other field works at zero.
type Config struct {
	Name    string
	Initial *v1.Node // the node to create; see [Initial]. Setters fill in its status
	Setters []Setter // in this order; see the package comment for the kubelet's
	Sink    Sink

	NoRegister bool            // somebody else makes the node
	Seen       func() *v1.Node // the node as a watch shows it, shared and read-only; nil, or answering nil: Sink.Get each time
	Fresh      func() bool     // asked when registering: device plugins must start anew, their resources are zero until then; nil: no
	Reported   func(*v1.Node)  // told after each round, the node as the server has it: volumes in use, pod CIDRs. Returns soon; nil: nobody
	Failing    func()          // told from a round's second failure on: connections may be dead without saying so; nil: nobody

	Kick   <-chan struct{} // something a setter says has changed: compute and send at once. Never closed
	Every  time.Duration   // between two computations; 0 means 10 s
	Report time.Duration   // between two reports of an unchanged status; 0 means 5 min

	Observe observe.To // logger, events, metrics; zero is silent
}

const (
	tries         = 5                      // to send one status
	registerFirst = 100 * time.Millisecond // wait after a registration that did not work, doubled with each further one
	registerMax   = 7 * time.Second
	hurryEvery    = 100 * time.Millisecond // between two computations until the node is ready for the first time
	hurryFor      = 30 * time.Second
	settle        = 2 * time.Second // after a start, until parts that have not looked yet make a ready node unready
)

// Reporter keeps a node's object up to date. Report and Ref are safe for concurrent use, also beside Run.
type Reporter struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics
	uid     atomic.Value // string, of the node object once it is known

	mu            sync.Mutex // held during a round; guards the rest
	registered    bool
	began         time.Time // first round
	created       time.Time // when the node was registered as a new one
	before, after *v1.Node  // the latest write: the node it was made from, and what it made of it
	reported      time.Time
	stagger       time.Duration // added to Report once after a change, so that nodes that changed together part again
	isReady       bool          // as of the last round
	backoff       time.Duration // before the next attempt to register
	unschedulable bool
	complaints    []string // latest error of each setter
}

// New checks the configuration and returns a Reporter at rest.
func New(cfg Config) (*Reporter, error) {
	if cfg.Name == "" || cfg.Sink == nil {
		return nil, errors.New("nodestatus: Name and Sink are required")
	}
	if cfg.Initial == nil && !cfg.NoRegister {
		return nil, errors.New("nodestatus: Initial is required to register a node; see NoRegister")
	}
	if cfg.Initial != nil && cfg.Initial.Name != cfg.Name {
		return nil, fmt.Errorf("nodestatus: Initial is named %q, the node %q", cfg.Initial.Name, cfg.Name)
	}
	if cfg.Every < 0 || cfg.Report < 0 {
		return nil, fmt.Errorf("nodestatus: Every %v and Report %v must not be negative", cfg.Every, cfg.Report)
	}
	cfg.Every = cmp.Or(cfg.Every, 10*time.Second)
	cfg.Report = cmp.Or(cfg.Report, 5*time.Minute)
	ins := cfg.Observe.Instruments()
	r := &Reporter{
		cfg: cfg, log: cfg.Observe.Logger(), metrics: newMetrics(ins), registered: cfg.NoRegister,
		complaints: make([]string, len(cfg.Setters)),
	}
	if ins.Err != nil {
		return nil, fmt.Errorf("nodestatus: %w", ins.Err)
	}
	return r, nil
}

// Ref is the node as events name it: by the UID of its object, and before that is known by its name, where
// "kubectl describe node" looks too.
func (r *Reporter) Ref() observe.Ref {
	uid, _ := r.uid.Load().(string)
	return observe.Ref{Kind: "Node", Name: r.cfg.Name, UID: cmp.Or(uid, r.cfg.Name)}
}

// Run registers the node and reports it until ctx ends, then returns nil. It must not run twice at once.
func (r *Reporter) Run(ctx context.Context) error {
	r.metrics.name.Record(1, r.cfg.Name)
	r.event(observe.Event{Reason: "Starting", Message: "Starting kubelet."})
	round := time.NewTimer(0)
	defer round.Stop()
	hurry := time.NewTicker(hurryEvery)
	defer hurry.Stop()
	giveUp := time.NewTimer(hurryFor)
	defer giveUp.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-giveUp.C:
			hurry.Stop()
			if !r.ready() {
				r.log.Warn("node is not ready yet; looking at it at the normal pace from here on")
			}
			continue
		case <-hurry.C:
			if r.ready() {
				hurry.Stop()
				continue
			}
			if !r.turnsReady(ctx) {
				continue
			}
		case <-r.cfg.Kick:
		case <-round.C:
		}
		err := r.Report(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			r.log.Warn("node status not delivered; trying again", "err", err)
		}
		round.Reset(r.next())
	}
}

// jittered is up to 4 % longer, so that nodes that started together do not stay together.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*0.04*float64(d)) //nolint:gosec // spreads load, guards nothing
}

// Report makes one round: register if that is still to be done, compute, and send if something changed or it is time. It
// gives up after five attempts and returns the last error.
func (r *Reporter) Report(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		r.began = time.Now()
	}
	var err error
	for try := range tries {
		if !r.registered {
			if err := r.register(ctx); err != nil {
				return err
			}
		}
		err = r.try(ctx, try == 0)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, runtime.ErrNotFound) && !r.cfg.NoRegister {
			r.log.Warn("the node object is gone; registering again")
			r.registered, r.before, r.after = false, nil, nil
			continue
		}
		if try > 0 && r.cfg.Failing != nil {
			r.cfg.Failing()
		}
	}
	return fmt.Errorf("update node %s: %w", r.cfg.Name, err)
}

// try computes on the newest known version of the node, and sends. When the watch is behind, the next attempt reads the
// node from the server.
func (r *Reporter) try(ctx context.Context, fromWatch bool) error {
	base, err := r.current(ctx, fromWatch)
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	r.uid.Store(string(base.UID))
	r.schedulable(base)
	node := r.compute(ctx, base)
	r.isReady = isReady(node)
	if r.settling(base) {
		r.after = base
		return nil
	}
	differs := changed(base, node)
	if differs || time.Since(r.reported) >= r.cfg.Report+r.stagger {
		if err := r.send(ctx, base, node); err != nil {
			return fmt.Errorf("send its status: %w", err)
		}
		first := r.reported.IsZero()
		r.reported, r.stagger = time.Now(), 0
		if differs || first {
			r.stagger = time.Duration((rand.Float64() - 0.5) * float64(r.cfg.Report)) //nolint:gosec // spreads load, guards nothing
		}
		r.before = base
		r.tell(base, node)
	}
	r.after = node
	r.metrics.ready(r.created, node)
	if r.cfg.Reported != nil {
		r.cfg.Reported(node)
	}
	return nil
}

// current is the newest version of the node that is known. A watch that still shows what the latest write was made from is
// behind that write; one that shows another node than was registered or seen last is behind, or somebody made the node
// anew: then only the server knows.
func (r *Reporter) current(ctx context.Context, fromWatch bool) (*v1.Node, error) {
	if fromWatch && r.cfg.Seen != nil {
		seen := r.cfg.Seen()
		switch {
		case seen == nil, r.after != nil && seen.UID != r.after.UID:
		case r.before != nil && seen.ResourceVersion == r.before.ResourceVersion && seen.UID == r.before.UID:
			return r.after, nil
		default:
			return seen, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Every)
	defer cancel()
	return r.cfg.Sink.Get(ctx)
}

func (r *Reporter) send(ctx context.Context, from, to *v1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Every)
	defer cancel()
	return r.cfg.Sink.UpdateNode(ctx, from, to)
}

// ready says that the node was ready in the last round.
func (r *Reporter) ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isReady
}

// settling says that an agent that has just started would call a node unready that was ready before: its parts may only not
// have looked yet, and pods of an unready node get no traffic.
func (r *Reporter) settling(base *v1.Node) bool {
	return r.reported.IsZero() && !r.isReady && isReady(base) && time.Since(r.began) < settle
}

// next is how long the next round is away.
func (r *Reporter) next() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.registered {
		r.backoff = min(max(2*r.backoff, registerFirst), registerMax)
		return r.backoff
	}
	r.backoff = 0
	if left := settle - time.Since(r.began); r.reported.IsZero() && left > 0 {
		return left
	}
	return jittered(r.cfg.Every)
}

// turnsReady says that the node is registered, and would be ready if it was computed again now.
func (r *Reporter) turnsReady(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registered && r.after != nil && isReady(r.compute(ctx, r.after))
}
