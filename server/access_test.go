package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime/logs"
	"github.com/kubeletkit/kubeletkit/server"
)

// full is a node with everything on.
func full(t testing.TB, change func(*server.Config)) (http.Handler, *streams) {
	t.Helper()
	s := &streams{}
	return node(t, func(c *server.Config) {
		c.Streams = s
		c.Running = running{}
		c.Timeline = &observe.Journal{}
		c.Configz = map[string]any{"kubeletconfig": map[string]any{"kind": "KubeletConfiguration"}}
		c.Logs = logsFunc(func(context.Context, *v1.Pod, string, bool, logs.Options) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("secret\n")), nil
		})
		ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })
		c.Metrics = map[string]http.Handler{"/metrics": ok, "/metrics/resource": ok}
		c.Profiles, c.Garbage, c.HostLogs = ok, ok, ok
		if change != nil {
			change(c)
		}
	}), s
}

// everything there is to ask for, and what only looks like it.
func everything() []string {
	return []string{
		"/", "//", "/pods", "/pods/", "/pods/x", "/podsx", "/runningpods", "/runningpods/", "/metrics", "/metrics/", "/metrics/resource", "/configz", "/configz/",
		"/debug/pods", "/debug/pods?format=json", "/debug/gc", "/debug/pprof/", "/stats/summary", "/logs/", "/checkpoint/default/web/app", "/run/default/web/app?cmd=id",
		"/containerLogs/default/web/app", "/containerLogs/default/web/", "/containerLogs/", "/containerLogs",
		"/exec/default/web/app?command=sh&input=1&output=1", "/exec/default/web/u1/app?command=sh&output=1", "/exec/default/web/app/?command=sh&output=1", "/exec/", "/exec",
		"//exec/default/web/app?command=sh&output=1", "/./exec/default/web/app?command=sh&output=1", "/healthz/../exec/default/web/app?command=sh&output=1",
		"/exec%2fdefault%2fweb%2fapp?command=sh&output=1", "/%65xec/default/web/app?command=sh&output=1", "/exec/default/web/app%2f..%2fapp?command=sh&output=1", "/EXEC/default/web/app?command=sh&output=1",
		"/attach/default/web/app?output=1", "/attach/default/web/u1/app?output=1", "/portForward/default/web?port=80", "/portForward/default/web/u1?port=80",
		"/healthz/", "/healthz/ping", "/healthz/..", "/healthz%2f..%2fpods", "/healthz/../pods", "/Healthz", "/healthz;/pods", "/healthz//",
	}
}

func TestCase_c124_nothingButHealthWithoutCredentials(t *testing.T) {
	other := "Bearer " + token + "x"
	for name, access := range map[string]server.Access{
		"no Access":      nil,
		"no credentials": server.AdminAccess{},
		"a token":        server.AdminAccess{Token: token},
		"roles":          role{},
	} {
		h, s := full(t, func(c *server.Config) { c.Access = access })
		for _, path := range everything() {
			for _, method := range []string{"GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "CONNECT", "BREW"} {
				for _, headers := range [][]string{
					nil,
					{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"},
					{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol", "v4.channel.k8s.io"},
					{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+token))},
					{"Authorization", "Bearer "},
					{"Authorization", strings.TrimSuffix(other, "x")[:10]},
				} {
					if name == "roles" && len(headers) == 2 {
						continue // there every token is somebody
					}
					w := ask(h, method, path, "", headers...)
					if w.Code != http.StatusUnauthorized || strings.TrimSpace(w.Body.String()) != "Unauthorized" {
						t.Errorf("%s: %s %s %v: %d %q", name, method, path, headers, w.Code, w.Body)
					}
				}
			}
		}
		if len(s.got) > 0 {
			t.Errorf("%s: sessions were opened: %+v", name, s.got)
		}
		want := http.StatusUnauthorized
		if access == nil {
			want = http.StatusOK
		}
		if w := ask(h, "GET", "/healthz", ""); w.Code != want {
			t.Errorf("%s: health: %d %q", name, w.Code, w.Body)
		}
	}
}

