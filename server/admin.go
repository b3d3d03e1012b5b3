package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authnv1 "k8s.io/api/authentication/v1"
)

// AdminAccess is the Access of a node that asks no API server: whoever shows the token or a good client certificate
// may do everything, everybody else nothing. The zero value lets nobody in.
type AdminAccess struct {
	Token string // a bearer token; empty: none is good

	// ClientCAs sign certificates of administrators, for client authentication; every one they signed is let in.
	// nil: only certificates that TLS has verified already (tls.VerifyClientCertIfGiven). With ClientCAs set TLS need
	// only ask (tls.RequestClientCert), and a bad certificate is a 401 rather than a broken handshake.
	ClientCAs *x509.CertPool
}

// Authenticate implements Access. A bad certificate does not stand in the way of a good token, nor the other way round.
func (a AdminAccess) Authenticate(r *http.Request) (*authnv1.UserInfo, error) {
	user, err := a.certified(r)
	if user != nil {
		return user, nil
	}
	token := bearer(r)
	switch {
	case token == "":
		return nil, err
	case a.Token != "" && same(token, a.Token):
		return &authnv1.UserInfo{Username: "admin", Groups: []string{"system:authenticated"}}, nil
	default:
		return nil, errors.Join(err, errors.New("unknown bearer token"))
	}
}

// Authorize implements Access.
func (a AdminAccess) Authorize(_ context.Context, user *authnv1.UserInfo, _, _, _ string) (bool, error) {
	return user != nil, nil
}

// certified is the user of a client certificate.
func (a AdminAccess) certified(r *http.Request) (*authnv1.UserInfo, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	cert := r.TLS.PeerCertificates[0]
	if len(r.TLS.VerifiedChains) == 0 {
		if a.ClientCAs == nil {
			return nil, errors.New("client certificate was not verified")
		}
		o := x509.VerifyOptions{Roots: a.ClientCAs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		for _, c := range r.TLS.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		if _, err := cert.Verify(o); err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
	}
	return &authnv1.UserInfo{Username: cert.Subject.CommonName, Groups: append(cert.Subject.Organization, "system:authenticated")}, nil
}

// tokenProtocol is how a browser shows a token when it opens a WebSocket.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// bearer is the token of a request.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	for _, v := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(v, ",") {
			if coded, ok := strings.CutPrefix(strings.TrimSpace(p), tokenProtocol); ok {
				token, err := base64.RawURLEncoding.DecodeString(coded)
				if err == nil {
					return string(token)
				}
			}
		}
	}
	return ""
}

// same compares in a time that tells nothing about either.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
