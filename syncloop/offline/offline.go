package offline

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
)

// KeyBytes is the length of a key.
const KeyBytes = 32

// PodSource is what a syncloop.PodSource is.
type PodSource interface {
	Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error
}

// Objects are what pods refer to. They are called from several goroutines at a time; what they answer is shared and
// read-only. What does not exist is runtime.ErrNotFound; every other error says that nobody knows.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
	Token(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (token string, expires time.Time, err error)
	Class(name string) (handler string, err error)
	Follow(kind, namespace, name string, changed func()) (stop func())
}

// Config describes a Cache. Dir and Source are required.
type Config struct {
	Dir     string // of this cache alone; it is made when it is missing
	Source  PodSource
	Objects Objects // nil: the cache is of pods alone, and says of every object that it does not exist

	Key     []byte     // 32 bytes, which seal Secrets and tokens; nil: these are not kept
	Observe observe.To // logger, events, metrics; zero is silent
}

// Cache is a PodSource in front of a PodSource and Objects in front of Objects. All methods are safe for concurrent use.
type Cache struct {
	cfg     Config
	log     *slog.Logger
	metrics metrics
	store   *store

	passing sync.Mutex            // held while a set is passed on; taken before mu
	given   map[types.UID]*v1.Pod // pods as they were remembered last, of whoever passes

	mu       sync.Mutex      // guards the rest
	begun    bool            // the remembered set was delivered
	complete bool            // the source was complete once
	used     map[string]bool // files that pods of the last set need
	stale    map[string]bool // tokens for which the last answer was the kept one
}

// New checks the configuration and returns a Cache at rest. Nothing is read or written before Run, but for what is asked of
// the objects.
func New(cfg Config) (*Cache, error) {
	if cfg.Dir == "" || cfg.Source == nil {
		return nil, errors.New("offline: Dir and Source are required")
	}
	if cfg.Objects == nil {
		cfg.Objects = none{}
	}
	aead, err := sealer(cfg.Key)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Observe)
	if err != nil {
		return nil, fmt.Errorf("offline: make metrics: %w", err)
	}
	log := cfg.Observe.Logger()
	return &Cache{
		cfg: cfg, log: log, metrics: m, store: newStore(cfg.Dir, aead, log, m),
		given: map[types.UID]*v1.Pod{}, stale: map[string]bool{},
	}, nil
}

// sealer is the cipher of a key, nil without one.
func sealer(key []byte) (cipher.AEAD, error) {
	if key == nil {
		return nil, nil //nolint:nilnil // no key is allowed
	}
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("offline: the key has %d bytes; it must have %d, such as head -c %d /dev/urandom gives", len(key), KeyBytes, KeyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("offline: use the key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Run delivers the remembered pods, then what the source delivers, and returns what the source returns once everything is
// written. It may be called again afterwards.
func (c *Cache) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	c.begin(set)
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { c.store.run(writing) })
	defer wg.Wait()
	defer stop()
	return c.cfg.Source.Run(ctx, func(pods []*v1.Pod, complete bool) { c.pass(pods, complete, set) })
}

// begin delivers what is remembered, once.
func (c *Cache) begin(set func([]*v1.Pod, bool)) {
	c.mu.Lock()
	begun := c.begun
	c.begun = true
	c.mu.Unlock()
	if begun {
		return
	}
	pods := c.store.load()
	if len(pods) > 0 {
		c.log.Info("pods are started from what was remembered, until their source has told what it wants", "pods", len(pods), "dir", c.cfg.Dir)
	}
	c.note(pods, false)
	set(pods, false)
}

// pass remembers a set and hands it on: first what must be forgotten, then what is new.
func (c *Cache) pass(pods []*v1.Pod, complete bool, set func([]*v1.Pod, bool)) {
	c.passing.Lock()
	defer c.passing.Unlock()
	keep := c.note(pods, complete)
	if !complete {
		for _, p := range pods {
			if !remembered(p) {
				c.store.drop(podFile(p.UID))
			}
		}
		set(pods, false)
		return
	}
	c.store.sweep(keep)
	set(pods, true)
	given := make(map[types.UID]*v1.Pod, len(pods))
	for _, p := range pods {
		if !remembered(p) {
			continue
		}
		given[p.UID] = p
		if c.given[p.UID] != p {
			c.store.put(podFile(p.UID), slim(p), false)
		}
	}
	c.given = given
}

// note takes over which pods there are, and says what of the directory is to be kept for them.
func (c *Cache) note(pods []*v1.Pod, complete bool) (keep map[string]bool) {
	used := map[string]bool{}
	for _, p := range pods {
		uses(p, func(file string) { used[file] = true })
	}
	keep = make(map[string]bool, len(used)+len(pods))
	for file := range used {
		keep[file] = c.may(file)
	}
	for _, p := range pods {
		if remembered(p) {
			keep[podFile(p.UID)] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !complete && !c.complete {
		for file := range c.used { // a set that is not complete takes nothing away
			used[file] = true
		}
	}
	c.used = used
	c.complete = c.complete || complete
	return keep
}

// remembered says that a pod is to start again after a reboot.
func remembered(p *v1.Pod) bool { return p.DeletionTimestamp == nil && p.UID != "" }
