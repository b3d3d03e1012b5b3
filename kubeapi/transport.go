package kubeapi

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// WithCertificate is cfg with a client certificate that is asked for at each new connection, in place of the one cfg names.
// closeAll closes the connections there are: the server looks at a certificate only when a connection begins.
func WithCertificate(cfg *rest.Config, get func(*tls.CertificateRequestInfo) (*tls.Certificate, error)) (with *rest.Config, closeAll func(), err error) {
	with = rest.CopyConfig(cfg)
	with.CertData, with.CertFile, with.KeyData, with.KeyFile = nil, "", nil, ""
	config, err := rest.TLSConfigFor(with)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeapi: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.GetClientCertificate = get
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	proxy := http.ProxyFromEnvironment
	if with.Proxy != nil {
		proxy = with.Proxy
	}
	with.Transport = utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: config, MaxIdleConnsPerHost: 25, DialContext: dialer.DialContext,
	})
	with.TLSClientConfig, with.Proxy, with.Dial = rest.TLSClientConfig{}, nil, nil
	return with, dialer.CloseAll, nil
}
