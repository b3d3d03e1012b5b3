package certificate_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"

	certv1 "k8s.io/api/certificates/v1"

	"github.com/kubeletkit/kubeletkit/kubeapi/certificate"
)

// api stands for a client of the API server.
type api struct{}

func (api) CreateRequest(context.Context, *certv1.CertificateSigningRequest) (*certv1.CertificateSigningRequest, error) {
	return nil, errors.New("not here")
}

func (api) Request(context.Context, string) (*certv1.CertificateSigningRequest, error) {
	return nil, errors.New("not here")
}

// A node that has no certificate yet, and a transport that shows the newest one.
func ExampleNewClient() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	keep, err := certificate.NewClient(certificate.ClientConfig{
		Node: "node-1", Dir: dir,
		Requests:  api{}, // over transport
		Bootstrap: api{}, // with the bootstrap token
		Changed:   func(*tls.Certificate) { transport.CloseIdleConnections() },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	transport.TLSClientConfig.GetClientCertificate = keep.GetClientCertificate
	fmt.Println("a certificate is there:", keep.Current() != nil)
	// then: go keep.Run(ctx), and keep.Wait(ctx) before the node registers

	_, err = certificate.NewClient(certificate.ClientConfig{Node: "node-1", Dir: dir, Requests: api{}})
	fmt.Println("without a way to get one:", errors.Is(err, certificate.ErrNoCredentials))
	// Output:
	// a certificate is there: false
	// without a way to get one: true
}
