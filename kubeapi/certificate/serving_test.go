package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/observe"
)

// node has addresses that change.
type node struct {
	mu        sync.Mutex
	addresses []v1.NodeAddress
}

func (n *node) set(ips ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}}
	for _, ip := range ips {
		n.addresses = append(n.addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
}

func (n *node) get() []v1.NodeAddress {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addresses
}

func serving(t testing.TB, n *node, cfg ServingConfig) *Manager {
	t.Helper()
	cfg.Node, cfg.Addresses = "n1", n.get
	m, err := NewServing(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAServingCertificateFollowsTheAddresses(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, n := newServer(t), &node{}
		m := serving(t, n, ServingConfig{Dir: dir, Requests: s})
		run(t, m)
		made := func() int { c, _ := s.count(); return c }

		n.set() // a name alone
		time.Sleep(time.Hour)
		if _, err := m.GetCertificate(nil); err == nil || made() != 0 {
			t.Errorf("%d requests before there is an address, %v", made(), err)
		}
		n.set("10.0.0.1")
		time.Sleep(3 * time.Second)
		cert, err := m.GetCertificate(nil)
		if err != nil || made() != 1 || cert.Leaf.VerifyHostname("10.0.0.1") != nil || cert.Leaf.VerifyHostname("n1") != nil {
			t.Fatalf("%d requests, %v", made(), err)
		}
		if r := s.created[0].Spec; r.SignerName != "kubernetes.io/kubelet-serving" || string(r.Usages[1]) != "server auth" || r.ExpirationSeconds != nil {
			t.Errorf("asked for %+v", r)
		}
		n.set("10.0.0.1", "fd00::1")
		time.Sleep(successWait + lookEvery)
		if m.Current().Leaf.VerifyHostname("fd00::1") != nil || made() != 2 {
			t.Errorf("one more address: %d requests", made())
		}
		n.set("fd00::1")
		time.Sleep(time.Hour)
		if made() != 2 {
			t.Errorf("one address less: %d requests", made())
		}
		n.set()
		time.Sleep(100 * time.Hour)
		if _, err := m.GetCertificate(nil); err == nil || made() != 2 {
			t.Errorf("without addresses an expired certificate is kept: %d requests, %v", made(), err)
		}
		n.set("fd00::1")
		time.Sleep(3 * time.Second)
		if _, err := m.GetCertificate(nil); err != nil || made() != 3 {
			t.Errorf("%d requests, %v", made(), err)
		}
	})
}

func TestANewAddressOvertakesARequestThatWaits(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, n := newServer(t), &node{}
		s.set("pend", nil)
		n.set("10.0.0.1")
		m := serving(t, n, ServingConfig{Dir: dir, Requests: s})
		run(t, m)
		time.Sleep(time.Minute)
		n.set("10.0.0.1", "10.0.0.2")
		time.Sleep(pollMax + 2*time.Second)
		if made, _ := s.count(); made != 2 || s.different() != 2 {
			t.Errorf("%d requests, %d different", made, s.different())
		}
		s.set("", nil)
		time.Sleep(pollMax)
		if m.Current() == nil || m.Current().Leaf.VerifyHostname("10.0.0.2") != nil {
			t.Error("not for the new address")
		}
	})
}

func TestASignerThatLeavesAddressesOutIsNoStorm(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, n := newServer(t), &node{}
		s.set("strip", nil)
		n.set("10.0.0.1")
		m := serving(t, n, ServingConfig{Dir: dir, Requests: s})
		run(t, m)
		time.Sleep(time.Hour - time.Minute)
		if made, _ := s.count(); m.Current() == nil || made != 4 {
			t.Errorf("%d requests, certificate %v", made, m.Current())
		}
	})
}

func TestAServingCertificateThatIsOfNoUseIsAskedForAnew(t *testing.T) {
	for _, what := range []string{"expired", "damaged"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s, n := newServer(t), &node{}
				n.set("10.0.0.1")
				stored(t, s.ca, "kubelet-server", dir, time.Hour, servingRequest("n1", n.get()))
				time.Sleep(2 * time.Hour)
				if what == "damaged" {
					write(t, filepath.Join(dir, "kubelet-server-current.pem"), []byte("x"))
				}
				m := serving(t, n, ServingConfig{Dir: dir, Requests: s})
				if m.Current() != nil {
					t.Error("it is shown")
				}
				if err := m.Check(t.Context()); err != nil || m.Current() == nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAServingCertificateIsNeverWorthAnEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		n.set("10.0.0.1")
		failed := run(t, serving(t, n, ServingConfig{Dir: dir, Requests: &server{trouble: apierrors.NewForbidden(resource, "", errors.New("x"))}}))
		time.Sleep(time.Hour)
		if err := failed(); err != nil {
			t.Error(err)
		}
	})
}

