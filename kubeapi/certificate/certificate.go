package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
)

// Requester makes requests for certificates at the API server. It is called from one goroutine and returns soon after
// ctx ends. Its errors are those of the API server (k8s.io/apimachinery/pkg/api/errors).
type Requester interface {
	// CreateRequest creates r and returns it as it is then.
	CreateRequest(ctx context.Context, r *certv1.CertificateSigningRequest) (*certv1.CertificateSigningRequest, error)

	// Request returns the request of that name.
	Request(ctx context.Context, name string) (*certv1.CertificateSigningRequest, error)
}

// ErrNoCredentials says that the node has nothing to show that the API server accepts, and no way to get it.
var ErrNoCredentials = errors.New("no good client certificate")

// ClientConfig describes the Manager of a client certificate. Node, Dir and at least one of Requests and Bootstrap are
// required.
type ClientConfig struct {
	Node string // name of the node
	Dir  string // where the files are, /var/lib/kubelet/pki for instance; made when needed

	Requests  Requester // asks with the node's own certificate: GetClientCertificate; nil: Bootstrap does it
	Bootstrap Requester // asks with other credentials, while there is no good certificate, or the API server refuses it; nil: there are none

	// A pair to start with when the directory has none: files, used as they are until it is time to renew...
	CertFile, KeyFile string
	// ...or PEM text, as in a kubeconfig that kubeadm writes. It is stored, and renewed at once.
	InitialCert, InitialKey []byte

	Once bool // never renew a good certificate

	// Changed is told of each new certificate, after the Manager hands it out. It does not block. Connections made with the one
	// before should be closed soon: the API server checks certificates only when a connection begins.
	Changed func(*tls.Certificate)

	Observe observe.To // logger, metrics; zero is silent
}

// ServingConfig describes the Manager of a serving certificate. Node, Dir, Requests and Addresses are required.
type ServingConfig struct {
	Node     string    // name of the node
	Dir      string    // as ClientConfig has it
	Requests Requester // asks with the node's credentials

	// Addresses of the node as its status has them; the certificate is for all names and IP addresses among them. It is
	// called every few seconds and returns at once. As long as there is no IP address, nothing is asked for.
	Addresses func() []v1.NodeAddress

	CertFile, KeyFile string                 // a pair to start with when the directory has none
	Changed           func(*tls.Certificate) // as ClientConfig has it; nil: nobody

	Observe observe.To // logger, metrics; zero is silent
}

// Manager keeps one certificate.
type Manager struct {
	kind                certv1.KeyUsage // client auth, server auth
	signer              string
	requests, bootstrap Requester
	once                bool
	want                func() *x509.CertificateRequest // nil: nothing to ask for yet
	changed             func(*tls.Certificate)
	store               store
	log                 *slog.Logger
	metrics             metrics

	mu      sync.Mutex // guards pair
	pair    *tls.Certificate
	have    chan struct{} // closed once there was a good certificate
	nowHave func()

	// Of Check alone.
	renew    time.Time                // when the current certificate is to be renewed
	asked    *x509.CertificateRequest // for what the last request was
	next     time.Time                // not to be asked again before, for the same
	failures int                      // since the last success
	refused  bool                     // the API server does not accept the current certificate
	without  time.Time                // since when there is no good certificate; zero: there is
}

// NewClient makes the Manager of the certificate that a node shows to the API server, and reads what is on disk. When that
// is of no use and there is no Bootstrap, the error is ErrNoCredentials.
func NewClient(cfg ClientConfig) (*Manager, error) {
	switch {
	case cfg.Node == "" || cfg.Dir == "":
		return nil, errors.New("certificate: Node and Dir are required")
	case cfg.Requests == nil && cfg.Bootstrap == nil:
		return nil, errors.New("certificate: Requests or Bootstrap is required")
	}
	ins := cfg.Observe.Instruments()
	m := newManager(certv1.UsageClientAuth, store{cfg.Dir, "kubelet-client", cfg.CertFile, cfg.KeyFile}, cfg.Observe, clientMetrics(ins))
	if ins.Err != nil {
		return nil, fmt.Errorf("certificate: %w", ins.Err)
	}
	m.signer = certv1.KubeAPIServerClientKubeletSignerName
	m.requests, m.bootstrap, m.once = cfg.Requests, cfg.Bootstrap, cfg.Once
	if m.requests == nil {
		m.requests = cfg.Bootstrap
	}
	want := clientRequest(cfg.Node)
	m.want = func() *x509.CertificateRequest { return want }
	m.changed = cfg.Changed
	if err := m.startClient(cfg.InitialCert, cfg.InitialKey); err != nil {
		return nil, err
	}
	m.metrics.tell(m.Current())
	return m, nil
}

