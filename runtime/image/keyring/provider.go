package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Kinds of tokenAttributes.cacheType.
const (
	cacheToken   = "Token"
	cacheAccount = "ServiceAccount"
)

// tokenSeconds is how long tokens for providers are good, the API's default.
const tokenSeconds = 3600

// purgeEvery is how often answers that are too old are thrown away.
const purgeEvery = 15 * time.Minute

// plugin is a provider in use: whom it is asked for, and what it answered.
type plugin struct {
	Provider
	account func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	token   func(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (string, time.Time, error)
	ask     func(ctx context.Context, q request) (*response, error)
	metrics *metrics

	mu      sync.Mutex // guards the rest
	cache   map[string]kept
	purged  time.Time
	flights map[string]*flight
}

// kept is an answer and how long it is good.
type kept struct {
	entries map[string]login
	until   time.Time
}

// answer is what a provider says about one image for one pod.
type answer struct {
	entries map[string]login
	account *runtime.ObjectRef // nil: it was asked for nobody in particular
	err     error
}

func (p *plugin) wants(repository string) bool {
	return slices.ContainsFunc(p.MatchImages, func(m string) bool { return matches(m, repository) })
}

// provide is what the provider says, remembered or asked for.
func (p *plugin) provide(ctx context.Context, pod *v1.Pod, repository string) answer {
	who, err := p.identify(ctx, pod)
	if err != nil || who == nil {
		return answer{err: err}
	}
	if entries, ok := p.remembered(repository, who.key, time.Now()); ok {
		return answer{entries: entries, account: who.ref}
	}
	q := request{Image: repository, Token: who.token, Annotations: who.annotations}
	r, err := p.shared(ctx, keyFor(repository, who.hash(), mapKey(who.annotations)), q)
	if err != nil {
		return answer{err: err}
	}
	if who.token != "" && p.TokenAttributes.CacheType != cacheToken {
		for _, a := range r.Auth {
			if a.Password == who.token {
				return answer{err: fmt.Errorf("it gave back the service account's token as password, which needs cacheType %s", cacheToken)}
			}
		}
	}
	entries, err := p.remember(r, repository, who.key, time.Now())
	return answer{entries: entries, account: who.ref, err: err}
}

// asker is the service account a provider is asked for; the zero value is nobody.
type asker struct {
	ref         *runtime.ObjectRef
	token       string
	annotations map[string]string
	key         string // of the cache
}

func (a *asker) hash() string {
	if a.token == "" {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(a.token)))
}

// identify gets the token a provider wants. nil: this provider is not for this pod.
func (p *plugin) identify(ctx context.Context, pod *v1.Pod) (*asker, error) {
	t := p.TokenAttributes
	name := pod.Spec.ServiceAccountName
	switch {
	case t == nil, name == "" && !*t.Require:
		return &asker{}, nil
	case name == "":
		return nil, nil
	case p.account == nil || p.token == nil:
		return nil, errors.New("it wants a service account's token, and this agent has none to give")
	}
	account, err := p.account(ctx, pod.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", pod.Namespace, name, err)
	}
	annotations := map[string]string{}
	for _, key := range t.RequiredKeys {
		value, ok := account.Annotations[key]
		if !ok {
			return nil, nil // how an account says that it wants no part in this
		}
		annotations[key] = value
	}
	for _, key := range t.OptionalKeys {
		if value, ok := account.Annotations[key]; ok {
			annotations[key] = value
		}
	}
	token, _, err := p.token(ctx, pod, t.Audience, tokenSeconds)
	if err != nil {
		return nil, fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, name, err)
	}
	a := &asker{ref: &runtime.ObjectRef{Namespace: pod.Namespace, Name: name, UID: account.UID}, token: token, annotations: annotations}
	a.key = keyFor(pod.Namespace, name, string(account.UID), mapKey(annotations))
	if t.CacheType == cacheToken {
		a.key = keyFor(a.key, a.hash())
	}
	return a, nil
}

// remembered looks for an answer for the image, then for its registry, then for everything.
func (p *plugin) remembered(repository, who string, now time.Time) (map[string]login, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.purged) > purgeEvery {
		for key, k := range p.cache {
			if !now.Before(k.until) {
				delete(p.cache, key)
			}
		}
		p.purged = now
	}
	for _, kind := range []string{byImage, byRegistry, forAll} {
		if k, ok := p.cache[scope(kind, repository, who)]; ok && now.Before(k.until) {
			return k.entries, true
		}
	}
	return nil, false
}

// remember keeps an answer for as long as it says.
func (p *plugin) remember(r *response, repository, who string, now time.Time) (map[string]login, error) {
	if !slices.Contains([]string{byImage, byRegistry, forAll}, r.CacheKeyType) {
		return nil, fmt.Errorf("cacheKeyType %q in its answer must be %s, %s or %s", r.CacheKeyType, byImage, byRegistry, forAll)
	}
	entries := make(map[string]login, len(r.Auth))
	for pattern, a := range r.Auth {
		entries[pattern] = login{Username: a.Username, Password: a.Password}
	}
	lasts := p.DefaultCacheDuration.Duration
	if r.CacheDuration != nil {
		lasts = r.CacheDuration.Duration
	}
	if lasts > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cache[scope(r.CacheKeyType, repository, who)] = kept{entries, now.Add(lasts)}
	}
	return entries, nil
}

// scope is the key of an answer that is good for more or less.
func scope(kind, repository, who string) string {
	switch kind {
	case byRegistry:
		repository, _, _ = strings.Cut(repository, "/")
	case forAll:
		repository = ""
	}
	return keyFor(kind, repository, who)
}

// keyFor joins parts so that no two lists of them are alike.
func keyFor(parts ...string) string {
	b, _ := json.Marshal(parts) // strings: cannot fail
	return string(b)
}

func mapKey(m map[string]string) string {
	b, _ := json.Marshal(m) // sorted by key
	return string(b)
}