func TestHandshakesShowTheNewest(t *testing.T) {
	dir := t.TempDir()
	s, n := newServer(t), &node{}
	n.set("10.0.0.1")
	server := serving(t, n, ServingConfig{Dir: dir, Requests: s})
	node := client(t, ClientConfig{Dir: dir, Bootstrap: s})
	if err := errors.Join(server.Check(t.Context()), node.Check(t.Context())); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	done := make(chan error, 1)
	go func() {
		c := tls.Client(a, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: "10.0.0.1", GetClientCertificate: node.GetClientCertificate})
		err := c.HandshakeContext(t.Context())
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		done <- err
	}()
	c := tls.Server(b, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: server.GetCertificate, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if who := c.ConnectionState().PeerCertificates[0].Subject.CommonName; who != "system:node:n1" {
		t.Error(who)
	}
}

// meter is observe.Metrics that keeps the latest value, or for histograms and counters the sum.
type meter struct {
	mu     sync.Mutex
	values map[string]float64
}

type instrument struct {
	m    *meter
	name string
	sum  bool
}

func (m *meter) Counter(name, _ string, _ ...string) (observe.Metric, error) {
	return instrument{m, name, true}, nil
}

func (m *meter) Gauge(name, _ string, _ ...string) (observe.Metric, error) {
	return instrument{m, name, false}, nil
}

func (m *meter) Histogram(name, _ string, _ []float64, _ ...string) (observe.Metric, error) {
	return instrument{m, name, true}, nil
}

func (i instrument) Forget(...string) {}
func (i instrument) Record(v float64, _ ...string) {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	if i.sum {
		v += i.m.values[i.name]
	}
	i.m.values[i.name] = v
}

func (m *meter) value(name string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[name]
	if !ok {
		return math.NaN()
	}
	return v
}

func TestFigures(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, n, figures := newServer(t), &node{}, &meter{values: map[string]float64{}}
		n.set("10.0.0.1")
		o := observe.To{Metrics: figures}
		s.set("pend", nil)
		node := client(t, ClientConfig{Dir: dir, Bootstrap: s, Observe: o})
		server := serving(t, n, ServingConfig{Dir: dir, Requests: s, Observe: o})
		const ttl, serverTTL = "kubelet_certificate_manager_client_ttl_seconds", "kubelet_certificate_manager_server_ttl_seconds"
		if !math.IsInf(figures.value(ttl), 1) || !math.IsInf(figures.value(serverTTL), 1) {
			t.Errorf("%v", figures.values)
		}
		run(t, node)
		run(t, server)
		time.Sleep(16 * time.Minute)
		if figures.value("kubelet_certificate_manager_client_expiration_renew_errors") != 1 || figures.value("kubelet_server_expiration_renew_errors") != 1 {
			t.Errorf("%v", figures.values)
		}
		s.set("", nil)
		time.Sleep(time.Hour)
		for _, name := range []string{ttl, serverTTL} {
			if left := figures.value(name); left < 98*3600 || left > 99.1*3600 || left != math.Trunc(left) {
				t.Errorf("%s %v", name, left)
			}
		}
		time.Sleep(91 * time.Hour)
		if lived := figures.value("kubelet_certificate_manager_server_rotation_seconds"); lived < 70*3600 || lived > 91*3600 {
			t.Errorf("lived %v", lived)
		}
	})
}

func TestAServingCertificateFromElsewhereToStartWith(t *testing.T) {
	dir := t.TempDir()
	s, n := newServer(t), &node{}
	n.set("10.0.0.1")
	cert, key := s.ca.pair(t, servingRequest("n1", n.get()))
	crt, k := filepath.Join(dir, "my.crt"), filepath.Join(dir, "my.key")
	write(t, crt, cert)
	write(t, k, key)
	m := serving(t, n, ServingConfig{Dir: filepath.Join(dir, "pki"), Requests: s, CertFile: crt, KeyFile: k})
	if err := m.Check(t.Context()); err != nil || m.Current() == nil {
		t.Error(err)
	}
	if made, _ := s.count(); made != 0 {
		t.Error("it is replaced at once")
	}
	if !strings.HasSuffix(m.store.current(), "pki/kubelet-server-current.pem") {
		t.Error(m.store.current())
	}
}
