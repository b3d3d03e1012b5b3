package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubeapi/access"
	"github.com/kubeletkit/kubeletkit/server"
)

type noPods struct{}

func (noPods) Pods() []*v1.Pod { return nil }

// Whatever is configured, who shows nothing or something bad gets nothing.
func TestCase_c124_nobodyComesInByDefault(t *testing.T) {
	pool := x509.NewCertPool
	for name, cfg := range map[string]access.Config{
		"tokens":                    {Node: "n", Tokens: apiServer{}, Access: apiServer{}},
		"certificates":              {Node: "n", ClientCAs: pool, Access: apiServer{}},
		"all":                       {Node: "n", ClientCAs: pool, Tokens: apiServer{}, Access: apiServer{}},
		"all, everything allowed":   {ClientCAs: pool, Tokens: apiServer{}, AlwaysAllow: true},
		"all, and anonymous":        {Node: "n", ClientCAs: pool, Tokens: apiServer{}, Anonymous: true, Access: apiServer{}},
		"anonymous without a right": {Node: "n", Anonymous: true, Access: apiServer{}},
	} {
		a, err := access.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		h, err := server.New(server.Config{Pods: noPods{}, Access: a})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/", "/pods", "/runningpods/", "/exec/a/b/c?command=sh", "/attach/a/b/c", "/portForward/a/b", "/run/a/b/c", "/metrics", "/healthz", "/healthz/ping"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				for what, show := range map[string]func(r *http.Request){
					"nothing":       func(*http.Request) {},
					"a bad token":   func(r *http.Request) { r.Header.Set("Authorization", "Bearer expired") },
					"a proxy's":     func(r *http.Request) { r.Header.Set("X-Remote-User", "admin") },
					"a certificate": func(r *http.Request) { r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}} },
				} {
					w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
					show(r)
					h.ServeHTTP(w, r)
					if w.Code != http.StatusUnauthorized && (!cfg.Anonymous || w.Code != http.StatusForbidden) {
						t.Errorf("%s: %s %s with %s: %d", name, method, path, what, w.Code)
					}
				}
			}
		}
	}
}
