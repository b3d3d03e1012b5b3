package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCertificatesServeTheirPurpose(t *testing.T) {
	dir := t.TempDir()
	node := net.IPv4(10, 192, 0, 1)
	now := time.Now()
	if err := writePKI(dir, node, now); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule, ca, cert, host string
		usage                x509.ExtKeyUsage
		want                 bool
	}{
		{"pods find the API server by its Service", "ca", "apiserver", "kubernetes.default.svc", x509.ExtKeyUsageServerAuth, true},
		{"and by the Service's address", "ca", "apiserver", "10.96.0.1", x509.ExtKeyUsageServerAuth, true},
		{"and by the node's", "ca", "apiserver", "10.192.0.1", x509.ExtKeyUsageServerAuth, true},
		{"the API server reaches the node by address", "ca", "node-serving", "10.192.0.1", x509.ExtKeyUsageServerAuth, true},
		{"the node's credentials are a client's", "ca", "node", "", x509.ExtKeyUsageClientAuth, true},
		{"and no server's", "ca", "node", "", x509.ExtKeyUsageServerAuth, false},
		{"the front proxy has an authority of its own", "front-proxy-ca", "front-proxy-client", "", x509.ExtKeyUsageClientAuth, true},
		{"which users do not share", "ca", "front-proxy-client", "", x509.ExtKeyUsageClientAuth, false},
		{"nor lend", "front-proxy-ca", "admin", "", x509.ExtKeyUsageClientAuth, false},
	} {
		_, err := leaf(t, dir, c.cert).Verify(x509.VerifyOptions{
			Roots:       pool(t, dir, c.ca),
			DNSName:     c.host,
			KeyUsages:   []x509.ExtKeyUsage{c.usage},
			CurrentTime: now.Add(30 * 24 * time.Hour),
		})
		if (err == nil) != c.want {
			t.Errorf("%s: verify = %v", c.rule, err)
		}
	}
	if s := leaf(t, dir, "node").Subject; s.CommonName != "system:node:node1" || len(s.Organization) != 1 || s.Organization[0] != "system:nodes" {
		t.Errorf("the node is %v", s)
	}
	if info, err := os.Stat(filepath.Join(dir, "admin.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a key is readable for others: %v, %v", info.Mode(), err)
	}
}

func TestCertificatesStayThroughASecondStart(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := writePKI(dir, net.IPv4(10, 0, 0, 1), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	first := leaf(t, dir, "admin").SerialNumber
	if err := writePKI(dir, net.IPv4(10, 0, 0, 1), time.Now()); err != nil {
		t.Fatal(err)
	}
	if leaf(t, dir, "admin").SerialNumber.Cmp(first) != 0 {
		t.Error("certificates were made anew")
	}
}

func leaf(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func pool(t *testing.T, dir, name string) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(data) {
		t.Fatalf("%s has no certificate", name)
	}
	return p
}
