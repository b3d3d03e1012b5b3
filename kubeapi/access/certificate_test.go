package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/reread"
)

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	a := authority{}
	return a.make(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign})
}

func (a authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// make signs a certificate with a key of its own; without times it is good for an hour.
func (a authority) make(t testing.TB, template *x509.Certificate) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(17)
	template.BasicConstraintsValid = true
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

// client is a certificate for somebody, for client authentication.
func (a authority) client(t testing.TB, name string, change func(*x509.Certificate)) authority {
	t.Helper()
	c := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{"admins", "others"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(c)
	}
	return a.make(t, c)
}

func shown(ctx context.Context, certs ...authority) *http.Request {
	r := request(ctx)
	r.TLS = &tls.ConnectionState{}
	for _, c := range certs {
		r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, c.cert)
	}
	return r
}

func TestClientCertificates(t *testing.T) {
	ca := newAuthority(t)
	between := ca.make(t, &x509.Certificate{Subject: pkix.Name{CommonName: "between"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign})
	uid := func(values ...any) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, v := range values {
				c.Subject.ExtraNames = append(c.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: v})
			}
		}
	}
	for _, tt := range []struct {
		name   string
		shown  []authority
		user   string
		uid    string
		failed bool
	}{
		{name: "nothing shown"},
		{name: "a good one", shown: []authority{ca.client(t, "anna", nil)}, user: "anna"},
		{name: "by way of one between that is shown too", shown: []authority{between.client(t, "anna", nil), between}, user: "anna"},
		{name: "by way of one between that is not shown", shown: []authority{between.client(t, "anna", nil)}, failed: true},
		{name: "of somebody else's CA", shown: []authority{newAuthority(t).client(t, "anna", nil)}, failed: true},
		{name: "of somebody else's CA that is shown", shown: func() []authority {
			other := newAuthority(t)
			return []authority{other.client(t, "anna", nil), other}
		}(), failed: true},
		{name: "a serving certificate", shown: []authority{ca.client(t, "anna", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})}, failed: true},
		{name: "one without usages is good for all", shown: []authority{ca.client(t, "anna", func(c *x509.Certificate) { c.ExtKeyUsage = nil })}, user: "anna"},
		{name: "expired", shown: []authority{ca.client(t, "anna", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Second)
		})}, failed: true},
		{name: "not yet valid", shown: []authority{ca.client(t, "anna", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Minute), time.Now().Add(time.Hour)
		})}, failed: true},
		{name: "without a name", shown: []authority{ca.client(t, "", nil)}},
		{name: "with a uid", shown: []authority{ca.client(t, "anna", uid("7"))}, user: "anna", uid: "7"},
		{name: "with two uids", shown: []authority{ca.client(t, "anna", uid("7", "8"))}, failed: true},
		{name: "with an empty uid", shown: []authority{ca.client(t, "anna", uid(""))}, failed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := x509.NewCertPool()
			pool.AddCert(ca.cert)
			for _, anon := range []bool{false, true} {
				a := open(t, &cluster{}, func(c *Config) {
					c.ClientCAs = func() *x509.CertPool { return pool }
					c.Anonymous = anon
				})
				user, err := a.Authenticate(shown(t.Context(), tt.shown...))
				switch {
				case (err != nil) != tt.failed:
					t.Errorf("error %v", err)
				case tt.user == "" && tt.failed, tt.user == "" && !anon:
					if user != nil {
						t.Errorf("it is %+v", user)
					}
				case tt.user == "" && anon:
					if user == nil || user.Username != anonymous {
						t.Errorf("it is %+v", user)
					}
				case user.Username != tt.user || user.UID != tt.uid || !slices.Equal(user.Groups, []string{"admins", "others", authenticated}) ||
					!strings.HasPrefix(user.Extra["authentication.kubernetes.io/credential-id"][0], "X509SHA256="):
					t.Errorf("it is %+v", user)
				}
			}
		})
	}
}

func TestABadCertificateDoesNotStandInTheWayOfAGoodToken(t *testing.T) {
	ca := newAuthority(t)
	a := open(t, &cluster{}, func(c *Config) {
		c.ClientCAs = x509.NewCertPool
	})
	r := shown(t.Context(), ca.client(t, "bert", nil))
	r.Header.Set("Authorization", "Bearer token-anna")
	if user, err := a.Authenticate(r); err != nil || user.Username != "anna" {
		t.Errorf("%+v, %v", user, err)
	}
}

func TestWithoutAClientCACertificatesMeanNothing(t *testing.T) {
	ca := newAuthority(t)
	for name, cas := range map[string]func() *x509.CertPool{"none": nil, "none yet": func() *x509.CertPool { return nil }} {
		a := open(t, &cluster{}, func(c *Config) { c.ClientCAs = cas })
		if user, err := a.Authenticate(shown(t.Context(), ca.client(t, "anna", nil))); user != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, user, err)
		}
	}
}

func TestTheClientCAFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	write := func(text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		old, next := newAuthority(t), newAuthority(t)
		write(append([]byte("# comment\n"), old.PEM()...))
		a := open(t, &cluster{}, func(c *Config) { c.ClientCAFile = path })
		knows := func(ca authority) bool {
			user, err := a.Authenticate(shown(t.Context(), ca.client(t, "anna", nil)))
			return user != nil && err == nil
		}
		for _, step := range []struct {
			name      string
			text      []byte
			old, next bool
		}{
			{"as it was", nil, true, false},
			{"both", append(old.PEM(), next.PEM()...), true, true},
			{"half written", old.PEM()[:len(old.PEM())/2], true, true},
			{"garbage", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), true, true},
			{"a key", []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"), true, true},
			{"the next only", next.PEM(), false, true},
		} {
			if step.text != nil {
				write(step.text)
			}
			time.Sleep(reread.Every)
			if knows(old) != step.old || knows(next) != step.next {
				t.Errorf("%s: knows the old: %v, the next: %v", step.name, knows(old), knows(next))
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reread.Every)
		if !knows(next) {
			t.Error("removed: the last good content is forgotten")
		}
	})
}

func TestOverTLS(t *testing.T) {
	ca, bad := newAuthority(t), newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	a := open(t, &cluster{}, func(c *Config) { c.ClientCAs = func() *x509.CertPool { return pool } })
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := a.Authenticate(r)
		if user == nil || err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, user.Username)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	serving := newAuthority(t)
	s.TLS = a.RequestCertificates(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair(serving)}})
	s.StartTLS()
	defer s.Close()

	for name, tt := range map[string]struct {
		certs []tls.Certificate
		code  int
	}{
		"good":    {[]tls.Certificate{pair(ca.client(t, "anna", nil))}, http.StatusOK},
		"bad":     {[]tls.Certificate{pair(bad.client(t, "anna", nil))}, http.StatusUnauthorized},
		"nothing": {nil, http.StatusUnauthorized},
	} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // the other side is not what is tested
			GetClientCertificate: func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(r.AcceptableCAs) != 1 {
					t.Errorf("%s: the server names %d CAs", name, len(r.AcceptableCAs))
				}
				if len(tt.certs) == 0 {
					return &tls.Certificate{}, nil
				}
				return &tt.certs[0], nil
			},
		}}
		res, err := (&http.Client{Transport: tr}).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		tr.CloseIdleConnections()
		if res.StatusCode != tt.code {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
}

func pair(a authority) tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
