package staticpod

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
)

const (
	defaultEvery  = 20 * time.Second
	fetchTimeout  = 10 * time.Second
	firstFailures = 3 // in a row, that are warnings; the rest is for debugging
	maxRedirects  = 10
)

// URLConfig describes a URL. URL and Node are required.
type URLConfig struct {
	URL    string      // of a Pod or a PodList, YAML or JSON; http or https
	Header http.Header // sent along; not to another host that the first one sends on to
	Node   string      // name of this node; becomes part of the pods' names

	Every   time.Duration // time between two requests; 0 means 20 s
	Client  *http.Client  // nil: one of its own, which gives up after 10 s
	Observe observe.To    // logger, events about the node, metrics; zero is silent
}

// URL is a pod source that asks an address again and again; see the package comment for what it promises.
type URL struct {
	cfg     URLConfig
	log     *slog.Logger
	metrics urlMetrics
	shown   string // the address without what may be secret
	origin  origin

	ran atomic.Bool

	// Of Run alone:
	sum      [sha256.Size]byte // of the text last read, good or bad
	read     bool              // sum is one
	trouble  error             // what is wrong with that text
	failures int               // in a row
	early    int               // failures before the first good text
	sent     []*v1.Pod
	started  bool // something was sent
	sure     bool // the set was complete once
}

// NewURL checks the configuration. Nothing is asked before Run.
func NewURL(cfg URLConfig) (*URL, error) {
	if cfg.URL == "" || cfg.Node == "" {
		return nil, errors.New("staticpod: URL and Node are required")
	}
	if len(validation.IsDNS1123Subdomain(strings.ToLower(cfg.Node))) > 0 {
		return nil, fmt.Errorf("staticpod: node name %q is not a DNS name", cfg.Node)
	}
	address, err := url.Parse(cfg.URL)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, errors.New("staticpod: the address of manifests is not one like https://host/path") // what it is may hold a password
	}
	if cfg.Every < 0 {
		return nil, fmt.Errorf("staticpod: Every %v must not be negative", cfg.Every)
	}
	m, err := newURLMetrics(cfg.Observe)
	if err != nil {
		return nil, fmt.Errorf("staticpod: make metrics: %w", err)
	}
	cfg.Every = cmp.Or(cfg.Every, defaultEvery)
	cfg.Header = cfg.Header.Clone()
	u := &URL{cfg: cfg, log: cfg.Observe.Logger(), metrics: m}
	address.User = nil
	u.origin = origin{sourceHTTP, cfg.Node, address.String()}
	address.RawQuery, address.Fragment = "", ""
	u.shown = address.String()
	return u, nil
}

// Run delivers the pods of the address, each time they change, until ctx ends; then it returns nil. It is called once. set
// is called from the goroutine of Run; the pods are shared and must not be changed.
func (u *URL) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	if !u.ran.CompareAndSwap(false, true) {
		return fmt.Errorf("staticpod: the URL of %s ran before; NewURL makes another, which tells of all pods again", u.shown)
	}
	client, done := u.client()
	defer done()
	for ctx.Err() == nil {
		next := time.NewTimer(u.step(ctx, client, set))
		select {
		case <-ctx.Done():
		case <-next.C:
		}
		next.Stop()
	}
	return nil
}

// client is what asks, and what is to be done in the end.
func (u *URL) client() (c *http.Client, done func()) {
	c, done = &http.Client{Timeout: fetchTimeout}, func() {}
	if u.cfg.Client != nil {
		*c = *u.cfg.Client
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		c.Transport, done = t, t.CloseIdleConnections
	}
	if c.CheckRedirect == nil {
		c.CheckRedirect = u.redirect
	}
	return c, done
}

// redirect keeps the headers, which may be secret, from another host.
func (u *URL) redirect(r *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("is sent on more than %d times", maxRedirects)
	}
	if first := via[0].URL; r.URL.Host != first.Host || r.URL.Scheme != first.Scheme && r.URL.Scheme != "https" {
		for name := range u.cfg.Header {
			r.Header.Del(name)
		}
	}
	return nil
}

