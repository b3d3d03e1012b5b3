package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// run starts a Manager in a bubble; the test ends once it has.
func run(t *testing.T, m *Manager) (failed func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	return func() error {
		select {
		case err := <-done:
			done <- err
			return err
		default:
			return nil
		}
	}
}

func TestAFirstCertificate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var told []*tls.Certificate
		m, err := NewClient(ClientConfig{Node: "n1", Dir: dir, Bootstrap: s, Changed: func(c *tls.Certificate) { told = append(told, c) }})
		if err != nil {
			t.Fatal(err)
		}
		if shown, err := m.GetClientCertificate(nil); err != nil || len(shown.Certificate) > 0 {
			t.Errorf("without one it shows %v, %v", shown, err)
		}
		run(t, m)
		if err := m.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := m.Current().Leaf.Subject; s.CommonName != "system:node:n1" || s.Organization[0] != "system:nodes" {
			t.Errorf("it is for %v", s)
		}
		if len(told) != 1 || told[0] != m.Current() {
			t.Errorf("told of %d", len(told))
		}
		if _, err := os.Stat(filepath.Join(dir, "kubelet-client.key.tmp")); !os.IsNotExist(err) {
			t.Errorf("the key waits on: %v", err)
		}
		if again, err := NewClient(ClientConfig{Node: "n1", Dir: dir, Requests: s}); err != nil || again.Current() == nil {
			t.Errorf("a second start: %v", err)
		}
		time.Sleep(69 * time.Hour)
		if n, _ := s.count(); n != 1 {
			t.Errorf("%d requests before it is time", n)
		}
		time.Sleep(22 * time.Hour)
		synctest.Wait()
		if n, _ := s.count(); n != 2 || len(told) != 2 || told[1] != m.Current() {
			t.Errorf("%d requests, told of %d", n, len(told))
		}
	})
}

// client makes a Manager.
func client(t testing.TB, cfg ClientConfig) *Manager {
	t.Helper()
	cfg.Node = "n1"
	m, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// stored puts a certificate of this life into the directory.
func stored(t testing.TB, ca *authority, prefix, dir string, life time.Duration, want *x509.CertificateRequest) *tls.Certificate {
	t.Helper()
	old := ca.life
	ca.life = life
	cert, key := ca.pair(t, want)
	ca.life = old
	pair, err := (&store{dir: dir, prefix: prefix}).save(cert, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	s := newServer(t)
	addresses := func() []v1.NodeAddress { return nil }
	for name, cfg := range map[string]ClientConfig{
		"no node": {Dir: dir, Requests: s}, "no directory": {Node: "n1", Requests: s}, "nobody to ask": {Node: "n1", Dir: dir},
		"half an initial pair": {Node: "n1", Dir: dir, Requests: s, InitialCert: []byte("x")},
		"a bad initial pair":   {Node: "n1", Dir: dir, Bootstrap: s, InitialCert: []byte("x"), InitialKey: []byte("y")},
	} {
		if m, err := NewClient(cfg); err == nil || m != nil {
			t.Errorf("client, %s: %v", name, err)
		}
	}
	for name, cfg := range map[string]ServingConfig{
		"no node": {Dir: dir, Requests: s, Addresses: addresses}, "no directory": {Node: "n1", Requests: s, Addresses: addresses},
		"nobody to ask": {Node: "n1", Dir: dir, Addresses: addresses}, "no addresses": {Node: "n1", Dir: dir, Requests: s},
	} {
		if m, err := NewServing(cfg); err == nil || m != nil {
			t.Errorf("serving, %s: %v", name, err)
		}
	}
}

func TestAnExpiredClientCertificateAtTheStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		stored(t, s.ca, "kubelet-client", dir, time.Hour, clientRequest("n1"))
		expired := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		time.Sleep(2 * time.Hour)

		_, err := NewClient(ClientConfig{Node: "n1", Dir: dir, Requests: s})
		if !errors.Is(err, ErrNoCredentials) {
			t.Fatal(err)
		}
		for _, part := range []string{filepath.Join(dir, "kubelet-client-current.pem"), expired, "bootstrap kubeconfig"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}

		own := &server{trouble: apierrors.NewUnauthorized("expired")}
		m := client(t, ClientConfig{Dir: dir, Requests: own, Bootstrap: s})
		if m.Current() != nil {
			t.Error("it is shown")
		}
		run(t, m)
		time.Sleep(time.Minute)
		if _, calls := own.count(); m.Current() == nil || calls > 0 {
			t.Errorf("certificate %v; asked with the expired one %d times", m.Current(), calls)
		}
	})
}

func TestADamagedClientCertificateAtTheStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		stored(t, s.ca, "kubelet-client", dir, time.Hour, clientRequest("n1"))
		damaged, err := filepath.EvalSymlinks(filepath.Join(dir, "kubelet-client-current.pem"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, damaged, nil) // as a crash without fsync leaves it
		if _, err := NewClient(ClientConfig{Node: "n1", Dir: dir, Requests: s}); !errors.Is(err, ErrNoCredentials) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
		if err := m.Check(t.Context()); err != nil || m.Current() == nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(damaged); err != nil || len(text) > 0 {
			t.Errorf("the damaged file is not what it was: %q, %v", text, err)
		}
	})
}

