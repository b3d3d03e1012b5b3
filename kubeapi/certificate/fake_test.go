package certificate

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	certv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	life time.Duration
	back time.Duration // by which the beginning of a life is dated back
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, life: 100 * time.Hour}
}

// sign makes a certificate of what is asked for, as PEM.
func (a *authority) sign(public crypto.PublicKey, want *x509.CertificateRequest) []byte {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	template := &x509.Certificate{
		SerialNumber: serial, Subject: want.Subject, DNSNames: want.DNSNames, IPAddresses: want.IPAddresses,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-a.back).Truncate(time.Second), NotAfter: time.Now().Add(a.life).Truncate(time.Second),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair is a certificate of a node with its key, as PEM.
func (a *authority) pair(t testing.TB, want *x509.CertificateRequest) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return a.sign(&k.PublicKey, want), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// server is a Requester: the API server with its approver and signer.
type server struct {
	ca *authority

	mu       sync.Mutex
	requests map[string]*certv1.CertificateSigningRequest
	created  []*certv1.CertificateSigningRequest // also those that were there already
	calls    int
	trouble  error  // what all calls answer
	mode     string // "": approve and sign at once; deny, fail, pend, strip (no addresses), other (for somebody else)
}

func newServer(t testing.TB) *server {
	t.Helper()
	return &server{ca: newAuthority(t), requests: map[string]*certv1.CertificateSigningRequest{}}
}

var resource = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}

func (s *server) CreateRequest(_ context.Context, r *certv1.CertificateSigningRequest) (*certv1.CertificateSigningRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.trouble != nil {
		return nil, s.trouble
	}
	r = r.DeepCopy()
	s.created = append(s.created, r)
	if s.requests[r.Name] != nil {
		return nil, apierrors.NewAlreadyExists(resource, r.Name)
	}
	r.UID = types.UID(rand.Text())
	s.requests[r.Name] = r
	return r.DeepCopy(), nil
}

func (s *server) Request(_ context.Context, name string) (*certv1.CertificateSigningRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.trouble != nil {
		return nil, s.trouble
	}
	r := s.requests[name]
	if r == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	if len(r.Status.Conditions) == 0 {
		s.decide(r)
	}
	return r.DeepCopy(), nil
}

// decide does what approver and signer do.
func (s *server) decide(r *certv1.CertificateSigningRequest) {
	add := func(c certv1.RequestConditionType) {
		r.Status.Conditions = append(r.Status.Conditions, certv1.CertificateSigningRequestCondition{Type: c, Reason: "Why", Message: "because"})
	}
	want, err := parseRequest(r.Spec.Request)
	if err != nil {
		return
	}
	switch s.mode {
	case "pend":
		return
	case "deny":
		add(certv1.CertificateDenied)
		return
	case "fail":
		add(certv1.CertificateApproved)
		add(certv1.CertificateFailed)
		return
	case "strip":
		want.IPAddresses = nil
	case "other":
		want.Subject.CommonName = "system:node:other"
	}
	add(certv1.CertificateApproved)
	r.Status.Certificate = s.ca.sign(want.PublicKey, want)
}

func (s *server) set(mode string, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode, s.trouble = mode, trouble
}

// live sets how long certificates are good for.
func (s *server) live(life time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ca.life = life
}

// backdate sets how much older than they are certificates pretend to be.
func (s *server) backdate(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ca.back = by
}

// different is how many requests there are.
func (s *server) different() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// count of requests made, and of calls.
func (s *server) count() (requests, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.created), s.calls
}
