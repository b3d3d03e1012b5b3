package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/kubeapi/access"
)

// apiServer answers reviews and remembers them.
type apiServer struct {
	client kubernetes.Interface

	mu      sync.Mutex
	asked   []any // specs, in order
	trouble []int // codes that the next requests get
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: h.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		review := &authnv1.TokenReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		s.asked = append(s.asked, review.Spec)
		review.Status = tokenStatus(review.Spec.Token)
		answer = review
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		review := &authzv1.SubjectAccessReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		s.asked = append(s.asked, review.Spec)
		review.Status = accessStatus(review.Spec)
		answer = review
	}
	code := http.StatusCreated
	if len(s.trouble) > 0 {
		code, s.trouble = s.trouble[0], s.trouble[1:]
		answer = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons()[code]}
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func reasons() map[int]metav1.StatusReason {
	return map[int]metav1.StatusReason{
		http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
	}
}

func tokenStatus(token string) authnv1.TokenReviewStatus {
	good := func(name string, groups ...string) authnv1.TokenReviewStatus {
		return authnv1.TokenReviewStatus{Authenticated: true, User: authnv1.UserInfo{
			Username: name, UID: "uid-" + name, Groups: groups, Extra: map[string]authnv1.ExtraValue{"Example.org/Scope": {"a", "b"}},
		}}
	}
	switch token {
	case "anna":
		return good("anna", "admins")
	case "grouped":
		return good("grouped", "system:authenticated", "x")
	case "outcast":
		return good("outcast", "system:unauthenticated")
	case "anonymous":
		return good("system:anonymous")
	case "expired":
		return authnv1.TokenReviewStatus{Error: "token expired"}
	case "odd":
		s := good("odd")
		s.Error = "but"
		return s
	}
	return authnv1.TokenReviewStatus{}
}

func accessStatus(r authzv1.SubjectAccessReviewSpec) authzv1.SubjectAccessReviewStatus {
	switch r.ResourceAttributes.Verb {
	case "get":
		return authzv1.SubjectAccessReviewStatus{Allowed: true}
	case "delete":
		return authzv1.SubjectAccessReviewStatus{Denied: true}
	case "patch":
		return authzv1.SubjectAccessReviewStatus{Denied: true, Allowed: true}
	case "update":
		return authzv1.SubjectAccessReviewStatus{EvaluationError: "x"}
	}
	return authzv1.SubjectAccessReviewStatus{}
}

// take returns what was asked since the last call.
func (s *apiServer) take() []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.asked = nil }()
	return s.asked
}

func (s *apiServer) spoil(codes ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = codes
}

func (s *apiServer) ReviewToken(ctx context.Context, r *authnv1.TokenReview) (*authnv1.TokenReview, error) {
	return s.client.AuthenticationV1().TokenReviews().Create(ctx, r, metav1.CreateOptions{})
}

func (s *apiServer) ReviewAccess(ctx context.Context, r *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, error) {
	return s.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, r, metav1.CreateOptions{})
}

// backoff is the kubelet's, ten times as fast.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// setting is one way to configure both.
type setting struct {
	name                 string
	certificates, tokens bool
	anonymous            bool
}

func settings() []setting {
	return []setting{
		{name: "all", certificates: true, tokens: true},
		{name: "all, and anonymous", certificates: true, tokens: true, anonymous: true},
		{name: "tokens", tokens: true},
		{name: "tokens, and anonymous", tokens: true, anonymous: true},
		{name: "certificates", certificates: true},
		{name: "certificates, and anonymous", certificates: true, anonymous: true},
		{name: "anonymous alone", anonymous: true},
	}
}

