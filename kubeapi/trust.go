package kubeapi

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Bundles are all ClusterTrustBundles: from memory if somebody follows them (kind "ClusterTrustBundle", without namespace and
// name), else from the server.
func (o *Objects) Bundles(ctx context.Context) ([]*certv1.ClusterTrustBundle, error) {
	seen := o.seen(object{kind: "ClusterTrustBundle"})
	if seen != nil {
		limited, cancel := context.WithTimeout(ctx, firstLook)
		defer cancel()
		if seen.wait(limited) == nil {
			all, _ := seen.all()
			out := make([]*certv1.ClusterTrustBundle, 0, len(all))
			for _, b := range all {
				out = append(out, b.(*certv1.ClusterTrustBundle)) //nolint:forcetypeassert // that is what is watched
			}
			return out, nil
		}
	}
	list := new(certv1.ClusterTrustBundleList)
	if err := o.client.certificates.Get().Resource("clustertrustbundles").Do(ctx).Into(list); err != nil {
		return nil, fmt.Errorf("list clustertrustbundles: %w", err)
	}
	out := make([]*certv1.ClusterTrustBundle, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// Account is one service account, read from the server.
func (o *Objects) Account(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	account := new(v1.ServiceAccount)
	return account, place{o.client.pods, "serviceaccounts", namespace, name}.get(ctx, account)
}

// RequestCertificate asks a signer for a certificate of a pod (KEP-4317) and returns the name of the request, which is in the
// pod's namespace and goes with the pod. The key proves itself by signing an empty request.
func (o *Objects) RequestCertificate(ctx context.Context, pod *v1.Pod, source *v1.PodCertificateProjection, key crypto.Signer) (name string, err error) {
	node := o.client.Node()
	if node == nil {
		return "", fmt.Errorf("node %s is not known yet: %w", o.client.cfg.Node, runtime.ErrUnavailable)
	}
	account, err := o.Account(ctx, pod.Namespace, accountOf(pod))
	if err != nil {
		return "", err
	}
	proof, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return "", fmt.Errorf("make a certificate request: %w", err)
	}
	ask := &certv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certv1.PodCertificateRequestSpec{
			SignerName: source.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID, NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: source.MaxExpirationSeconds, StubPKCS10Request: proof, UnverifiedUserAnnotations: source.UserAnnotations,
		},
	}
	answer := new(certv1.PodCertificateRequest)
	if err := (place{o.client.certificates, "podcertificaterequests", pod.Namespace, ""}).create(ctx, ask, answer); err != nil {
		return "", err
	}
	return answer.Name, nil
}

// IssuedCertificate is how a request stands: the chain in PEM form and when to ask for the next one, runtime.ErrInProgress,
// or a *runtime.Rejection.
func (o *Objects) IssuedCertificate(ctx context.Context, namespace, name string) (chain string, renew time.Time, err error) {
	r := new(certv1.PodCertificateRequest)
	if err := (place{o.client.certificates, "podcertificaterequests", namespace, name}).get(ctx, r); err != nil {
		return "", time.Time{}, err
	}
	for _, c := range r.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			continue
		}
		switch c.Type {
		case certv1.PodCertificateRequestConditionTypeDenied, certv1.PodCertificateRequestConditionTypeFailed:
			return "", time.Time{}, &runtime.Rejection{Reason: c.Type, Message: c.Reason + ": " + c.Message}
		case certv1.PodCertificateRequestConditionTypeIssued:
			if r.Status.BeginRefreshAt != nil {
				renew = r.Status.BeginRefreshAt.Time
			}
			return r.Status.CertificateChain, renew, nil
		}
	}
	return "", time.Time{}, fmt.Errorf("podcertificaterequest %s/%s: %w", namespace, name, runtime.ErrInProgress)
}

// accountOf is the name of a pod's service account.
func accountOf(pod *v1.Pod) string {
	if pod.Spec.ServiceAccountName == "" {
		return "default"
	}
	return pod.Spec.ServiceAccountName
}
