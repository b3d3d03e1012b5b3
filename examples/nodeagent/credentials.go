package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/kubeapi"
	"github.com/kubeletkit/kubeletkit/kubeapi/certificate"
	"github.com/kubeletkit/kubeletkit/observe"
)

// credentials are how this node shows itself to the API server.
type credentials struct {
	rest      *rest.Config
	renewed   *certificate.Manager // nil: nothing is renewed
	reconnect func()               // what the Manager's certificates are shown on
}

// obtain has a kubeconfig made from the bootstrap one, if there is none that works, and waits as long as that takes. Where
// certificates are renewed it only writes down where the first one will be: pods from files, the API server itself perhaps, do not
// wait for it.
func obtain(ctx context.Context, o *options, obs observe.To) error {
	if o.flags.BootstrapKubeconfig == "" {
		return nil
	}
	if o.flags.Kubeconfig == "" {
		return errors.New("--bootstrap-kubeconfig needs --kubeconfig, the file that is made from it")
	}
	why := worthless(o.flags.Kubeconfig)
	if why == nil {
		return nil
	}
	obs.Logger().Info("asking the API server for a client certificate", "because", why, "with", o.flags.BootstrapKubeconfig)
	with, err := kubeapi.LoadREST(o.flags.BootstrapKubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w; --bootstrap-kubeconfig: %w", why, err)
	}
	if o.kubelet.RotateCertificates {
		return certificate.WriteKubeconfig(o.flags.Kubeconfig, clusterOf(with), o.flags.CertDir)
	}
	client, err := kubeapi.New(kubeapi.Config{REST: with, Node: o.nodeName, Observe: obs})
	if err != nil {
		return err
	}
	m, err := certificate.NewClient(certificate.ClientConfig{Node: o.nodeName, Dir: o.flags.CertDir, Bootstrap: client, Observe: obs})
	if err != nil {
		return err
	}
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(own) }()
	if err := m.Wait(own); err == nil {
		cancel()
		if err := <-ended; err != nil {
			return err
		}
		return certificate.WriteKubeconfig(o.flags.Kubeconfig, clusterOf(with), o.flags.CertDir)
	}
	return errors.Join(context.Cause(ctx), <-ended)
}

// clusterOf is what a kubeconfig says of the cluster.
func clusterOf(c *rest.Config) certificate.Cluster {
	out := certificate.Cluster{Server: c.Host, CAFile: c.CAFile, CAData: c.CAData, Insecure: c.Insecure, ServerName: c.ServerName}
	server, err := url.Parse(c.Host)
	if c.Proxy == nil || err != nil {
		return out
	}
	if proxy, err := c.Proxy(&http.Request{URL: server}); err == nil && proxy != nil {
		out.ProxyURL = proxy.String()
	}
	return out
}

// worthless says why a kubeconfig does not do; nil: it does.
func worthless(path string) error {
	c, err := kubeapi.LoadREST(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s", path)
	case err != nil:
		return err
	case c.BearerToken != "" || c.BearerTokenFile != "" || c.ExecProvider != nil:
		return nil
	}
	if err := rest.LoadTLSFiles(c); err != nil {
		return err
	}
	return certificate.Good(c.CertData, time.Now())
}

// bootstrapOf reads how to ask for a certificate where there is none, or the API server refuses it. nil: there is no way, as on a
// node that has joined and whose bootstrap kubeconfig was removed.
func bootstrapOf(o *options, obs observe.To) *rest.Config {
	if o.flags.BootstrapKubeconfig == "" {
		return nil
	}
	with, err := kubeapi.LoadREST(o.flags.BootstrapKubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		obs.Logger().Debug("there is no bootstrap kubeconfig any more; the node has its own", "err", err)
	case err != nil:
		obs.Logger().Warn("the bootstrap kubeconfig is of no use; the node has its own", "err", err)
	}
	return with
}

// credentialsOf are those of the kubeconfig, renewed if the configuration says so; none as long as the certificate that it names
// has still to be given.
func credentialsOf(o *options, requests certificate.Requester, obs observe.To) (c credentials, err error) {
	bootstrap := bootstrapOf(o, obs)
	certified := true
	if bootstrap != nil && worthless(o.flags.Kubeconfig) != nil {
		c.rest = rest.AnonymousClientConfig(bootstrap)
	} else {
		if c.rest, err = kubeapi.LoadREST(o.flags.Kubeconfig); err != nil {
			return c, err
		}
		certified = c.rest.CertFile != "" || len(c.rest.CertData) > 0
	}
	if !certified || !o.kubelet.RotateCertificates && bootstrap == nil {
		return c, nil
	}
	cc := certificate.ClientConfig{
		Node: o.nodeName, Dir: o.flags.CertDir, Requests: requests, CertFile: c.rest.CertFile, KeyFile: c.rest.KeyFile,
		InitialCert: c.rest.CertData, InitialKey: c.rest.KeyData, Once: !o.kubelet.RotateCertificates, Observe: obs,
	}
	c.reconnect = func() {}
	cc.Changed = func(*tls.Certificate) { c.reconnect() }
	if bootstrap != nil {
		if cc.Bootstrap, err = kubeapi.New(kubeapi.Config{REST: bootstrap, Node: o.nodeName, Observe: obs}); err != nil {
			return c, err
		}
	}
	if c.renewed, err = certificate.NewClient(cc); err != nil {
		return c, err
	}
	c.rest, c.reconnect, err = kubeapi.WithCertificate(c.rest, c.renewed.GetClientCertificate)
	return c, err
}

// late asks whoever is there by the time it is asked: the client shows certificates that it asks for itself.
type late func() certificate.Requester

// CreateRequest makes a request.
func (l late) CreateRequest(ctx context.Context, r *certv1.CertificateSigningRequest) (*certv1.CertificateSigningRequest, error) {
	return l().CreateRequest(ctx, r)
}

// Request returns one.
func (l late) Request(ctx context.Context, name string) (*certv1.CertificateSigningRequest, error) {
	return l().Request(ctx, name)
}