func TestCase_c124_wrongTokensAreNobody(t *testing.T) {
	h, _ := full(t, nil)
	for _, wrong := range []string{"x", token + "x", token[1:], strings.ToUpper(token), "undefined"} {
		if w := ask(h, "GET", "/pods", wrong); w.Code != http.StatusUnauthorized {
			t.Errorf("token %q: %d", wrong, w.Code)
		}
	}
	if w := ask(h, "GET", "/pods", "", "Authorization", "bearer "+token); w.Code != http.StatusOK {
		t.Errorf("the scheme is no matter of case: %d", w.Code)
	}
}

func TestSomebodyWithoutRightsIsForbidden(t *testing.T) {
	h, s := full(t, func(c *server.Config) { c.Access = role{} })
	for _, path := range everything() {
		for _, method := range []string{"GET", "POST"} {
			if w := upgrade(h, method, path, "get nodes/nothing", "websocket"); w.Code != http.StatusForbidden || !strings.HasPrefix(w.Body.String(), "Forbidden (user=get nodes/nothing, verb=") {
				t.Errorf("%s %s: %d %q", method, path, w.Code, w.Body)
			}
		}
	}
	if len(s.got) > 0 {
		t.Errorf("sessions were opened: %+v", s.got)
	}
}

// What can be used to look into pods, or to change them, can be closed. Who may not ask there is told that, and no more.
func TestClosed(t *testing.T) {
	h, sessions := full(t, func(c *server.Config) { c.Access, c.Closed = role{}, true })
	for _, tt := range []struct {
		right, method, path string
		code                int
	}{
		{"create nodes/proxy", "POST", "/exec/default/web/app?command=sh&output=1", 405},
		{"create nodes/proxy", "POST", "/exec/default/web/u1/app/?command=sh&output=1", 405},
		{"create nodes/proxy", "GET", "/attach/default/web/app?output=1", 405},
		{"create nodes/proxy", "POST", "/portForward/default/web?port=80", 405},
		{"get nodes/proxy", "GET", "/containerLogs/default/web/app", 405},
		{"get nodes/proxy", "GET", "/containerLogs/default/web", 405},
		{"get nodes/log", "GET", "/logs/syslog", 405},
		{"get nodes/pods", "GET", "/runningpods/", 405},
		{"get nodes/proxy", "GET", "/debug/pods", 405},
		{"create nodes/proxy", "POST", "/debug/gc", 405},
		{"get nodes/proxy", "GET", "/debug/pprof/heap", 405},
		{"get nodes/pods", "GET", "/exec/default/web/app?command=sh&output=1", 403},
		{"get nodes/pods", "GET", "/pods", 200},
		{"get nodes/metrics", "GET", "/metrics/resource", 200},
		{"get nodes/configz", "GET", "/configz", 200},
		{"get nodes/healthz", "GET", "/healthz", 200},
	} {
		w := upgrade(h, tt.method, tt.path, tt.right, "websocket")
		if w.Code != tt.code || tt.code == 405 && w.Body.String() != "Debug endpoints are disabled.\n" {
			t.Errorf("%s %s: %d %q, want %d", tt.method, tt.path, w.Code, w.Body, tt.code)
		}
	}
	if len(sessions.got) > 0 {
		t.Errorf("sessions were opened: %+v", sessions.got)
	}
}

