package certificate

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const clientSigner = certv1.KubeAPIServerClientKubeletSignerName

// How a request may end without a certificate and without an error of the API server.
var (
	errRejected  = errors.New("the next request follows in 15 minutes, with a new key")
	errForeign   = errors.New("a new key will be used")
	errOvertaken = errors.New("the node's addresses changed meanwhile")
	errUndecided = errors.New("neither approved nor denied yet")
)

const (
	pollFirst = 500 * time.Millisecond // between two looks at a request, half as long again each time
	pollMax   = 10 * time.Second
)

// obtain makes the request, unless it is there already, and waits until it is decided.
func (m *Manager) obtain(ctx context.Context, from Requester, key crypto.Signer, want *x509.CertificateRequest) ([]byte, error) {
	r, err := newRequest(m.signer, m.kind, key, want)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	made, err := from.CreateRequest(ctx, r)
	if apierrors.IsAlreadyExists(err) {
		made, err = from.Request(ctx, r.Name)
		if err == nil {
			err = ours(made, r, key)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("request %s at the API server: %w", r.Name, err)
	}
	return m.await(ctx, from, made, want)
}

// await looks at a request until it is decided.
func (m *Manager) await(ctx context.Context, from Requester, made *certv1.CertificateSigningRequest, want *x509.CertificateRequest) ([]byte, error) {
	until := time.Now().Add(requestWait)
	uid := made.UID
	for wait := pollFirst; ; wait = min(wait+wait/2, pollMax) {
		switch certs, err := verdict(made); {
		case err != nil:
			return nil, fmt.Errorf("request %s: %w", made.Name, err)
		case certs != nil:
			return certs, nil
		case !sameRequest(m.want(), want):
			return nil, fmt.Errorf("request %s: %w", made.Name, errOvertaken)
		case time.Now().After(until):
			return nil, fmt.Errorf("request %s: %w (kubectl certificate approve %s)", made.Name, errUndecided, made.Name)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
		m.metrics.tell(m.Current())
		newer, err := from.Request(ctx, made.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && newer.UID != uid:
			return nil, fmt.Errorf("request %s is gone: somebody deleted it", made.Name)
		case err != nil:
			m.log.Debug("request for a certificate not read; looking again", "request", made.Name, "err", err)
		default:
			made = newer
		}
	}
}

// verdict says what became of a request: a certificate, an error, or neither yet.
func verdict(r *certv1.CertificateSigningRequest) ([]byte, error) {
	approved := false
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certv1.CertificateDenied:
			return nil, fmt.Errorf("denied: %s: %s; %w", c.Reason, c.Message, errRejected)
		case certv1.CertificateFailed:
			return nil, fmt.Errorf("the signer failed: %s: %s; %w", c.Reason, c.Message, errRejected)
		case certv1.CertificateApproved:
			approved = true
		}
	}
	if approved && len(r.Status.Certificate) > 0 {
		return r.Status.Certificate, nil
	}
	return nil, nil
}

// newRequest is the API object of a request.
func newRequest(signer string, kind certv1.KeyUsage, key crypto.Signer, want *x509.CertificateRequest) (*certv1.CertificateSigningRequest, error) {
	uses := usages(kind, key.Public())
	name, err := requestName(key.Public(), want, uses)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, want, key)
	if err != nil {
		return nil, err
	}
	return &certv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer,
			Usages:     uses,
		},
	}, nil
}

// ours says whether a request that was found under our name is the one we would make, of our key, and still of use.
func ours(found, made *certv1.CertificateSigningRequest, key crypto.Signer) error {
	theirs, err := parseRequest(found.Spec.Request)
	if err != nil {
		return fmt.Errorf("there is another of that name, which does not read: %w; %w", err, errForeign)
	}
	want, err := parseRequest(made.Spec.Request)
	if err != nil {
		return err
	}
	switch {
	case !samePublic(key.Public(), theirs.PublicKey) || theirs.CheckSignature() != nil:
		return fmt.Errorf("there is another of that name, for another key; %w", errForeign)
	case !sameRequest(theirs, want) || found.Spec.SignerName != made.Spec.SignerName || !slices.Equal(found.Spec.Usages, made.Spec.Usages):
		return fmt.Errorf("there is another of that name, for something else; %w", errForeign)
	}
	if block, _ := pem.Decode(found.Status.Certificate); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err != nil || time.Now().After(cert.NotAfter) {
			return fmt.Errorf("it was issued long ago and is of no use now; %w", errForeign)
		}
	}
	return nil
}

func parseRequest(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("no PEM block CERTIFICATE REQUEST in it")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
