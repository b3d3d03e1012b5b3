package access

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a Reviewer. Tokens are user names with the prefix "token-"; users may "get" only.
type cluster struct {
	mu      sync.Mutex
	tokens  int
	rights  []authzv1.SubjectAccessReviewSpec
	trouble []error // what the next calls answer
	answer  *authzv1.SubjectAccessReviewStatus
	gate    func(ctx context.Context)
}

func (c *cluster) enter(ctx context.Context) error {
	c.mu.Lock()
	gate := c.gate
	var err error
	if len(c.trouble) > 0 {
		err, c.trouble = c.trouble[0], c.trouble[1:]
	}
	c.mu.Unlock()
	if gate != nil {
		gate(ctx)
	}
	return errors.Join(err, ctx.Err())
}

func (c *cluster) ReviewToken(ctx context.Context, r *authnv1.TokenReview) (*authnv1.TokenReview, error) {
	c.mu.Lock()
	c.tokens++
	c.mu.Unlock()
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	out := r.DeepCopy()
	switch r.Spec.Token {
	case "token-anna":
		out.Status = authnv1.TokenReviewStatus{Authenticated: true, User: authnv1.UserInfo{
			Username: "anna", UID: "7", Groups: []string{"admins"}, Extra: map[string]authnv1.ExtraValue{"scope": {"a", "b"}},
		}}
	case "token-expired":
		out.Status.Error = "token expired"
	}
	return out, nil
}

func (c *cluster) ReviewAccess(ctx context.Context, r *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, error) {
	c.mu.Lock()
	c.rights = append(c.rights, r.Spec)
	answer := c.answer
	c.mu.Unlock()
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	out := r.DeepCopy()
	out.Status.Allowed = r.Spec.ResourceAttributes.Verb == "get"
	if answer != nil {
		out.Status = *answer
	}
	return out, nil
}

