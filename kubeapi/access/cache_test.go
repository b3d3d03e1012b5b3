package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ask authenticates with a token and says who it was.
func ask(ctx context.Context, a *Access, token string) (string, error) {
	user, err := a.Authenticate(request(ctx, "Authorization", "Bearer "+token))
	if user == nil {
		return "", err
	}
	return user.Username, err
}

func TestAnswersAreKept(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		change                 func(*Config)
		token, allowed, denied time.Duration
	}{
		{"for the kubelet's times", nil, 2 * time.Minute, 5 * time.Minute, 30 * time.Second},
		{"for times of one's own", func(c *Config) {
			c.CacheAuthenticated, c.CacheAuthorized, c.CacheDenied = time.Second, 2*time.Second, 3*time.Second
		}, time.Second, 2 * time.Second, 3 * time.Second},
		{"not at all", func(c *Config) {
			c.CacheAuthenticated, c.CacheAuthorized, c.CacheDenied = -1, -1, -1
		}, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{}
				a := open(t, c, tt.change)
				anna := &authnv1.UserInfo{Username: "anna"}
				for _, q := range []struct {
					what string
					keep time.Duration
					ask  func()
				}{
					{"a good token", tt.token, func() { _, _ = ask(t.Context(), a, "token-anna") }},
					{"a bad token", tt.token, func() { _, _ = ask(t.Context(), a, "x") }},
					{"a yes", tt.allowed, func() { _, _ = a.Authorize(t.Context(), anna, "get", "nodes", "proxy") }},
					{"a no", tt.denied, func() { _, _ = a.Authorize(t.Context(), anna, "create", "nodes", "proxy") }},
				} {
					before := c.tokens + len(c.rights)
					asked := func() int { return c.tokens + len(c.rights) - before }
					q.ask()
					if q.keep > 0 {
						time.Sleep(q.keep - 1)
						q.ask()
						if asked() != 1 {
							t.Errorf("%s is not kept for %v", q.what, q.keep)
						}
						time.Sleep(time.Nanosecond)
					}
					q.ask()
					if asked() != 2 {
						t.Errorf("%s is kept longer than %v", q.what, q.keep)
					}
				}
			})
		})
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	c := &cluster{trouble: []error{errors.New("x"), errors.New("x")}}
	a := open(t, c, nil)
	if _, err := ask(t.Context(), a, "token-anna"); err == nil {
		t.Error("no error")
	}
	if ok, err := a.Authorize(t.Context(), &authnv1.UserInfo{Username: "anna"}, "get", "nodes", "proxy"); ok || err == nil {
		t.Error("no error")
	}
	if user, err := ask(t.Context(), a, "token-anna"); user != "anna" || err != nil {
		t.Errorf("%s, %v", user, err)
	}
	if ok, err := a.Authorize(t.Context(), &authnv1.UserInfo{Username: "anna"}, "get", "nodes", "proxy"); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	for range 2 { // a token that the API server has something to say about
		if _, err := ask(t.Context(), a, "token-expired"); err == nil || !strings.Contains(err.Error(), "token expired") {
			t.Errorf("%v", err)
		}
	}
	if c.tokens != 4 {
		t.Errorf("asked %d times", c.tokens)
	}
}

func TestDifferentQuestionsHaveDifferentAnswers(t *testing.T) {
	k := newKeys()
	spec := func(change func(*authzv1.SubjectAccessReviewSpec)) key {
		s := question(&authnv1.UserInfo{Username: "anna", UID: "1", Groups: []string{"a", "b"}, Extra: map[string]authnv1.ExtraValue{"x": {"y"}}}, "n1", "get", "nodes", "proxy")
		change(&s)
		out, err := k.access(&s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := []key{
		spec(func(*authzv1.SubjectAccessReviewSpec) {}),
		spec(func(s *authzv1.SubjectAccessReviewSpec) { s.User = "bert" }),
		spec(func(s *authzv1.SubjectAccessReviewSpec) { s.UID = "2" }),
		spec(func(s *authzv1.SubjectAccessReviewSpec) { s.Groups = []string{"a,b"} }),
		spec(func(s *authzv1.SubjectAccessReviewSpec) { s.Groups = []string{"ab"} }),
		spec(func(s *authzv1.SubjectAccessReviewSpec) { s.Extra = nil }),
		spec(func(s *authzv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Verb = "create" }),
		spec(func(s *authzv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Subresource = "metrics" }),
		spec(func(s *authzv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Name = "n2" }),
		k.token("a"), k.token("b"), k.token(""), newKeys().token("a"),
	}
	for i, a := range all {
		if slices.Contains(all[i+1:], a) {
			t.Errorf("question %d has the key of another", i)
		}
	}
	if again := k.token("a"); again != all[9] {
		t.Error("one token has two keys")
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	c := cache[int]{keep: func(int) time.Duration { return time.Hour }}
	asked := 0
	get := func(n int) {
		_, _ = c.get(t.Context(), key{byte(n), byte(n >> 8)}, func(context.Context) (int, error) {
			asked++
			return n, nil
		})
	}
	for n := range cacheSize + 100 {
		get(n)
		get(0) // in use all the time
	}
	if len(c.entries) != cacheSize || c.used.Len() != cacheSize || len(c.flights) > 0 {
		t.Errorf("%d entries, %d in order, %d flights", len(c.entries), c.used.Len(), len(c.flights))
	}
	asked = 0
	get(0)
	get(cacheSize + 99)
	if asked > 0 {
		t.Error("what was used last is gone")
	}
	get(1)
	if asked != 1 {
		t.Error("what was used first is still there")
	}
}

func TestOfEqualQuestionsOneIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		c := &cluster{gate: func(ctx context.Context) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}}
		a := open(t, c, nil)
		first, leave := context.WithCancel(t.Context())
		var good, gone atomic.Int32
		go func() {
			if _, err := ask(first, a, "token-anna"); err != nil {
				gone.Add(1)
			}
		}()
		synctest.Wait()
		second, leave2 := context.WithCancel(t.Context())
		go func() {
			if _, err := ask(second, a, "token-anna"); errors.Is(err, context.Canceled) {
				gone.Add(1)
			}
		}()
		for range 20 {
			go func() {
				if user, err := ask(t.Context(), a, "token-anna"); user == "anna" && err == nil {
					good.Add(1)
				}
			}()
		}
		synctest.Wait()
		if c.tokens != 1 {
			t.Errorf("%d questions under way", c.tokens)
		}
		leave2() // one who waits
		synctest.Wait()
		leave() // the one who asks; another takes over
		synctest.Wait()
		if c.tokens != 2 || gone.Load() != 2 {
			t.Errorf("%d questions, %d left", c.tokens, gone.Load())
		}
		close(gate)
		synctest.Wait()
		if c.tokens != 2 || good.Load() != 20 {
			t.Errorf("%d questions, %d answers", c.tokens, good.Load())
		}
	})
}

