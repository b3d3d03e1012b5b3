package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/observe"
)

// FilesConfig describes Files. CertFile and KeyFile are required; they may be one file.
type FilesConfig struct {
	CertFile string // PEM, leaf first
	KeyFile  string // PEM

	Observe observe.To // logger; zero is silent
}

// Files hands out a serving certificate that somebody else keeps in files. They are looked at again when somebody
// connects, at most every five seconds; while they are bad or half written, the last good pair holds. There is nothing
// to run.
type Files struct {
	cfg FilesConfig
	log *slog.Logger

	mu        sync.Mutex // guards the rest
	looked    time.Time
	cert, key []byte // as last seen, good or bad
	pair      *tls.Certificate
	broken    string // the last error that was logged
}

// NewFiles reads the pair.
func NewFiles(cfg FilesConfig) (*Files, error) {
	if cfg.CertFile == "" || cfg.KeyFile == "" {
		return nil, errors.New("certificate: CertFile and KeyFile are required, both")
	}
	f := &Files{cfg: cfg, log: cfg.Observe.Logger()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	if expired(f.pair) {
		f.log.Warn("serving certificate has expired; clients will not believe it", "file", cfg.CertFile, "expired", f.pair.Leaf.NotAfter)
	}
	return f, nil
}

// GetCertificate is for the tls.Config of a server.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.Current(), nil
}

const readEvery = 5 * time.Second

// Current is the newest good pair, never nil; it may have expired. It is not changed.
func (f *Files) Current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < readEvery {
		return f.pair
	}
	err := f.read()
	switch {
	case err == nil:
		f.broken = ""
	case err.Error() != f.broken:
		f.broken = err.Error()
		f.log.Warn("serving certificate in files is not good; the last good one holds", "err", err)
	}
	return f.pair
}

// read looks at the files. A bad pair leaves the good one.
func (f *Files) read() error {
	f.looked = time.Now()
	cert, err := os.ReadFile(f.cfg.CertFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(f.cfg.KeyFile)
	if err != nil {
		return err
	}
	if f.pair != nil && bytes.Equal(cert, f.cert) && bytes.Equal(key, f.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("certificate in %s with key in %s: %w", f.cfg.CertFile, f.cfg.KeyFile, err)
	}
	if f.pair != nil {
		f.log.Info("serving certificate changed", "file", f.cfg.CertFile, "expires", pair.Leaf.NotAfter)
	}
	f.cert, f.key, f.pair = cert, key, &pair
	return nil
}

// SelfSigned is for a node whose serving certificate nobody signs: a pair in <dir>/kubelet.crt and kubelet.key, as the kubelet has
// it. What is there is used as it is, unless it has expired or does not read; then it is moved aside (.old) and a new
// pair, good for a year, is made for hosts, names or addresses, the first of which is the subject.
func SelfSigned(dir string, hosts []string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && !expired(&pair) {
		return certFile, keyFile, nil
	}
	cert, key, err := selfSign(hosts, time.Now())
	if err != nil {
		return "", "", fmt.Errorf("self-signed certificate: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", fmt.Errorf("self-signed certificate: %w", err)
	}
	for _, f := range []struct {
		path string
		text []byte
		mode os.FileMode
	}{{keyFile, key, 0o600}, {certFile, cert, 0o644}} {
		if exists(f.path) {
			if err := os.Rename(f.path, f.path+".old"); err != nil {
				return "", "", fmt.Errorf("self-signed certificate: %w", err)
			}
		}
		if err := replaceFile(f.path, f.text, f.mode); err != nil {
			return "", "", fmt.Errorf("self-signed certificate: %w", err)
		}
	}
	return certFile, keyFile, nil
}

func selfSign(hosts []string, now time.Time) (cert, key []byte, err error) {
	if len(hosts) == 0 {
		return nil, nil, errors.New("no host given")
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: hosts[0]},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},

		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := parseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		return nil, nil, err
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}
