package access

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	authnv1 "k8s.io/api/authentication/v1"

	"github.com/kubeletkit/kubeletkit/internal/reread"
)

// RequestCertificates returns a copy of base that asks clients for a certificate, without requiring one, and tells them
// whose are good. What they show is judged by Authenticate, so a bad one gets an answer instead of a broken
// handshake. Without a client CA in the configuration it returns base.
func (a *Access) RequestCertificates(base *tls.Config) *tls.Config {
	if a.cas == nil {
		return base
	}
	base = base.Clone()
	base.ClientAuth = tls.RequestClientCert
	inner := base.Clone()
	before := base.GetConfigForClient
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		cfg := inner
		if before != nil {
			other, err := before(hello)
			if err != nil {
				return nil, err
			}
			if other != nil {
				cfg = other
			}
		}
		cfg = cfg.Clone()
		cfg.GetConfigForClient = nil
		cfg.ClientAuth = tls.RequestClientCert
		cfg.ClientCAs = a.cas()
		return cfg, nil
	}
	return base
}

// certificate is the user of a client certificate.
func (a *Access) certificate(r *http.Request) (*authnv1.UserInfo, error) {
	if a.cas == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	roots := a.cas()
	if roots == nil {
		return nil, nil
	}
	cert := r.TLS.PeerCertificates[0]
	a.metrics.left.Record(time.Until(cert.NotAfter).Seconds())
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range r.TLS.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := cert.Verify(o); err != nil {
		return nil, fmt.Errorf("client certificate of %q, serial %d: %w", cert.Subject.CommonName, cert.SerialNumber, err)
	}
	return holder(cert)
}

// holder is the user a good certificate names; without a common name it is nobody.
func holder(cert *x509.Certificate) (*authnv1.UserInfo, error) {
	if cert.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := certificateUID(cert)
	if err != nil {
		return nil, fmt.Errorf("client certificate of %q: %w", cert.Subject.CommonName, err)
	}
	sum := sha256.Sum256(cert.Raw)
	return &authnv1.UserInfo{
		Username: cert.Subject.CommonName,
		UID:      uid,
		Groups:   cert.Subject.Organization,
		Extra: map[string]authnv1.ExtraValue{
			"authentication.kubernetes.io/credential-id": {"X509SHA256=" + hex.EncodeToString(sum[:])},
		},
	}, nil
}

// certificateUID is the part of the subject in which Kubernetes keeps a user's uid.
func certificateUID(cert *x509.Certificate) (string, error) {
	uid, found := "", false
	for _, part := range cert.Subject.Names {
		if !part.Type.Equal(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}) {
			continue
		}
		s, ok := part.Value.(string)
		if !ok || s == "" || found {
			return "", errors.New("the subject must have one uid at most, which is text and not empty")
		}
		uid, found = s, true
	}
	return uid, nil
}

// CAFile are the authorities of a file, which is read again when it changes. While it is bad its last good content holds.
func CAFile(path string, log *slog.Logger) (func() *x509.CertPool, error) {
	files, err := reread.Open(reread.Config[*x509.CertPool]{
		Paths: []string{path},
		Parse: func(texts [][]byte) (*x509.CertPool, error) {
			pool, err := parsePool(texts[0])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			return pool, nil
		},
		Changed: func(*x509.CertPool) { log.Info("client CA file changed", "file", path) },
		Bad: func(err error) {
			log.Warn("client CA file is not good; the last good content holds", "file", path, "err", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("client CA: %w", err)
	}
	return files.Current, nil
}

// parsePool reads PEM certificates. Blocks of other types are left out; a certificate that does not parse is an error,
// and so is none at all.
func parsePool(text []byte) (*x509.CertPool, error) {
	pool, some := x509.NewCertPool(), false
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		some = true
	}
	if !some {
		return nil, errors.New("no PEM block CERTIFICATE in it")
	}
	return pool, nil
}