func (s setting) theirs(t *testing.T, api *apiServer, ca string) authenticator.Request {
	t.Helper()
	cfg := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: s.anonymous}, CacheTTL: 2 * time.Minute,
	}
	if s.certificates {
		file, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", ca)
		if err != nil {
			t.Fatal(err)
		}
		cfg.ClientCertificateCAContentProvider = file
	}
	if s.tokens {
		cfg.TokenAccessReviewClient, cfg.WebhookRetryBackoff = api.client.AuthenticationV1(), backoff()
	}
	out, _, err := cfg.New()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s setting) ours(t *testing.T, api *apiServer, ca string) *access.Access {
	t.Helper()
	cfg := access.Config{Node: "n1", Anonymous: s.anonymous, Access: api}
	if s.certificates {
		cfg.ClientCAFile = ca
	}
	if s.tokens {
		cfg.Tokens = api
	}
	out, err := access.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inputs are requests, made anew for each side.
func inputs(t *testing.T, ca *authority) map[string]func() *http.Request {
	t.Helper()
	out := map[string]func() *http.Request{}
	headers := func(name string, all ...string) {
		out[name] = func() *http.Request {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", http.NoBody)
			for h := range slices.Chunk(all, 2) {
				r.Header.Add(h[0], h[1])
			}
			return r
		}
	}
	headers("nothing")
	for _, token := range []string{"anna", "grouped", "outcast", "anonymous", "expired", "odd", "unknown", "", " anna", "anna anna", "an\tna"} {
		headers("token "+token, "Authorization", "Bearer "+token)
	}
	headers("another case", "Authorization", "bEaReR anna")
	headers("another scheme", "Authorization", "Basic anna")
	headers("spaces around", "Authorization", "  Bearer anna  ")
	headers("no space", "Authorization", "Beareranna")
	headers("two headers", "Authorization", "Bearer unknown", "Authorization", "Bearer anna")
	headers("names of a proxy", "X-Remote-User", "admin", "X-Remote-Group", "system:masters")
	const p, anna, unknown = "base64url.bearer.authorization.k8s.io.", "YW5uYQ", "dW5rbm93bg"
	ws := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol"}
	for _, list := range []string{"a, " + p + anna, p + anna + ",b", p + anna, "a," + p + anna + "," + p + anna, "a," + p + anna + "==", "a," + p, "a, " + p + unknown, "a", "", "a,," + p + anna, "a," + p + "_w"} {
		headers("protocols "+list, append(slices.Clone(ws), list)...)
		headers("protocols with a bad token, "+list, append(slices.Clone(ws), list, "Authorization", "Bearer unknown")...)
	}
	headers("protocols without an upgrade", "Sec-WebSocket-Protocol", "a,"+p+anna)
	headers("protocols in two headers", append(slices.Clone(ws), "a", "Sec-WebSocket-Protocol", p+anna)...)

	shown := func(name string, certs ...*x509.Certificate) {
		for token, header := range map[string]string{"": "", " and a good token": "Bearer anna", " and a bad token": "Bearer unknown"} {
			out[name+token] = func() *http.Request {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", http.NoBody)
				r.TLS = &tls.ConnectionState{PeerCertificates: certs}
				if header != "" {
					r.Header.Set("Authorization", header)
				}
				return r
			}
		}
	}
	client := func(by *authority, name string, change func(*x509.Certificate)) *x509.Certificate {
		c := &x509.Certificate{
			Subject:  pkix.Name{CommonName: name, Organization: []string{"z", "a"}},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if change != nil {
			change(c)
		}
		return by.make(t, c).cert
	}
	between := ca.make(t, &x509.Certificate{Subject: pkix.Name{CommonName: "between"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign})
	shown("no certificates")
	shown("good", client(ca, "bert", nil))
	shown("by way of another", client(between, "bert", nil), between.cert)
	shown("by way of another not shown", client(between, "bert", nil))
	shown("somebody else's", client(newAuthority(t), "bert", nil))
	shown("without a name", client(ca, "", nil))
	shown("without groups", client(ca, "bert", func(c *x509.Certificate) { c.Subject.Organization = nil }))
	shown("system:anonymous", client(ca, "system:anonymous", nil))
	shown("for servers", client(ca, "bert", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }))
	shown("for anything", client(ca, "bert", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }))
	shown("expired", client(ca, "bert", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}))
	for name, uids := range map[string][]string{"with a uid": {"7"}, "with two uids": {"7", "8"}, "with an empty uid": {""}} {
		shown(name, client(ca, "bert", func(c *x509.Certificate) {
			for _, uid := range uids {
				c.Subject.ExtraNames = append(c.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: []int{1, 3, 6, 1, 4, 1, 57683, 2}, Value: uid})
			}
		}))
	}
	return out
}

