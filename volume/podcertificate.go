package volume

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Certificates has certificates issued for pods (KEP-4317). It is called from several goroutines at a time.
type Certificates interface {
	// RequestCertificate asks for a certificate for that key. The name is that of the request, in the pod's namespace.
	RequestCertificate(ctx context.Context, pod *v1.Pod, source *v1.PodCertificateProjection, key crypto.Signer) (name string, err error)

	// IssuedCertificate is how a request stands: the chain in PEM form and when to ask for the next one, or
	// runtime.ErrInProgress, or a *runtime.Rejection that says why there will be none.
	IssuedCertificate(ctx context.Context, namespace, name string) (chain string, renew time.Time, err error)
}

// issuing is a request for a certificate under way. Only the one who asks touches it.
type issuing struct {
	name    string // empty: there is none
	key     crypto.Signer
	since   time.Time
	refused error // for good
}

// credential is a key and its certificates, in PEM form.
type credential struct {
	key, chain string
	ends       time.Time // of the first of them; zero: it cannot be read
}

// validity is how long a certificate is good, and what people were told of one that nobody renews.
type validity struct {
	renew, ends      time.Time
	overdue, expired bool
}

// late is what people are to be told, once each, of a certificate for which there is no other yet. The reasons, and what comes
// first in the text, are the kubelet's.
func (v *validity) late(n need, why error, now time.Time) (reason, text string) {
	switch {
	case v.renew.IsZero():
		return "", ""
	case !v.overdue && now.After(v.renew.Add(requestFor)):
		v.overdue, reason, text = true, "CertificateOverdueForRefresh", "PodCertificate refresh overdue"
	case !v.expired && !v.ends.IsZero() && now.After(v.ends):
		v.expired, reason, text = true, "CertificateExpired", "PodCertificate expired"
	default:
		return "", ""
	}
	return reason, fmt.Sprintf("%s: %v of volume %q: %v", text, n, n.name, why)
}

const (
	requestFor = 10 * time.Minute         // how long a request may stay undecided
	renewMost  = float64(5 * time.Minute) // by how much a renewal may come later
)

// certificateNeed is source number i of a volume.
func certificateNeed(volume string, i int) need {
	return need{kind: kindCertificate, name: volume, index: i}
}

// sourceOf finds the source that a need is for.
func sourceOf(pod *v1.Pod, n need) *v1.PodCertificateProjection {
	for _, v := range pod.Spec.Volumes {
		if v.Name == n.name && v.Projected != nil && n.index < len(v.Projected.Sources) {
			return v.Projected.Sources[n.index].PodCertificate
		}
	}
	return nil
}

// certified asks for a certificate, or how the request for it stands.
func (m *Manager) certified(ctx context.Context, pod *v1.Pod, n need, i *issuing) (*credential, time.Time, error) {
	source := sourceOf(pod, n)
	if source == nil || i == nil {
		return nil, time.Time{}, fmt.Errorf("%v: no volume has it", n)
	}
	if i.refused != nil {
		return nil, time.Time{}, i.refused
	}
	if i.name == "" {
		key, err := newKey(source.KeyType)
		if err != nil {
			return nil, time.Time{}, err
		}
		name, err := m.cfg.Certificates.RequestCertificate(ctx, pod, source, key)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("request a certificate of %s: %w", source.SignerName, err)
		}
		*i = issuing{name: name, key: key, since: time.Now()}
	}
	chain, renew, err := m.cfg.Certificates.IssuedCertificate(ctx, pod.Namespace, i.name)
	_, refused := errors.AsType[*runtime.Rejection](err)
	switch {
	case err == nil:
		c, err := newCredential(i.key, chain)
		*i = issuing{}
		return c, renew, err
	case refused:
		i.refused = fmt.Errorf("certificate request %s of %s is refused: %w", i.name, source.SignerName, err)
		return nil, time.Time{}, i.refused
	case errors.Is(err, runtime.ErrInProgress) && time.Since(i.since) < requestFor:
		return nil, time.Time{}, err
	case errors.Is(err, runtime.ErrInProgress), errors.Is(err, runtime.ErrNotFound):
		err = fmt.Errorf("certificate request %s of %s came to nothing; another one is made", i.name, source.SignerName)
		*i = issuing{}
	}
	return nil, time.Time{}, err
}

// newKey makes a key of a type the API knows.
func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("key type %q is none of RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521, ED25519", kind)
}

// newCredential writes down a key and the certificates of a chain, without whatever else stands there.
func newCredential(key crypto.Signer, chain string) (*credential, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	c := &credential{key: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
	var text strings.Builder
	for rest := []byte(chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if leaf, err := x509.ParseCertificate(block.Bytes); err == nil && c.ends.IsZero() {
			c.ends = leaf.NotAfter
		}
		if err := pem.Encode(&text, &pem.Block{Type: block.Type, Bytes: block.Bytes}); err != nil {
			return nil, err
		}
	}
	if c.chain = text.String(); c.chain == "" {
		return nil, errors.New("the signer issued an empty chain of certificates")
	}
	return c, nil
}

// pickCertificate adds the files of a certificate.
func (r request) pickCertificate(to payload, s *v1.PodCertificateProjection, i int, mode *int32) error {
	value, err := r.answer(certificateNeed(r.volume.Name, i))
	if err != nil {
		return err
	}
	c, _ := value.(*credential)
	var errs []error
	for _, f := range []struct{ path, text string }{
		{s.CredentialBundlePath, c.key + c.chain}, {s.KeyPath, c.key}, {s.CertificateChainPath, c.chain},
	} {
		if f.path != "" {
			errs = append(errs, to.add(f.path, r.secretFile(f.text, mode)))
		}
	}
	return errors.Join(errs...)
}