func TestAnInitialPairIsStoredAndRenewedAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		cert, key := s.ca.pair(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes", "system:masters"}}})
		m := client(t, ClientConfig{Dir: dir, Requests: s, InitialCert: cert, InitialKey: key})
		if m.Current() == nil || len(m.Current().Leaf.Subject.Organization) != 2 {
			t.Error("it is not shown")
		}
		if pair, _, err := m.store.load(); err != nil || !pair.Leaf.Equal(m.Current().Leaf) {
			t.Errorf("it is not stored: %v", err)
		}
		time.Sleep(time.Second)
		if err := m.Check(t.Context()); err != nil || len(m.Current().Leaf.Subject.Organization) != 1 {
			t.Errorf("it is not renewed: %v", err)
		}
		// The next start finds the renewed one, and leaves the kubeconfig's alone.
		if m := client(t, ClientConfig{Dir: dir, Requests: s, InitialCert: cert, InitialKey: key}); len(m.Current().Leaf.Subject.Organization) != 1 {
			t.Error("the initial one is back")
		}
	})
}

func TestARestartedAgentFindsItsRequest(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.set("pend", nil)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := client(t, ClientConfig{Dir: dir, Bootstrap: s}).Run(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		if s.different() != 1 {
			t.Errorf("%d requests wait", s.different())
		}
		s.set("", nil)
		m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
		if err := m.Check(t.Context()); err != nil || m.Current() == nil || s.different() != 1 {
			t.Errorf("%v, %d requests", err, s.different())
		}
	})
}

func TestARequestNobodyDecides(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.set("pend", nil)
		m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
		start := time.Now()
		err := m.Check(t.Context())
		if waited := time.Since(start); !errors.Is(err, errUndecided) || waited < requestWait || waited > requestWait+pollMax {
			t.Errorf("%v after %v", err, waited)
		}
		if !strings.Contains(err.Error(), "kubectl certificate approve node-csr-") {
			t.Errorf("%v does not say what to do", err)
		}
		if _, calls := s.count(); calls > 110 {
			t.Errorf("%d calls in 15 minutes", calls)
		}
		run(t, m)
		time.Sleep(time.Hour)
		if made, _ := s.count(); made < 4 || made > 6 || s.different() != 1 {
			t.Errorf("%d times asked, %d requests", made, s.different())
		}
		s.mu.Lock()
		clear(s.requests) // collected, as undecided ones are after a day
		s.mu.Unlock()
		s.set("", nil)
		time.Sleep(time.Minute)
		if m.Current() == nil {
			t.Error("not asked anew")
		}
	})
}

func TestARefusedRequestIsNotRepeatedSoon(t *testing.T) {
	for _, mode := range []string{"deny", "fail", "other", "dead"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				s.set(mode, nil)
				if mode == "dead" {
					s.live(-time.Hour)
				}
				m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
				if err := m.Check(t.Context()); !errors.Is(err, errRejected) {
					t.Error(err)
				}
				failed := run(t, m)
				time.Sleep(14 * time.Minute)
				if made, _ := s.count(); made != 1 {
					t.Errorf("%d requests", made)
				}
				s.set("", nil)
				s.live(time.Hour)
				time.Sleep(2 * time.Minute)
				if made, _ := s.count(); made != 2 || s.different() != 2 || m.Current() == nil || failed() != nil {
					t.Errorf("%d requests, of them %d different, %v", made, s.different(), failed())
				}
			})
		})
	}
}

func TestTroubleOfTheAPIServer(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.set("", apierrors.NewInternalError(errors.New("etcd is away")))
		m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
		failed := run(t, m)
		time.Sleep(time.Hour)
		if _, calls := s.count(); calls < 90 || calls > 130 || failed() != nil {
			t.Errorf("%d attempts in an hour, %v", calls, failed())
		}
		s.set("", nil)
		time.Sleep(40 * time.Second)
		if m.Current() == nil {
			t.Error("no certificate once the trouble is over")
		}
	})
}

func TestTroubleWhileWaiting(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.set("pend", nil)
		m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
		run(t, m)
		time.Sleep(time.Minute)
		s.set("", apierrors.NewInternalError(errors.New("etcd is away")))
		time.Sleep(time.Minute)
		s.set("", nil)
		time.Sleep(pollMax)
		if made, _ := s.count(); made != 1 || m.Current() == nil {
			t.Errorf("%d requests", made)
		}
	})
}

func TestADeletedRequestIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.set("pend", nil)
		m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
		run(t, m)
		time.Sleep(time.Minute)
		s.mu.Lock()
		clear(s.requests)
		s.mu.Unlock()
		s.set("", nil)
		time.Sleep(time.Minute)
		if made, _ := s.count(); made != 2 || m.Current() == nil {
			t.Errorf("%d requests", made)
		}
	})
}

