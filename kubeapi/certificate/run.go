package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	lookEvery   = 10 * time.Second // between two looks at the certificate and what it should be for
	lookSoon    = time.Second      // the same while something is amiss
	retryFirst  = 2 * time.Second
	retryMax    = 32 * time.Second
	retryJitter = 0.1
	requestWait = 15 * time.Minute // for approval and signature; and after a refusal, before the next request
	successWait = time.Minute      // before the next request for the same, whatever was issued
	shortest    = 10 * time.Second // a life less than which is a mistake of the signer, and no reason to ask more often
	giveUp      = 5 * time.Minute  // without a good certificate, while the API server refuses
)

// Run keeps the certificate until ctx ends and then returns nil. It fails with ErrNoCredentials alone, which never
// comes of a serving certificate.
func (m *Manager) Run(ctx context.Context) error {
	for {
		err := m.Check(ctx)
		switch {
		case errors.Is(err, ErrNoCredentials):
			return err
		case err != nil && ctx.Err() == nil:
			m.log.Warn("no new certificate; trying again", "signer", m.signer, "after", time.Until(m.next).Round(time.Second), "err", err)
		}
		m.metrics.tell(m.Current())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(m.pause(time.Now())):
		}
	}
}

// pause is the time until the next look: often while something is amiss, and not past the time to renew.
func (m *Manager) pause(now time.Time) time.Duration {
	left := m.renew.Sub(now)
	if m.Current() == nil || m.failures > 0 || left <= 0 {
		return lookSoon
	}
	return min(lookEvery, left)
}

// Check looks once whether a certificate is to be asked for, and asks: it blocks until the request is decided, for up to
// 15 minutes. Run calls it again and again; it is not called by two at once.
func (m *Manager) Check(ctx context.Context) error {
	now, want := time.Now(), m.want()
	good := m.Current() != nil
	switch {
	case good:
		m.without = time.Time{}
	case m.without.IsZero():
		m.without = now
	}
	reason := why(m.leaf(), want, m.renew, now)
	if reason == "" || good && m.once || now.Before(m.next) && sameRequest(want, m.asked) {
		return nil
	}
	m.asked = want
	m.log.Info("asking for a certificate", "signer", m.signer, "subject", want.Subject.CommonName, "reason", reason)
	pair, err := m.ask(ctx, want)
	if err != nil {
		return m.failed(ctx, err)
	}
	m.succeeded(pair, want)
	return nil
}

// ask gets a new pair and stores it.
func (m *Manager) ask(ctx context.Context, want *x509.CertificateRequest) (*tls.Certificate, error) {
	key, keyText, err := m.store.pendingKey(m.leaf())
	if err != nil {
		return nil, fmt.Errorf("key for a new certificate: %w", err)
	}
	certs, err := m.obtain(ctx, m.requester(), key, want)
	if err != nil {
		return nil, err
	}
	if err := usable(certs, keyText, want); err != nil {
		return nil, fmt.Errorf("what the signer %s issued: %w: %w", m.signer, err, errRejected)
	}
	pair, err := m.store.save(certs, keyText, time.Now())
	if err != nil {
		return nil, fmt.Errorf("store the new certificate: %w", err)
	}
	return pair, nil
}

// requester is whom to ask now.
func (m *Manager) requester() Requester {
	if m.bootstrap != nil && (m.refused || m.Current() == nil) {
		return m.bootstrap
	}
	return m.requests
}

// usable says what is wrong with what a signer issued.
func usable(certs, key []byte, want *x509.CertificateRequest) error {
	pair, err := tls.X509KeyPair(certs, key)
	if err != nil {
		return err
	}
	if expired(&pair) {
		return fmt.Errorf("it has expired on %s; is the node's clock right?", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if other := otherSubject(pair.Leaf, want); other != "" {
		return errors.New(other)
	}
	return nil
}

func (m *Manager) succeeded(pair *tls.Certificate, want *x509.CertificateRequest) {
	now := time.Now()
	if old := m.leaf(); old != nil {
		m.metrics.lived.Record(now.Sub(old.NotBefore).Seconds())
	}
	m.set(pair)
	m.renew = renewAt(pair.Leaf, rand.Float64())
	m.next, m.failures, m.refused, m.without = now.Add(before(pair.Leaf, now, successWait)), 0, false, time.Time{}
	m.log.Info("new certificate", "signer", m.signer, "file", m.store.current(), "expires", pair.Leaf.NotAfter, "renewed", m.renew)
	if lacks := missing(pair.Leaf, want); lacks != "" {
		m.next = now.Add(before(pair.Leaf, now, requestWait))
		m.log.Warn("new certificate is not for all that was asked", "signer", m.signer, "reason", lacks)
	}
	if err := m.store.dropKey(); err != nil {
		m.log.Warn("key of the new certificate left in a second place", "file", m.store.keyPath(), "err", err)
	}
	if m.changed != nil {
		m.changed(pair)
	}
}

// before is a pause that leaves time to renew a certificate while it is good.
func before(leaf *x509.Certificate, now time.Time, pause time.Duration) time.Duration {
	if left := leaf.NotAfter.Sub(now); left >= shortest {
		return min(pause, left/2)
	}
	return pause
}

// failed decides when to ask again, and whether there is a point in it.
func (m *Manager) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.metrics.failures.Record(1)
	wait := min(retryFirst<<min(m.failures, 8), retryMax)
	wait += time.Duration(rand.Float64() * retryJitter * float64(wait))
	m.failures++
	now := time.Now()
	if leaf := m.leaf(); leaf != nil && now.Before(leaf.NotAfter) { // the less of it is left the more often
		wait = min(wait, max(leaf.NotAfter.Sub(now)/2, lookSoon))
	}
	switch {
	case errors.Is(err, errRejected):
		err = errors.Join(err, m.store.dropKey())
		wait = requestWait
	case errors.Is(err, errForeign):
		err = errors.Join(err, m.store.dropKey())
	case errors.Is(err, errOvertaken), errors.Is(err, errUndecided):
		wait = 0
	}
	m.next = now.Add(wait)
	m.refused = !m.refused && apierrors.IsUnauthorized(err)
	answers := apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	if m.signer == clientSigner && answers && !m.without.IsZero() && now.Sub(m.without) >= giveUp {
		return fmt.Errorf("%w for %s, and the API server refuses to give one: %w; start with a bootstrap kubeconfig that has a valid token, or put a new certificate and its key into %s",
			ErrNoCredentials, now.Sub(m.without).Round(time.Second), err, m.store.current())
	}
	return err
}