func TestWhoAsks(t *testing.T) {
	ca := newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	requests := inputs(t, ca)
	for _, s := range settings() {
		t.Run(s.name, func(t *testing.T) {
			for name, request := range requests {
				api := newAPIServer(t)
				theirs, ours := s.theirs(t, api, file), s.ours(t, api, file)
				a, b := request(), request()
				for range 2 { // asked, and from the cache
					res, ok, err := theirs.AuthenticateRequest(a)
					askedThere := api.take()
					got, gotErr := ours.Authenticate(b)
					askedHere := api.take()
					switch {
					case (err == nil) != (gotErr == nil):
						t.Errorf("%s: error %v there, %v here", name, err, gotErr)
					case ok != (got != nil):
						t.Errorf("%s: known %v there, %v here", name, ok, got != nil)
					case ok && !reflect.DeepEqual(plain(res.User), got):
						t.Errorf("%s: there %+v\nhere %+v", name, plain(res.User), got)
					case !reflect.DeepEqual(a.Header, b.Header):
						t.Errorf("%s: headers afterwards: there %v, here %v", name, a.Header, b.Header)
					case !reflect.DeepEqual(askedThere, askedHere):
						t.Errorf("%s: asked there %+v, here %+v", name, askedThere, askedHere)
					}
					a, b = request(), request()
				}
			}
		})
	}
}

// plain is their user in API terms.
func plain(u user.Info) *authnv1.UserInfo {
	out := &authnv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	if u.GetExtra() != nil {
		out.Extra = map[string]authnv1.ExtraValue{}
		for k, v := range u.GetExtra() {
			out.Extra[k] = v
		}
	}
	return out
}

func TestWhatTheyMay(t *testing.T) {
	for _, who := range []*authnv1.UserInfo{
		{Username: "anna", UID: "7", Groups: []string{"b", "a"}, Extra: map[string]authnv1.ExtraValue{"Example.org/Scope": {"x", "y"}, "a": nil}},
		{Username: "bert"},
	} {
		api := newAPIServer(t)
		theirs, err := (authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: api.client.AuthorizationV1(), AllowCacheTTL: 5 * time.Minute, DenyCacheTTL: 30 * time.Second, WebhookRetryBackoff: backoff(),
		}).New()
		if err != nil {
			t.Fatal(err)
		}
		ours := setting{tokens: true}.ours(t, api, "")
		for _, verb := range []string{"get", "create", "update", "patch", "delete", ""} {
			for _, sub := range []string{"proxy", "metrics", "stats", "log", "pods", "healthz", "configz", "checkpoint"} {
				for range 2 { // asked, and from the cache
					decision, _, err := theirs.Authorize(t.Context(), attributes(who, verb, sub))
					askedThere := api.take()
					ok, gotErr := ours.Authorize(t.Context(), who, verb, "nodes", sub)
					askedHere := api.take()
					if (err == nil) != (gotErr == nil) || (decision == authorizer.DecisionAllow) != ok {
						t.Errorf("%s %s %s: there %v, %v; here %v, %v", who.Username, verb, sub, decision, err, ok, gotErr)
					}
					if !reflect.DeepEqual(askedThere, askedHere) {
						t.Errorf("%s %s %s: asked there %+v, here %+v", who.Username, verb, sub, askedThere, askedHere)
					}
				}
			}
		}
	}
}

// attributes are those the kubelet gives to its authorizer.
func attributes(who *authnv1.UserInfo, verb, sub string) authorizer.Attributes {
	u := &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups}
	if who.Extra != nil {
		u.Extra = map[string][]string{}
		for k, v := range who.Extra {
			u.Extra[k] = v
		}
	}
	return authorizer.AttributesRecord{User: u, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: sub, Name: "n1", ResourceRequest: true, Path: "/x"}
}

// The same trouble is worth the same number of attempts, and leads to the same end.
func TestTrouble(t *testing.T) {
	for _, codes := range [][]int{
		{500}, {500, 500}, {500, 500, 500, 500}, {500, 500, 500, 500, 500}, {504}, {401}, {403}, {500, 403}, {503},
	} {
		api := newAPIServer(t)
		s := setting{tokens: true}
		theirs, ours := s.theirs(t, api, ""), s.ours(t, api, "")
		request := inputs(t, newAuthority(t))["token anna"]

		api.spoil(codes...)
		_, ok, err := theirs.AuthenticateRequest(request())
		there := len(api.take())
		api.spoil(codes...)
		got, gotErr := ours.Authenticate(request())
		here := len(api.take())
		if there != here || ok != (got != nil) || (err == nil) != (gotErr == nil) {
			t.Errorf("%v: there %d attempts, %v, %v; here %d, %v, %v", codes, there, ok, err, here, got, gotErr)
		}
	}
}
