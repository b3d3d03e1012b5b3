package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	authnv1 "k8s.io/api/authentication/v1"

	"github.com/kubeletkit/kubeletkit/examples/nodeagent/config"
	"github.com/kubeletkit/kubeletkit/kubeapi/access"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/server"
)

// fronts are the servers that the configuration asks for: the node's API, and without authentication health, and health and
// metrics.
func fronts(b *build, o *options, m *member, c server.Config, log *slog.Logger) (all []runner) {
	if b.err != nil {
		return nil
	}
	add := func(w *web, err error) {
		if b.err == nil {
			b.err = err
		}
		all = append(all, w)
	}
	if o.port != 0 {
		add(front(o, m, c, log))
	}
	if port := value(o.kubelet.HealthzPort); port != 0 { // who looks there restarts the agent, which mends no container runtime
		alive := server.Config{Pods: c.Pods, Observe: c.Observe}
		open := plain(b, o.kubelet.HealthzBindAddress, int(port), alive, log)
		all = append(all, patient{open, 5 * time.Second, log.With("component", "server")})
	}
	if port := o.kubelet.ReadOnlyPort; port != 0 {
		reading := server.Config{Pods: c.Pods, Health: c.Health, Metrics: c.Metrics, Summary: c.Summary, Access: everybody{}, ReadOnly: true, Observe: c.Observe}
		if open := plain(b, o.address, int(port), reading, log); b.err == nil {
			add(open())
		}
	}
	return all
}

// everybody may read, without saying who they are.
type everybody struct{}

// Authenticate says that it is anybody.
func (everybody) Authenticate(*http.Request) (*authnv1.UserInfo, error) {
	return &authnv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}, nil
}

// Authorize lets them read.
func (everybody) Authorize(_ context.Context, _ *authnv1.UserInfo, verb, _, _ string) (bool, error) {
	return verb == "get", nil
}

// plain makes servers without TLS.
func plain(b *build, address string, port int, c server.Config, log *slog.Logger) (open func() (*web, error)) {
	handler := one(b, server.New, c)
	return func() (*web, error) { return newWeb(address, port, handler, nil, log.With("component", "server")) }
}

// front is the server with its certificate, and the token that opens it to the administrator of this machine.
func front(o *options, m *member, c server.Config, log *slog.Logger) (*web, error) {
	if err := os.MkdirAll(filepath.Join(o.flags.RootDir, "pki"), 0o755); err != nil {
		return nil, fmt.Errorf("make --root-dir: %w", err)
	}
	token, err := server.WriteToken(filepath.Join(o.flags.RootDir, "admin.token"))
	if err != nil {
		return nil, err
	}
	if c.Access, err = accessOf(o, m, token, c.Observe); err != nil {
		return nil, err
	}
	serving, err := servingOf(o, m, c.Observe)
	if err != nil {
		return nil, err
	}
	secure, err := config.TLS(o.kubelet)
	if err != nil {
		return nil, err
	}
	secure.ClientAuth, secure.GetCertificate = tls.RequestClientCert, serving
	handler, err := server.New(c)
	if err != nil {
		return nil, err
	}
	return newWeb(o.address, o.port, handler, secure, log.With("component", "server"))
}

// accessOf is who may use the API: without a cluster whoever has the token, or a certificate of the authority that is named.
func accessOf(o *options, m *member, token string, obs observe.To) (server.Access, error) {
	if m != nil {
		return m.gateOf(o, token, obs)
	}
	a := administrators{AdminAccess: server.AdminAccess{Token: token}}
	file := o.kubelet.Authentication.X509.ClientCAFile
	if file == "" {
		return a, nil
	}
	var err error
	if a.cas, err = access.CAFile(file, obs.Logger()); err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	return a, nil
}

// administrators have the token, or a certificate of authorities that may change.
type administrators struct {
	server.AdminAccess

	cas func() *x509.CertPool // nil: none
}

// Authenticate implements server.Access.
func (a administrators) Authenticate(r *http.Request) (*authnv1.UserInfo, error) {
	now := a.AdminAccess
	if a.cas != nil {
		now.ClientCAs = a.cas()
	}
	return now.Authenticate(r)
}