func TestSomebodyElsesRequestUnderOurName(t *testing.T) {
	for name, forge := range map[string]func(r *certv1.CertificateSigningRequest, ca *authority){
		"for another key": func(r *certv1.CertificateSigningRequest, _ *authority) {
			key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			other, err := newRequest(r.Spec.SignerName, certv1.UsageClientAuth, key, clientRequest("n1"))
			if err != nil {
				panic(err)
			}
			r.Spec.Request = other.Spec.Request
		},
		"garbage":            func(r *certv1.CertificateSigningRequest, _ *authority) { r.Spec.Request = []byte("x") },
		"for another signer": func(r *certv1.CertificateSigningRequest, _ *authority) { r.Spec.SignerName = "example.org/x" },
		"for other usages":   func(r *certv1.CertificateSigningRequest, _ *authority) { r.Spec.Usages = nil },
		"issued long ago": func(r *certv1.CertificateSigningRequest, ca *authority) {
			ca.life = -time.Hour
			want, _ := parseRequest(r.Spec.Request)
			r.Status.Certificate = ca.sign(want.PublicKey, want)
			r.Status.Conditions = []certv1.CertificateSigningRequestCondition{{Type: certv1.CertificateApproved}}
			ca.life = time.Hour
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
				key, _, err := m.store.pendingKey(nil)
				if err != nil {
					t.Fatal(err)
				}
				r, err := newRequest(m.signer, m.kind, key, m.want())
				if err != nil {
					t.Fatal(err)
				}
				forge(r, s.ca)
				s.requests[r.Name] = r
				if err := m.Check(t.Context()); !errors.Is(err, errForeign) {
					t.Error(err)
				}
				run(t, m)
				time.Sleep(5 * time.Second)
				if m.Current() == nil || s.different() != 2 {
					t.Errorf("no certificate with a new key; %d requests", s.different())
				}
			})
		})
	}
}

func TestAKilledAgentFetchesWhatWasIssued(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
		key, _, err := m.store.pendingKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.obtain(t.Context(), s, key, m.want()); err != nil { // and not stored
			t.Fatal(err)
		}
		m = client(t, ClientConfig{Dir: dir, Bootstrap: s})
		if err := m.Check(t.Context()); err != nil || m.Current() == nil || s.different() != 1 {
			t.Errorf("%v, %d requests", err, s.different())
		}
	})
}

func TestOwnCredentialsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		own := &server{trouble: apierrors.NewUnauthorized("another CA")}
		stored(t, s.ca, "kubelet-client", dir, time.Hour, clientRequest("n1"))
		m := client(t, ClientConfig{Dir: dir, Requests: own, Bootstrap: s})
		old := m.Current()
		run(t, m)
		time.Sleep(56 * time.Minute)
		if _, calls := own.count(); m.Current() == old || calls != 1 {
			t.Errorf("asked with the refused certificate %d times", calls)
		}
	})
}

func TestNoWayToACertificate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		final bool
	}{
		{"the token is refused", apierrors.NewUnauthorized("x"), true},
		{"the token may not ask", apierrors.NewForbidden(resource, "", errors.New("x")), true},
		{"the API server is broken", apierrors.NewInternalError(errors.New("x")), false},
		{"the API server is away", errors.New("connection refused"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				m := client(t, ClientConfig{Dir: dir, Bootstrap: &server{trouble: tt.err}})
				failed := run(t, m)
				time.Sleep(giveUp - time.Second)
				if err := failed(); err != nil {
					t.Errorf("too soon: %v", err)
				}
				time.Sleep(time.Minute)
				if err := failed(); errors.Is(err, ErrNoCredentials) != tt.final {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestARefusalWithAGoodCertificateIsNoEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		stored(t, s.ca, "kubelet-client", dir, 100*time.Hour, clientRequest("n1"))
		s.set("", apierrors.NewUnauthorized("x"))
		failed := run(t, client(t, ClientConfig{Dir: dir, Requests: s}))
		time.Sleep(99 * time.Hour)
		if err := failed(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour + giveUp + time.Minute)
		if err := failed(); !errors.Is(err, ErrNoCredentials) {
			t.Errorf("expired and refused: %v", err)
		}
	})
}

func TestOnceNeverRenews(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		run(t, client(t, ClientConfig{Dir: dir, Bootstrap: s, Once: true}))
		time.Sleep(99 * time.Hour)
		if made, _ := s.count(); made != 1 {
			t.Errorf("%d requests", made)
		}
	})
}

func TestAFullDiskCostsNoRequests(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		m := client(t, ClientConfig{Dir: dir, Bootstrap: s})
		write(t, m.store.path("updated"), []byte("in the way")) // the link cannot be changed
		_, _, _ = m.store.pendingKey(nil)
		run(t, m)
		time.Sleep(time.Hour)
		if m.Current() != nil || s.different() != 1 {
			t.Errorf("%d requests", s.different())
		}
		if err := os.Remove(m.store.path("updated")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if m.Current() == nil || s.different() != 1 {
			t.Errorf("%d requests", s.different())
		}
	})
}