// open is an Access with everything on.
func open(t testing.TB, c *cluster, change func(*Config)) *Access {
	t.Helper()
	cfg := Config{Node: "n1", Tokens: c, Access: c}
	if change != nil {
		change(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func request(ctx context.Context, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/pods", http.NoBody)
	for h := range slices.Chunk(headers, 2) {
		r.Header.Add(h[0], h[1])
	}
	return r
}

func TestNewRefuses(t *testing.T) {
	c := &cluster{}
	pool := func() *x509.CertPool { return nil }
	for name, cfg := range map[string]Config{
		"nothing":                              {},
		"no way to authenticate":               {Node: "n", Access: c},
		"no way to authenticate but all right": {AlwaysAllow: true},
		"no way to authorize":                  {Tokens: c},
		"two ways to authorize":                {Node: "n", Tokens: c, Access: c, AlwaysAllow: true},
		"no node":                              {Tokens: c, Access: c},
		"two sources of client CAs":            {Node: "n", Access: c, ClientCAFile: "x", ClientCAs: pool},
		"a client CA file that is not there":   {Node: "n", Access: c, ClientCAFile: "/nowhere/ca.crt"},
	} {
		if a, err := New(cfg); err == nil || a != nil {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
}

func TestWhoAsks(t *testing.T) {
	const browser = "base64url.bearer.authorization.k8s.io."
	for _, tt := range []struct {
		name      string
		headers   []string
		anonymous bool
		user      string // empty: nobody
		failed    bool
	}{
		{name: "nothing is nobody"},
		{name: "nothing is anonymous where that is allowed", anonymous: true, user: anonymous},
		{name: "a token is its user", headers: []string{"Authorization", "Bearer token-anna"}, user: "anna"},
		{name: "the scheme is no matter of case", headers: []string{"Authorization", "bEARER token-anna"}, user: "anna"},
		{name: "what follows a token is not looked at", headers: []string{"Authorization", " Bearer token-anna x y"}, user: "anna"},
		{name: "an unknown token is nobody", headers: []string{"Authorization", "Bearer x"}, failed: true},
		{name: "an unknown token is not anonymous", headers: []string{"Authorization", "Bearer x"}, anonymous: true, failed: true},
		{name: "an expired token is nobody", headers: []string{"Authorization", "Bearer token-expired"}, anonymous: true, failed: true},
		{name: "two spaces are no token", headers: []string{"Authorization", "Bearer  token-anna"}},
		{name: "an empty token is none", headers: []string{"Authorization", "Bearer "}, anonymous: true, user: anonymous},
		{name: "another scheme is no token", headers: []string{"Authorization", "Basic token-anna"}, anonymous: true, user: anonymous},
		{name: "names in headers count for nothing", headers: []string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "Impersonate-User", "admin"}},
		{name: "a browser shows its token as a protocol", user: "anna", headers: []string{
			"Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Protocol", "v4.channel.k8s.io, " + browser + "dG9rZW4tYW5uYQ",
		}},
		{name: "the protocols may come in several headers", user: "anna", headers: []string{
			"Connection", "keep-alive, Upgrade", "Upgrade", "WebSocket",
			"Sec-WebSocket-Protocol", browser + "dG9rZW4tYW5uYQ", "Sec-WebSocket-Protocol", "v5.channel.k8s.io",
		}},
		{name: "not without an upgrade", headers: []string{"Sec-WebSocket-Protocol", "a, " + browser + "dG9rZW4tYW5uYQ"}},
		{name: "not as the only protocol", failed: true, headers: []string{
			"Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Protocol", browser + "dG9rZW4tYW5uYQ",
		}},
		{name: "not twice", failed: true, headers: []string{
			"Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Protocol", "a, " + browser + "dG9rZW4tYW5uYQ, " + browser + "dG9rZW4tYW5uYQ",
		}},
		{name: "not in another encoding", failed: true, headers: []string{
			"Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Protocol", "a, " + browser + "dG9rZW4tYW5uYQ==",
		}},
		{name: "a bad token in the header, a good one as a protocol", user: "anna", headers: []string{
			"Authorization", "Bearer x",
			"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol", "a, " + browser + "dG9rZW4tYW5uYQ",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := open(t, &cluster{}, func(c *Config) { c.Anonymous = tt.anonymous })
			r := request(t.Context(), tt.headers...)
			user, err := a.Authenticate(r)
			switch {
			case tt.user == "" && user != nil:
				t.Errorf("it is %+v", user)
			case tt.user != "" && (user == nil || user.Username != tt.user || err != nil):
				t.Errorf("it is %+v, %v", user, err)
			case (err != nil) != tt.failed:
				t.Errorf("error %v", err)
			}
			if tt.user == "anna" && len(r.Header[protocols]) > 1 {
				t.Errorf("protocols left: %q", r.Header[protocols])
			}
		})
	}
}

func TestAGoodTokenIsTakenOutOfTheRequest(t *testing.T) {
	a := open(t, &cluster{}, nil)
	r := request(t.Context(), "Authorization", "Bearer token-anna")
	if _, err := a.Authenticate(r); err != nil || r.Header.Get("Authorization") != "" {
		t.Errorf("header %q, %v", r.Header.Get("Authorization"), err)
	}
	r = request(t.Context(), "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol",
		"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4tYW5uYQ, v3.channel.k8s.io")
	if _, err := a.Authenticate(r); err != nil || r.Header.Get("Sec-WebSocket-Protocol") != "v4.channel.k8s.io,v3.channel.k8s.io" {
		t.Errorf("header %q, %v", r.Header.Get("Sec-WebSocket-Protocol"), err)
	}
}

func TestWhoIsKnownIsInTheGroupOfThose(t *testing.T) {
	for _, tt := range []struct {
		name         string
		user         string
		groups, want []string
	}{
		{"known", "anna", []string{"a"}, []string{"a", authenticated}},
		{"without a group", "anna", nil, []string{authenticated}},
		{"once only", "anna", []string{authenticated, "a"}, []string{authenticated, "a"}},
		{"not who is said not to be", "anna", []string{unauthenticated}, []string{unauthenticated}},
		{"not anonymous", anonymous, []string{"a"}, []string{"a"}},
	} {
		got := member(&authnv1.UserInfo{Username: tt.user, Groups: tt.groups}).Groups
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

func TestTheAnswerIsTheCallers(t *testing.T) {
	a := open(t, &cluster{}, nil)
	for range 3 {
		user, err := a.Authenticate(request(t.Context(), "Authorization", "Bearer token-anna"))
		if err != nil || !slices.Equal(user.Groups, []string{"admins", authenticated}) || len(user.Extra) != 1 {
			t.Fatalf("%+v, %v", user, err)
		}
		user.Groups[0], user.Username = "x", "x"
		delete(user.Extra, "scope")
	}
}

func TestWhatIsAsked(t *testing.T) {
	c := &cluster{}
	a := open(t, c, nil)
	user, err := a.Authenticate(request(t.Context(), "Authorization", "Bearer token-anna"))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := a.Authorize(t.Context(), user, "get", "nodes", "metrics"); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	got := c.rights[0]
	want := authzv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "metrics", Name: "n1"}
	if *got.ResourceAttributes != want || got.NonResourceAttributes != nil {
		t.Errorf("asked for %+v", got.ResourceAttributes)
	}
	if got.User != "anna" || got.UID != "7" || !slices.Equal(got.Groups, []string{"admins", authenticated}) || !slices.Equal(got.Extra["scope"], authzv1.ExtraValue{"a", "b"}) {
		t.Errorf("asked for %+v", got)
	}
}

func TestWhatTheyMay(t *testing.T) {
	type status = authzv1.SubjectAccessReviewStatus
	for _, tt := range []struct {
		name   string
		status status
		ok     bool
		failed bool
	}{
		{name: "allowed", status: status{Allowed: true}, ok: true},
		{name: "no opinion is no"},
		{name: "denied", status: status{Denied: true}},
		{name: "both is an error", status: status{Allowed: true, Denied: true}, failed: true},
		{name: "an evaluation error with a yes is a yes", status: status{Allowed: true, EvaluationError: "x"}, ok: true},
	} {
		a := open(t, &cluster{answer: &tt.status}, nil)
		for range 2 { // asked, and from the cache
			ok, err := a.Authorize(t.Context(), &authnv1.UserInfo{Username: "anna"}, "get", "nodes", "proxy")
			if ok != tt.ok || (err != nil) != tt.failed {
				t.Errorf("%s: %v, %v", tt.name, ok, err)
			}
		}
	}
}

func TestNobodyMayDoAnything(t *testing.T) {
	c := &cluster{}
	for _, a := range []*Access{open(t, c, nil), open(t, c, func(c *Config) { c.Access, c.AlwaysAllow = nil, true })} {
		if ok, err := a.Authorize(t.Context(), nil, "get", "nodes", "proxy"); ok || err == nil {
			t.Errorf("%v, %v", ok, err)
		}
	}
}

func TestAlwaysAllowAsksNobody(t *testing.T) {
	c := &cluster{}
	a := open(t, c, func(c *Config) { c.Access, c.AlwaysAllow = nil, true })
	if ok, err := a.Authorize(t.Context(), &authnv1.UserInfo{Username: "x"}, "create", "nodes", "proxy"); !ok || err != nil || len(c.rights) > 0 {
		t.Errorf("%v, %v, asked %v", ok, err, c.rights)
	}
}
