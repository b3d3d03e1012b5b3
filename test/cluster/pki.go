package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A cluster lives for a test, so its certificates need not last.
const validity = 90 * 24 * time.Hour

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// identity is what a certificate says about its owner.
type identity struct {
	name   string   // common name: the user, for a client
	groups []string // organizations: the user's groups, for a client
	dns    []string // names of a server
	ips    []net.IP // addresses of a server
}

func newAuthority(name string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert: cert, key: key}, err
}

// issue makes a key and a certificate for it, which its owner may use as a client, and as a server when it
// has names or addresses.
func (a *authority) issue(id identity, now time.Time) (cert *x509.Certificate, key crypto.Signer, err error) {
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: id.name, Organization: id.groups},
		DNSNames:     id.dns,
		IPAddresses:  id.ips,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(id.dns)+len(id.ips) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	cert, err = x509.ParseCertificate(der)
	return cert, key, err
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // rand.Reader never fails
	return n
}

// identities are the owners of certificates in a cluster, by the name of their files.
func identities(node net.IP) map[string]identity {
	loopback := net.IPv4(127, 0, 0, 1)
	return map[string]identity{
		"apiserver": {
			name: "kube-apiserver",
			dns:  []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			ips:  []net.IP{loopback, node, net.ParseIP(apiServiceIP)},
		},
		"apiserver-kubelet-client": {name: "kube-apiserver-kubelet-client"},
		"admin":                    {name: "admin", groups: []string{"system:masters"}},
		"controller-manager":       {name: "system:kube-controller-manager"},
		"scheduler":                {name: "system:kube-scheduler"},
		"proxy":                    {name: "system:kube-proxy"},
		"dns":                      {name: "system:coredns"},
		"node":                     {name: "system:node:" + nodeName, groups: []string{"system:nodes"}},
		"node-serving":             {name: "system:node:" + nodeName, groups: []string{"system:nodes"}, dns: []string{nodeName}, ips: []net.IP{loopback, node}},
	}
}

// writePKI fills dir with the cluster's authority (ca), that of the front proxy (front-proxy-ca), the
// certificates of all identities, and the key that signs service account tokens (sa.key, sa.pub). A
// directory that is full already is left as it is.
func writePKI(dir string, node net.IP, now time.Time) error {
	const last = "sa.pub"
	if _, err := os.Stat(filepath.Join(dir, last)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := writeAuthority(dir, "ca", "kubernetes", now)
	if err != nil {
		return err
	}
	for file, id := range identities(node) {
		if err := ca.write(dir, file, id, now); err != nil {
			return err
		}
	}
	front, err := writeAuthority(dir, "front-proxy-ca", "front-proxy-ca", now)
	if err != nil {
		return err
	}
	if err := front.write(dir, "front-proxy-client", identity{name: "front-proxy-client"}, now); err != nil {
		return err
	}
	tokens, err := rsa.GenerateKey(rand.Reader, 2048) // what verifies tokens outside the cluster expects RS256
	if err != nil {
		return err
	}
	if err := writeKey(filepath.Join(dir, "sa.key"), tokens); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(tokens.Public())
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, last), "PUBLIC KEY", public, 0o644)
}

func writeAuthority(dir, file, name string, now time.Time) (*authority, error) {
	a, err := newAuthority(name, now)
	if err != nil {
		return nil, fmt.Errorf("make authority %s: %w", name, err)
	}
	return a, writePair(dir, file, a.cert, a.key)
}

func (a *authority) write(dir, file string, id identity, now time.Time) error {
	cert, key, err := a.issue(id, now)
	if err != nil {
		return fmt.Errorf("issue certificate for %s: %w", id.name, err)
	}
	return writePair(dir, file, cert, key)
}

func writePair(dir, file string, cert *x509.Certificate, key crypto.Signer) error {
	if err := writeKey(filepath.Join(dir, file+".key"), key); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, file+".crt"), "CERTIFICATE", cert.Raw, 0o644)
}

func writeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode fs.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