// startClient takes what is on disk, or else the initial pair, or else leaves it to bootstrapping.
func (m *Manager) startClient(cert, key []byte) error {
	pair, file, err := m.store.load()
	if err == nil && expired(pair) {
		err = fmt.Errorf("certificate in %s expired on %s", file, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if err == nil {
		m.set(pair)
		m.renew = renewAt(pair.Leaf, rand.Float64())
		return nil
	}
	if len(cert) > 0 && len(key) > 0 {
		return m.startInitial(cert, key)
	}
	if m.bootstrap == nil {
		return fmt.Errorf("%w: %w; start with a bootstrap kubeconfig that has a valid token, or put a new certificate and its key into %s",
			ErrNoCredentials, err, m.store.current())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("client certificate is of no use; asking for a new one with the bootstrap credentials", "err", err)
	}
	return nil
}

// startInitial uses a pair until its successor is there, which is asked for at once.
func (m *Manager) startInitial(cert, key []byte) error {
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err != nil:
		return fmt.Errorf("%w: initial certificate and key: %w", ErrNoCredentials, err)
	case expired(&pair) && m.bootstrap == nil:
		return fmt.Errorf("%w: the initial certificate expired on %s; give one that is good, or a bootstrap kubeconfig", ErrNoCredentials, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case expired(&pair):
		return nil
	}
	if _, err := m.store.save(cert, key, time.Now()); err != nil {
		m.log.Warn("initial certificate not stored", "dir", m.store.dir, "err", err)
	}
	m.set(&pair)
	return nil
}

// NewServing makes the Manager of the certificate that a node's own server shows, and reads what is on disk. What is of no use
// there is asked for anew.
func NewServing(cfg ServingConfig) (*Manager, error) {
	if cfg.Node == "" || cfg.Dir == "" || cfg.Requests == nil || cfg.Addresses == nil {
		return nil, errors.New("certificate: Node, Dir, Requests and Addresses are required")
	}
	ins := cfg.Observe.Instruments()
	m := newManager(certv1.UsageServerAuth, store{cfg.Dir, "kubelet-server", cfg.CertFile, cfg.KeyFile}, cfg.Observe, servingMetrics(ins))
	if ins.Err != nil {
		return nil, fmt.Errorf("certificate: %w", ins.Err)
	}
	m.signer, m.requests, m.changed = certv1.KubeletServingSignerName, cfg.Requests, cfg.Changed
	m.want = func() *x509.CertificateRequest { return servingRequest(cfg.Node, cfg.Addresses()) }

	switch pair, file, err := m.store.load(); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		m.log.Warn("serving certificate is of no use; asking for a new one", "err", err)
	case expired(pair):
		m.log.Warn("serving certificate has expired; asking for a new one", "file", file, "expired", pair.Leaf.NotAfter)
	default:
		m.set(pair)
		m.renew = renewAt(pair.Leaf, rand.Float64())
	}
	m.metrics.tell(m.Current())
	return m, nil
}

func newManager(kind certv1.KeyUsage, s store, o observe.To, mt metrics) *Manager {
	m := &Manager{kind: kind, store: s, log: o.Logger(), metrics: mt, have: make(chan struct{})}
	m.nowHave = sync.OnceFunc(func() { close(m.have) })
	return m
}

// Current is the newest certificate; nil: there is none, or it has expired. It is not changed.
func (m *Manager) Current() *tls.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pair == nil || expired(m.pair) {
		return nil
	}
	return m.pair
}

// Wait returns once there is or was a certificate. Its error is that of ctx.
func (m *Manager) Wait(ctx context.Context) error {
	select {
	case <-m.have:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// GetClientCertificate is for the tls.Config of the way to the API server. Without a good certificate none is shown.
func (m *Manager) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := m.Current(); pair != nil {
		return pair, nil
	}
	return &tls.Certificate{}, nil
}

// GetCertificate is for the tls.Config of a server. Without a good certificate the handshake fails.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := m.Current(); pair != nil {
		return pair, nil
	}
	return nil, errors.New("no serving certificate yet: is its CertificateSigningRequest approved?")
}

func (m *Manager) set(pair *tls.Certificate) {
	m.mu.Lock()
	m.pair = pair
	m.mu.Unlock()
	m.nowHave()
}

// leaf of the certificate that is there, expired or not; nil: there is none.
func (m *Manager) leaf() *x509.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pair == nil {
		return nil
	}
	return m.pair.Leaf
}

func expired(pair *tls.Certificate) bool { return time.Now().After(pair.Leaf.NotAfter) }
