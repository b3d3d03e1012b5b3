package access

import (
	"container/list"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"time"

	authzv1 "k8s.io/api/authorization/v1"
)

// key stands for a question. It cannot be turned back, and with another process's key it is another.
type key [sha256.Size]byte

// keys makes keys.
type keys struct{ secret []byte }

func newKeys() keys {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return keys{secret}
}

func (k keys) sum(text []byte) (out key) {
	h := hmac.New(sha256.New, k.secret)
	_, _ = h.Write(text) // never fails
	h.Sum(out[:0])
	return out
}

func (k keys) token(token string) key { return k.sum([]byte(token)) }

func (k keys) access(spec *authzv1.SubjectAccessReviewSpec) (key, error) {
	text, err := json.Marshal(spec) // keys of maps are sorted
	return k.sum(text), err
}

// cacheSize is how many answers are kept; beyond it the least lately used goes.
const cacheSize = 8192

// cache keeps answers for a while. Of equal questions at one time one is asked; the others wait for its answer. The
// asking is done in the call that came first, under its context; when that ends without an answer, one of those who
// wait asks in its place.
type cache[V any] struct {
	keep func(V) time.Duration // how long; 0 and less: not at all

	mu      sync.Mutex // guards the rest
	entries map[key]*list.Element
	used    list.List // of entry[V]; the latest in front
	flights map[key]*flight[V]
}

type entry[V any] struct {
	key   key
	value V
	until time.Time
}

// flight is a question under way.
type flight[V any] struct {
	done      chan struct{}
	value     V
	err       error
	abandoned bool // the asker left before there was an answer
}

// get returns the answer kept, or asks.
func (c *cache[V]) get(ctx context.Context, k key, ask func(context.Context) (V, error)) (V, error) {
	for {
		value, f, first := c.enter(k)
		if f == nil {
			return value, nil
		}
		if first {
			return c.lead(ctx, k, f, ask)
		}
		select {
		case <-f.done:
			if !f.abandoned {
				return f.value, f.err
			}
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
}

// enter finds the answer, or the flight that will bring it; first is told to whoever has to fly.
func (c *cache[V]) enter(k key) (value V, f *flight[V], first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[k]; ok {
		if kept := e.Value.(entry[V]); time.Now().Before(kept.until) {
			c.used.MoveToFront(e)
			return kept.value, nil, false
		}
		c.drop(e)
	}
	if f, ok := c.flights[k]; ok {
		return value, f, false
	}
	if c.flights == nil {
		c.entries, c.flights = map[key]*list.Element{}, map[key]*flight[V]{}
	}
	f = &flight[V]{done: make(chan struct{}), abandoned: true, err: errors.New("the question was not asked to its end")}
	c.flights[k] = f
	return value, f, true
}

// lead asks for all who wait.
func (c *cache[V]) lead(ctx context.Context, k key, f *flight[V], ask func(context.Context) (V, error)) (V, error) {
	defer func() { // also when ask panics
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.flights, k)
		close(f.done)
	}()
	f.value, f.err = ask(ctx)
	f.abandoned = f.err != nil && ctx.Err() != nil
	if f.err == nil {
		c.put(k, f.value)
	}
	return f.value, f.err
}

func (c *cache[V]) put(k key, value V) {
	ttl := c.keep(value)
	if ttl <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.used.Len() >= cacheSize {
		c.drop(c.used.Back())
	}
	c.entries[k] = c.used.PushFront(entry[V]{key: k, value: value, until: time.Now().Add(ttl)})
}

func (c *cache[V]) drop(e *list.Element) {
	c.used.Remove(e)
	delete(c.entries, e.Value.(entry[V]).key)
}
