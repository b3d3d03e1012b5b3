package keyring

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// asked is a provider that answers with a new password each time.
type asked struct {
	mu       sync.Mutex
	requests []request
	kind     string
	lasts    *metav1.Duration
	slow     time.Duration
	err      error
	echo     bool // the token as password
}

func (a *asked) ask(ctx context.Context, q request) (*response, error) {
	select {
	case <-time.After(a.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, q)
	if a.err != nil {
		return nil, a.err
	}
	r := &response{CacheKeyType: a.kind, CacheDuration: a.lasts}
	r.Auth = map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	}{"a.io": {Username: "u", Password: fmt.Sprint(len(a.requests))}}
	if a.echo {
		entry := r.Auth["a.io"]
		entry.Password = q.Token
		r.Auth["a.io"] = entry
	}
	return r, nil
}

func newPlugin(a *asked, attributes *TokenAttributes) *plugin {
	m, _ := newMetrics(observe.To{})
	return &plugin{
		Provider: Provider{Name: "p", MatchImages: []string{"a.io", "*.b.io"}, DefaultCacheDuration: &metav1.Duration{Duration: time.Hour}, TokenAttributes: attributes},
		ask:      a.ask, metrics: m, cache: map[string]kept{}, flights: map[string]*flight{},
		account: func(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
			if name == "gone" {
				return nil, runtime.ErrNotFound
			}
			s := &v1.ServiceAccount{}
			s.Namespace, s.Name, s.UID, s.Annotations = namespace, name, "sa-uid", map[string]string{"role": "reader"}
			return s, nil
		},
		token: func(_ context.Context, pod *v1.Pod, audience string, seconds int64) (string, time.Time, error) {
			return fmt.Sprintf("%s/%s/%d", pod.UID, audience, seconds), time.Time{}, nil
		},
	}
}

func podOf(uid, account string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID, p.Spec.ServiceAccountName = "ns", "pod", types.UID("u-"+uid), account
	return p
}

func TestHowLongAnAnswerIsKept(t *testing.T) {
	hour := &metav1.Duration{Duration: time.Hour}
	const image, sister, other = "a.io/x", "a.io/y", "z.b.io/x"
	for _, tt := range []struct {
		rule   string
		kind   string
		lasts  *metav1.Duration
		images []string
		after  time.Duration // before the last of them
		asked  int
	}{
		{"for the image", byImage, hour, []string{image, image}, 0, 1},
		{"for the image and no other", byImage, hour, []string{image, sister}, 0, 2},
		{"for the registry", byRegistry, hour, []string{image, sister}, 0, 1},
		{"for the registry and no other", byRegistry, hour, []string{image, other}, 0, 2},
		{"for everything", forAll, hour, []string{image, sister, other}, 0, 1},
		{"until its time is over", forAll, hour, []string{image, image}, time.Hour, 2},
		{"nearly until its time is over", forAll, hour, []string{image, image}, time.Hour - 1, 1},
		{"not at all", forAll, &metav1.Duration{}, []string{image, image}, 0, 2},
		{"for the time of the configuration when it says none", forAll, nil, []string{image, image}, time.Hour - 1, 1},
		{"and not longer", forAll, nil, []string{image, image}, time.Hour, 2},
		{"a kind that is none is not kept", "Else", hour, []string{image, image}, 0, 2},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asked{kind: tt.kind, lasts: tt.lasts}
				p := newPlugin(a, nil)
				for i, image := range tt.images {
					if i == len(tt.images)-1 {
						time.Sleep(tt.after)
					}
					got := p.provide(t.Context(), podOf("1", ""), image)
					if (got.err == nil) != (tt.kind != "Else") || got.account != nil {
						t.Fatalf("%+v", got)
					}
				}
				if len(a.requests) != tt.asked {
					t.Errorf("asked %d times, want %d", len(a.requests), tt.asked)
				}
			})
		})
	}
}

func TestOldAnswersAreThrownAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlugin(&asked{kind: byImage, lasts: &metav1.Duration{Duration: time.Minute}}, nil)
		for i := range 5 {
			p.provide(t.Context(), podOf("1", ""), fmt.Sprintf("a.io/%d", i))
		}
		time.Sleep(purgeEvery + time.Second)
		p.provide(t.Context(), podOf("1", ""), "a.io/new")
		if len(p.cache) != 1 {
			t.Errorf("%d answers are kept", len(p.cache))
		}
	})
}

func TestThoseWhoAskAtOnceShareAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{kind: byImage, lasts: &metav1.Duration{}, slow: time.Second}
		p := newPlugin(a, nil)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if got := p.provide(impatient, podOf("0", ""), "a.io/x"); !errors.Is(got.err, context.DeadlineExceeded) {
				t.Errorf("the one who gave up: %v", got.err)
			}
		})
		synctest.Wait() // it is the first, and those who come after must not suffer from its going
		for range 5 {
			all.Go(func() {
				if got := p.provide(t.Context(), podOf("1", ""), "a.io/x"); got.err != nil || got.entries["a.io"].Password != "1" {
					t.Errorf("%+v", got)
				}
			})
		}
		all.Wait()
		if len(a.requests) != 1 {
			t.Errorf("asked %d times", len(a.requests))
		}
	})
}

func TestAQuestionEndsWithTheLastWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{kind: byImage, slow: time.Hour}
		p := newPlugin(a, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		p.provide(ctx, podOf("1", ""), "a.io/x")
		if time.Since(start) > time.Second || len(p.flights) != 0 {
			t.Errorf("after %s, %d under way", time.Since(start), len(p.flights))
		}
	})
}

func TestTokens(t *testing.T) {
	attributes := func(cache string, require bool, required ...string) *TokenAttributes {
		return &TokenAttributes{Audience: "aud", CacheType: cache, Require: &require, RequiredKeys: required, OptionalKeys: []string{"role", "none"}}
	}
	for _, tt := range []struct {
		rule       string
		attributes *TokenAttributes
		account    string
		echo       bool
		pods       int // of one account, one after the other
		asked      int
		token      string
		err        string
	}{
		{rule: "a token for the pod", attributes: attributes(cacheToken, true), account: "sa", pods: 1, asked: 1, token: "u-0/aud/3600"},
		{rule: "another pod has another token", attributes: attributes(cacheToken, true), account: "sa", pods: 2, asked: 2, token: "u-0/aud/3600"},
		{rule: "an answer for the account is for all its pods", attributes: attributes(cacheAccount, true), account: "sa", pods: 2, asked: 1, token: "u-0/aud/3600"},
		{rule: "no account, and one is needed", attributes: attributes(cacheToken, true), pods: 1, asked: 0},
		{rule: "no account, and none is needed", attributes: attributes(cacheToken, false), pods: 1, asked: 1},
		{rule: "an annotation is missing", attributes: attributes(cacheToken, true, "team"), account: "sa", pods: 1, asked: 0},
		{rule: "the account is gone", attributes: attributes(cacheToken, true), account: "gone", pods: 1, asked: 0, err: "service account ns/gone: not found"},
		{rule: "the token itself is the password", attributes: attributes(cacheToken, true), account: "sa", echo: true, pods: 1, asked: 1, token: "u-0/aud/3600"},
		{rule: "not where the answer is for all of the account", attributes: attributes(cacheAccount, true), account: "sa", echo: true, pods: 1, asked: 1, token: "u-0/aud/3600", err: "it gave back the service account's token"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			a := &asked{kind: forAll, lasts: &metav1.Duration{Duration: time.Hour}, echo: tt.echo}
			p := newPlugin(a, tt.attributes)
			for i := range tt.pods {
				got := p.provide(t.Context(), podOf(fmt.Sprint(i), tt.account), "a.io/x")
				if (got.err == nil) != (tt.err == "") || got.err != nil && !strings.HasPrefix(got.err.Error(), tt.err) {
					t.Fatalf("error %v", got.err)
				}
				if tt.token != "" && tt.err == "" && (got.account == nil || *got.account != runtime.ObjectRef{Namespace: "ns", Name: "sa", UID: "sa-uid"}) {
					t.Errorf("account %v", got.account)
				}
			}
			if len(a.requests) != tt.asked {
				t.Fatalf("asked %d times, want %d", len(a.requests), tt.asked)
			}
			if tt.asked > 0 && a.requests[0].Token != tt.token {
				t.Errorf("token %q, want %q", a.requests[0].Token, tt.token)
			}
			if tt.token != "" && a.requests[0].Annotations["role"] != "reader" {
				t.Errorf("annotations %v", a.requests[0].Annotations)
			}
		})
	}
}