func TestRights(t *testing.T) {
	const exec = "/exec/default/web/app?command=sh&output=1"
	for _, tt := range []struct {
		name, right, method, path string
		code                      int
	}{
		{"pods by their own right", "get nodes/pods", "GET", "/pods", 200},
		{"pods by proxy", "get nodes/proxy", "GET", "/pods/", 200},
		{"running pods by the right to pods", "get nodes/pods", "GET", "/runningpods/", 200},
		{"configz by its own right", "get nodes/configz", "GET", "/configz", 200},
		{"health by its own right", "get nodes/healthz", "GET", "/healthz", 200},
		{"health by another's right", "get nodes/configz", "GET", "/healthz", 403},
		{"checks by their own right", "get nodes/healthz", "GET", "/healthz/ping", 200},
		{"metrics by their own right", "get nodes/metrics", "GET", "/metrics", 200},
		{"metrics below by the same", "get nodes/metrics", "GET", "/metrics/resource", 200},
		{"metrics not by proxy", "get nodes/proxy", "GET", "/metrics", 403},
		{"figures by the right to stats", "get nodes/stats", "GET", "/stats/summary", 501},
		{"figures not by proxy", "get nodes/proxy", "GET", "/stats/summary", 403},
		{"what is not there below figures likewise", "get nodes/stats", "GET", "/stats/container", 404},
		{"what is not there below metrics likewise", "get nodes/metrics", "GET", "/metrics/none", 404},
		{"what is not there below pods likewise", "get nodes/pods", "GET", "/pods/x", 404},
		{"checkpoints by their own right", "create nodes/checkpoint", "POST", "/checkpoint/default/web/app", 404},
		{"checkpoints not by proxy", "create nodes/proxy", "POST", "/checkpoint/default/web/app", 403},
		{"logs by proxy", "get nodes/proxy", "GET", "/containerLogs/default/web/app", 200},
		{"logs not by log", "get nodes/log", "GET", "/containerLogs/default/web/app", 403},
		{"logs of the host by the right to log", "get nodes/log", "GET", "/logs/syslog", 200},
		{"logs of the host not by proxy", "get nodes/proxy", "GET", "/logs/syslog", 403},
		{"what is like pods is not pods", "get nodes/pods", "GET", "/podsx", 403},
		{"unknown paths are shown to proxies only", "get nodes/proxy", "GET", "/podsx", 404},
		{"exec needs create", "create nodes/proxy", "POST", exec, 200},
		{"exec by GET needs create too", "create nodes/proxy", "GET", exec, 200},
		{"exec by GET is not for readers", "get nodes/proxy", "GET", exec, 403},
		{"exec with a uid by GET is not for readers", "get nodes/proxy", "GET", "/exec/default/web/u1/app?command=sh&output=1", 403},
		{"attach by GET is not for readers", "get nodes/proxy", "GET", "/attach/default/web/app?output=1", 403},
		{"port-forward by GET is not for readers", "get nodes/proxy", "GET", "/portForward/default/web?port=80", 403},
		{"an odd path to exec is no exec for readers", "get nodes/proxy", "GET", "//exec/default/web/app?command=sh&output=1", 403},
		{"what could be removed is shown to readers", "get nodes/proxy", "GET", "/debug/gc", 200},
		{"it is removed by who may create", "create nodes/proxy", "POST", "/debug/gc", 200},
		{"and not by readers", "get nodes/proxy", "POST", "/debug/gc", 403},
		{"post is create", "create nodes/pods", "POST", "/pods", 405},
		{"other methods have no verb", " nodes/pods", "HEAD", "/pods", 405},
		{"an authorizer in trouble stops everything", "broken", "GET", "/pods", 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, s := full(t, func(c *server.Config) { c.Access = role{} })
			w := upgrade(h, tt.method, tt.path, tt.right, "websocket")
			if w.Code != tt.code {
				t.Errorf("answer %d %q, want %d", w.Code, w.Body, tt.code)
			}
			if strings.Contains(tt.path, "exec") && len(s.got) > 0 != (tt.code == 200) {
				t.Errorf("sessions: %+v", s.got)
			}
		})
	}
}

