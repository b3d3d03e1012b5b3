package kubeapi

import (
	"context"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	certv1 "k8s.io/api/certificates/v1"
)

// ReviewToken asks whose token it is. Client is an access.Reviewer.
func (c *Client) ReviewToken(ctx context.Context, review *authnv1.TokenReview) (*authnv1.TokenReview, error) {
	answer := new(authnv1.TokenReview)
	return answer, place{c.authn, "tokenreviews", "", ""}.create(ctx, review, answer)
}

// ReviewAccess asks whether somebody may do something.
func (c *Client) ReviewAccess(ctx context.Context, review *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, error) {
	answer := new(authzv1.SubjectAccessReview)
	return answer, place{c.authz, "subjectaccessreviews", "", ""}.create(ctx, review, answer)
}

// CreateRequest asks for a certificate. Client is a certificate.Requester.
func (c *Client) CreateRequest(ctx context.Context, r *certv1.CertificateSigningRequest) (*certv1.CertificateSigningRequest, error) {
	answer := new(certv1.CertificateSigningRequest)
	return answer, place{c.certificates, "certificatesigningrequests", "", r.Name}.create(ctx, r, answer)
}

// Request is how a request for a certificate stands.
func (c *Client) Request(ctx context.Context, name string) (*certv1.CertificateSigningRequest, error) {
	answer := new(certv1.CertificateSigningRequest)
	return answer, place{c.certificates, "certificatesigningrequests", "", name}.get(ctx, answer)
}
