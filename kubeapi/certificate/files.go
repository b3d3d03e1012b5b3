package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/reread"
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
	pair *reread.Files[*tls.Certificate]
}

// NewFiles reads the pair.
func NewFiles(cfg FilesConfig) (*Files, error) {
	if cfg.CertFile == "" || cfg.KeyFile == "" {
		return nil, errors.New("certificate: CertFile and KeyFile are required, both")
	}
	log := cfg.Observe.Logger()
	pair, err := reread.Open(reread.Config[*tls.Certificate]{
		Paths: []string{cfg.CertFile, cfg.KeyFile},
		Parse: func(texts [][]byte) (*tls.Certificate, error) {
			pair, err := tls.X509KeyPair(texts[0], texts[1])
			if err != nil {
				return nil, fmt.Errorf("certificate in %s with key in %s: %w", cfg.CertFile, cfg.KeyFile, err)
			}
			return &pair, nil
		},
		Changed: func(pair *tls.Certificate) {
			log.Info("serving certificate changed", "file", cfg.CertFile, "expires", pair.Leaf.NotAfter)
		},
		Bad: func(err error) {
			log.Warn("serving certificate in files is not good; the last good one holds", "err", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	f := &Files{pair}
	if leaf := f.Current().Leaf; expired(f.Current()) {
		log.Warn("serving certificate has expired; clients will not believe it", "file", cfg.CertFile, "expired", leaf.NotAfter)
	}
	return f, nil
}

// GetCertificate is for the tls.Config of a server.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.Current(), nil
}

// Current is the newest good pair, never nil; it may have expired. It is not changed.
func (f *Files) Current() *tls.Certificate { return f.pair.Current() }

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