// step asks once. It says when to ask again.
func (u *URL) step(ctx context.Context, client *http.Client, set func([]*v1.Pod, bool)) time.Duration {
	b, err := u.fetch(ctx, client)
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		u.metrics.requests.Record(1, "failed")
		u.fails(ctx, err)
	} else if err = u.take(ctx, b, set); err != nil {
		u.metrics.requests.Record(1, "refused")
	} else {
		u.metrics.requests.Record(1, "ok")
		if u.failures > 0 {
			u.log.Info("static pods can be had from their address again", "url", u.shown)
		}
		u.failures = 0
	}
	if !u.started {
		u.started = true
		set(nil, false) // so that nobody waits for this source with what is known otherwise
	}
	if u.sure || err == nil {
		return u.cfg.Every
	}
	u.early++
	return min(u.cfg.Every, time.Second<<min(u.early-1, 10)) // the network may just be coming up
}

// fetch is the text at the address.
func (u *URL) fetch(ctx context.Context, client *http.Client) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.cfg.URL, nil)
	if err != nil {
		return nil, errors.New("the address is not valid")
	}
	for name, values := range u.cfg.Header {
		r.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	r.Host = cmp.Or(r.Header.Get("Host"), r.Host)
	resp, err := client.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the address and its secrets
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(b) > MaxBytes:
		return nil, fmt.Errorf("answers more than %d MiB; manifests are far smaller", MaxBytes>>20)
	case len(b) == 0:
		return nil, errors.New("answers nothing; to end its pods, answer a PodList without items")
	}
	return b, nil
}

// take makes pods of the text, and delivers them when they are others than before. Text that cannot be used leaves all as
// it is.
func (u *URL) take(ctx context.Context, b []byte, set func([]*v1.Pod, bool)) error {
	sum := sha256.Sum256(b)
	if u.read && sum == u.sum {
		return u.trouble // which was told
	}
	u.read, u.sum = true, sum
	pods, err := u.pods(b, time.Now())
	u.trouble = err
	if err != nil {
		u.fails(ctx, err)
		if u.failures <= firstFailures {
			u.event(err.Error())
		}
		return err
	}
	if u.sure && slices.Equal(pods, u.sent) {
		return nil
	}
	u.started, u.sent, u.sure = true, pods, true
	set(slices.Clone(pods), true)
	return nil
}

// pods reads all of them, or none. One that is as it was before is the same object.
func (u *URL) pods(b []byte, now time.Time) ([]*v1.Pod, error) {
	all, warnings, err := readAll(b)
	for _, w := range warnings {
		u.log.Warn("static pod manifest is accepted, but look at it", "url", u.shown, "warning", w)
	}
	if err != nil {
		return nil, err
	}
	old := map[string]*v1.Pod{}
	for _, p := range u.sent {
		old[podspec.FullName(p)] = p
	}
	var pods []*v1.Pod
	taken := map[string]bool{}
	for _, m := range all {
		p, err := u.origin.place(m, now)
		if err != nil {
			return nil, err
		}
		name, id := "name "+p.Namespace+"/"+p.Name, "uid "+string(p.UID)
		if taken[name] || taken[id] {
			u.log.Warn("static pod is left out; one before it in the list has its name or uid", "url", u.shown, "pod", p.Namespace+"/"+p.Name, "uid", p.UID)
			u.event(p.Namespace + "/" + p.Name + " is left out: one before it in the list has its name or uid")
			continue
		}
		taken[name], taken[id] = true, true
		if o := old[podspec.FullName(p)]; o != nil && same(o, p) {
			p = o
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// fails tells of a failure. A few are worth a line; the same trouble for hours is not.
func (u *URL) fails(ctx context.Context, err error) {
	u.failures++
	level := slog.LevelWarn
	if u.failures > firstFailures {
		level = slog.LevelDebug
	}
	u.log.Log(ctx, level, "static pods of an address cannot be had; those of its last good answer keep running",
		"url", u.shown, "err", err, "failures", u.failures)
}

func (u *URL) event(message string) {
	u.cfg.Observe.Event(observe.Event{
		About:   observe.Ref{Kind: "Node", Name: u.cfg.Node, UID: u.cfg.Node},
		Warning: true, Reason: "FailedValidation", Message: u.shown + ": " + message,
	})
}
