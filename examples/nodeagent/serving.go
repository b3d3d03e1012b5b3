package main

import (
	"crypto/tls"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubeapi/certificate"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/server"
)

// getCertificate is what a tls.Config asks at each connection.
type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// servingOf is the certificate of the node's API: that of the files that are named, read again when they change; else one
// the API server signs, if the configuration says so; else a new one that nobody else has signed. Its public part lies where
// clients on this machine find it.
func servingOf(o *options, m *member, obs observe.To) (getCertificate, error) {
	switch {
	case o.kubelet.TLSCertFile != "":
		files, err := certificate.NewFiles(certificate.FilesConfig{CertFile: o.kubelet.TLSCertFile, KeyFile: o.kubelet.TLSPrivateKeyFile, Observe: obs})
		if err != nil {
			return nil, err
		}
		return shown(o, obs, files.GetCertificate), nil
	case m != nil && o.kubelet.ServerTLSBootstrap:
		return shown(o, obs, m.serving.GetCertificate), nil
	}
	own := &selfSigned{hosts: append([]string{o.nodeName, "localhost", o.address, "127.0.0.1", "::1"}, o.hostIPs...)}
	cert, err := own.get(nil)
	if err != nil {
		return nil, err
	}
	return shown(o, obs, own.get), server.WriteCertificate(publicPath(o), *cert)
}

// selfSigned is a certificate that nobody else has signed. It is made anew a month before it ends.
type selfSigned struct {
	hosts []string

	mu   sync.Mutex // guards cert
	cert *tls.Certificate
}

const lastMonth = 30 * 24 * time.Hour

func (s *selfSigned) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cert != nil && time.Until(s.cert.Leaf.NotAfter) > lastMonth {
		return s.cert, nil
	}
	cert, err := server.SelfSigned(s.hosts)
	if err != nil {
		return nil, err
	}
	s.cert = &cert
	return s.cert, nil
}

func publicPath(o *options) string { return filepath.Join(o.flags.RootDir, "pki", "nodeagent.crt") }

// shown also puts each new certificate where clients on this machine look for it.
func shown(o *options, obs observe.To, get getCertificate) getCertificate {
	var last atomic.Pointer[tls.Certificate]
	look := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := get(hello)
		if err != nil {
			return nil, err
		}
		if last.Swap(cert) != cert {
			if err := server.WriteCertificate(publicPath(o), *cert); err != nil {
				obs.Logger().Warn("clients on this machine may not know the new serving certificate", "err", err)
			}
		}
		return cert, nil
	}
	_, _ = look(nil) // there may be none yet
	return look
}

// newServing has the API server sign the serving certificate.
func (m *member) newServing(b *build, o *options, obs observe.To) {
	if !o.kubelet.ServerTLSBootstrap || b.err != nil {
		return
	}
	m.serving = one(b, certificate.NewServing, certificate.ServingConfig{
		Node: o.nodeName, Dir: o.flags.CertDir, Requests: m.client, Observe: obs,
		Addresses: func() []v1.NodeAddress {
			if n := m.client.Node(); n != nil {
				return n.Status.Addresses
			}
			return nil
		},
	})
}