func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	c := cache[int]{keep: func(int) time.Duration { return time.Hour }}
	func() {
		defer func() { _ = recover() }()
		_, _ = c.get(t.Context(), key{}, func(context.Context) (int, error) { panic("x") })
	}()
	if v, err := c.get(t.Context(), key{}, func(context.Context) (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
}

func TestTroubleThatPassesIsTriedAgain(t *testing.T) {
	res := schema.GroupResource{Resource: "tokenreviews"}
	for _, tt := range []struct {
		name  string
		err   error
		again bool
	}{
		{"internal error", apierrors.NewInternalError(errors.New("x")), true},
		{"timeout", apierrors.NewTimeoutError("x", 0), true},
		{"too many requests", apierrors.NewTooManyRequests("x", 1), true},
		{"asked to come later", apierrors.NewServerTimeout(res, "create", 1), true},
		{"connection reset", fmt.Errorf("post: %w", syscall.ECONNRESET), true},
		{"connection lost", errors.New("post: http2: client connection lost"), true},
		{"unauthorized", apierrors.NewUnauthorized("x"), false},
		{"forbidden", apierrors.NewForbidden(res, "", errors.New("x")), false},
		{"not there", apierrors.NewNotFound(res, ""), false},
		{"connection refused", fmt.Errorf("dial: %w", syscall.ECONNREFUSED), false},
		{"anything else", errors.New("x"), false},
	} {
		if passing(tt.err) != tt.again {
			t.Errorf("%s: tried again: %v", tt.name, !tt.again)
		}
	}
}

func TestAttemptsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := apierrors.NewInternalError(errors.New("etcd is away"))
		c := &cluster{trouble: []error{bad, bad, bad, bad}}
		a := open(t, c, nil)
		start := time.Now()
		if user, err := ask(t.Context(), a, "token-anna"); user != "anna" || err != nil || c.tokens != 5 {
			t.Errorf("%s, %v, %d attempts", user, err, c.tokens)
		}
		if took := time.Since(start); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		c.trouble = []error{bad, bad, bad, bad, bad}
		if ok, err := a.Authorize(t.Context(), &authnv1.UserInfo{Username: "anna"}, "get", "nodes", "proxy"); ok || !apierrors.IsInternalError(err) || len(c.rights) != 5 {
			t.Errorf("%v, %v, %d attempts", ok, err, len(c.rights))
		}
	})
}

func TestAttemptsEndWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := apierrors.NewInternalError(errors.New("etcd is away"))
		c := &cluster{trouble: []error{bad, bad, bad, bad, bad}}
		a := open(t, c, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := ask(ctx, a, "token-anna"); err == nil || c.tokens > 2 || time.Since(start) > time.Second {
			t.Errorf("%v, %d attempts, %v", err, c.tokens, time.Since(start))
		}
	})
}

func TestAnAPIServerThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t, &cluster{gate: func(ctx context.Context) { <-ctx.Done() }}, nil)
		start := time.Now()
		if _, err := ask(t.Context(), a, "token-anna"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != askWithin {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func FuzzTokens(f *testing.F) {
	f.Add("Bearer x", "a, base64url.bearer.authorization.k8s.io.dG9rZW4tYW5uYQ")
	f.Add(" bearer  x", "base64url.bearer.authorization.k8s.io.,,")
	f.Fuzz(func(t *testing.T, header, list string) {
		if token := bearerToken(header); strings.ContainsRune(token, ' ') {
			t.Errorf("token %q", token)
		}
		token, others, err := protocolToken([]string{list})
		if err != nil && (token != "" || others != nil) || token != "" && len(others) == 0 {
			t.Errorf("token %q, others %q, %v", token, others, err)
		}
	})
}

func FuzzParsePool(f *testing.F) {
	f.Add(newAuthority(f).PEM())
	f.Fuzz(func(t *testing.T, text []byte) {
		if pool, err := parsePool(text); (pool == nil) == (err == nil) {
			t.Errorf("%v, %v", pool, err)
		}
	})
}

func BenchmarkKnownToken(b *testing.B) {
	a := open(b, &cluster{}, nil)
	b.ReportAllocs()
	for b.Loop() {
		user, err := a.Authenticate(request(b.Context(), "Authorization", "Bearer token-anna"))
		if err != nil {
			b.Fatal(err)
		}
		if ok, err := a.Authorize(b.Context(), user, "get", "nodes", "metrics"); !ok || err != nil {
			b.Fatal(err)
		}
	}
}