func TestCase_c122_thereIsNoReadOnlyDoorAndNoCheckpoint(t *testing.T) {
	h, _ := full(t, nil)
	for _, path := range []string{"/checkpoint/default/web/app", "/run/default/web/app?cmd=id"} {
		if w := ask(h, "POST", path, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("%s without credentials: %d", path, w.Code)
		}
		if w := ask(h, "POST", path, token); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestABrowserShowsItsTokenAsAProtocol(t *testing.T) {
	h, s := full(t, nil)
	for _, tt := range []struct {
		shown string
		code  int
	}{
		{token, 200},
		{"other", 401},
	} {
		p := "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(tt.shown))
		w := ask(h, "GET", "/attach/default/web/app?output=1", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol", p)
		if w.Code != tt.code {
			t.Errorf("%s: %d", tt.shown, w.Code)
		}
	}
	if len(s.got) != 1 {
		t.Errorf("%d sessions", len(s.got))
	}
}

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return authority{sign(t, &x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true}, authority{key: key}, key), key}
}

func sign(t *testing.T, template *x509.Certificate, by authority, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if by.cert == nil {
		by.cert = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a authority) client(t *testing.T, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, ExtKeyUsage: []x509.ExtKeyUsage{usage}}, a, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func TestCase_c124_clientCertificates(t *testing.T) {
	good, bad := newAuthority(t), newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(good.cert)
	for _, tt := range []struct {
		name   string
		access server.AdminAccess
		ask    tls.ClientAuthType
		cert   *tls.Certificate
		code   int
	}{
		{"a good one that TLS verified", server.AdminAccess{}, tls.VerifyClientCertIfGiven, new(good.client(t, x509.ExtKeyUsageClientAuth)), 200},
		{"a good one that TLS only asked for", server.AdminAccess{ClientCAs: pool}, tls.RequestClientCert, new(good.client(t, x509.ExtKeyUsageClientAuth)), 200},
		{"a good one that nobody verifies", server.AdminAccess{}, tls.RequestClientCert, new(good.client(t, x509.ExtKeyUsageClientAuth)), 401},
		{"one of somebody else", server.AdminAccess{ClientCAs: pool}, tls.RequestClientCert, new(bad.client(t, x509.ExtKeyUsageClientAuth)), 401},
		{"one for servers", server.AdminAccess{ClientCAs: pool}, tls.RequestClientCert, new(good.client(t, x509.ExtKeyUsageServerAuth)), 401},
		{"none", server.AdminAccess{ClientCAs: pool}, tls.VerifyClientCertIfGiven, nil, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(node(t, func(c *server.Config) { c.Access = tt.access }))
			s.TLS = &tls.Config{ClientAuth: tt.ask, ClientCAs: pool}
			s.StartTLS()
			defer s.Close()
			client := s.Client()
			if tt.cert != nil {
				// shown whoever the server says it trusts
				client.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tt.cert, nil }
			}
			resp, err := client.Get(s.URL + "/pods")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != tt.code {
				t.Errorf("got %s, want %d", resp.Status, tt.code)
			}
		})
	}
}

func TestABadCertificateDoesNotStandInTheWayOfAGoodToken(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/pods", http.NoBody)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{newAuthority(t).cert}}
	r.Header.Set("Authorization", "Bearer "+token)
	user, err := server.AdminAccess{Token: token, ClientCAs: x509.NewCertPool()}.Authenticate(r)
	if user == nil || err != nil {
		t.Errorf("got %v, %v", user, err)
	}
}

func TestSelfSignedIsGoodForItsHosts(t *testing.T) {
	cert, err := server.SelfSigned([]string{"node-1", "127.0.0.1", "::1"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pki", "nodeagent.crt")
	if err := server.WriteCertificate(path, cert); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(text); block == nil || strings.Contains(string(text), "KEY") {
		t.Fatalf("the file has %s", text)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)

	s := httptest.NewUnstartedServer(node(t, nil))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // one client below hangs up
	s.StartTLS()
	defer s.Close()
	for name, good := range map[string]bool{"node-1": true, "127.0.0.1": true, "::1": true, "node-2": false} {
		conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{RootCAs: pool, ServerName: name})
		if (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
	if _, err := server.SelfSigned(nil); err == nil {
		t.Error("a certificate for nobody was made")
	}
}

func TestWriteTokenMakesAPrivateFileEachTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root", "admin.token")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	first, err := server.WriteToken(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := server.WriteToken(path)
	if err != nil {
		t.Fatal(err)
	}
	if first == second || len(second) < 40 {
		t.Errorf("tokens %q, %q", first, second)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != second+"\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := server.WriteToken(filepath.Join(path, "below-a-file")); err == nil {
		t.Error("a token was written nowhere")
	}
}
