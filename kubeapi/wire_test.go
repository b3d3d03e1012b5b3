package kubeapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
)

// What is really sent: protobuf over HTTP/2 and TLS, with our name; lists by watches.
func TestOverHTTP2(t *testing.T) {
	for name, onlyJSON := range map[string]bool{"protobuf": false, "a server that speaks JSON only": true} {
		t.Run(name, func(t *testing.T) {
			fake := apifake.New()
			defer fake.Close()
			var mu sync.Mutex
			var seen []*http.Request
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				seen = append(seen, r.Clone(r.Context()))
				mu.Unlock()
				if onlyJSON {
					r.Header.Set("Accept", "application/json")
				}
				fake.ServeHTTP(w, r)
			}))
			srv.EnableHTTP2 = true
			srv.StartTLS()
			defer srv.Close()
			c, err := New(Config{Node: "n1", REST: &rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(srv.TLS)}}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdle()
			fake.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			p := fake.Put(pod("web")).(*v1.Pod)

			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			wg.Go(func() { c.Run(ctx) })
			delivered := make(chan []*v1.Pod, 10)
			wg.Go(func() {
				s := &Source{Client: c}
				s.Run(ctx, func(pods []*v1.Pod, _ bool) { delivered <- pods })
			})
			if first := <-delivered; len(first) != 1 || first[0].UID != p.UID || first[0].Spec.Containers[0].Image != "i" {
				t.Errorf("%+v", first)
			}
			if err := (&Sink{Client: c}).UpdateStatus(ctx, p, running("True")); err != nil {
				t.Error(err)
			}
			if next := <-delivered; len(next) != 1 || next[0].Status.Phase != v1.PodRunning {
				t.Errorf("%+v", next)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range seen {
				if r.ProtoMajor != 2 || r.UserAgent() != "kubeletkit/n1" {
					t.Errorf("%s %s by %s", r.Proto, r.URL, r.UserAgent())
				}
				if accepted := r.Header.Get("Accept"); !onlyJSON && !strings.HasPrefix(accepted, protobuf) {
					t.Errorf("%s accepts %s", r.URL, accepted)
				}
				q := r.URL.Query()
				if r.Method == http.MethodGet && (q.Get("watch") != "true" && q.Get("watch") != "1" || q.Get("sendInitialEvents") != "true" || q.Get("resourceVersionMatch") != "NotOlderThan" || q.Get("allowWatchBookmarks") != "true") {
					t.Errorf("no list by watch: %s", r.URL)
				}
			}
		})
	}
}

func pemOf(c *tls.Config) []byte {
	return pemBlock("CERTIFICATE", c.Certificates[0].Certificate[0])
}

func TestReviewsAndCertificateRequests(t *testing.T) {
	inBubble(t, func(b *bench) {
		if r, err := b.client.ReviewToken(b.Context(), &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: "t"}}); err != nil || r.Spec.Token != "t" {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := b.client.ReviewAccess(b.Context(), &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{User: "u"}}); err != nil || r.Spec.User != "u" {
			t.Errorf("%+v, %v", r, err)
		}
		made, err := b.client.CreateRequest(b.Context(), &certv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"}, Spec: certv1.CertificateSigningRequestSpec{SignerName: "s"}})
		if err != nil || made.UID == "" {
			t.Errorf("%+v, %v", made, err)
		}
		if r, err := b.client.Request(b.Context(), "csr"); err != nil || r.UID != made.UID {
			t.Errorf("%+v, %v", r, err)
		}
		b.wantCalls("create tokenreviews", "create subjectaccessreviews", "create certificatesigningrequests", "get certificatesigningrequests csr")
	})
}

// Field report kubernetes/kubernetes#117119: without a limit there was one.
func TestEventsASecond(t *testing.T) {
	for _, c := range []struct {
		qps  float32
		want int // told in ten seconds
	}{{0, 600}, {5, 150}, {-1, 900}} {
		inBubble(t, func(b *bench) {
			client, err := New(Config{REST: b.server.Config(), Node: "n1", EventQPS: c.qps})
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdle()
			e := NewEvents(client)
			for i := range 900 {
				e.Event(about(fmt.Sprint("pod", i), "Failed", "x"))
			}
			b.begin(e.Run)
			time.Sleep(10 * time.Second)
			if n := len(b.events()); n < c.want-2 || n > c.want+2 {
				b.Errorf("with %v a second: %d events, want %d or so", c.qps, n, c.want)
			}
		})
	}
}

// Statuses and heartbeats do not wait behind a storm of events, nor heartbeats behind anything.
func TestLimitsAreApart(t *testing.T) {
	inBubble(t, func(b *bench) {
		rc := b.server.Config()
		c, err := New(Config{REST: rc, Node: "n1", QPS: 1, Burst: 1, EventQPS: 1, EventBurst: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseIdle()
		b.node()
		p := b.put(pod("web"))
		e := NewEvents(c)
		for i := range 100 {
			e.Event(about("pod"+string(rune('a'+i%26))+string(rune('a'+i/26)), "Failed", "x"))
		}
		b.begin(e.Run)
		time.Sleep(time.Second)
		begin := time.Now()
		if err := (&Sink{Client: c}).UpdateStatus(b.Context(), p, running("True")); err != nil || time.Since(begin) > time.Millisecond {
			t.Errorf("a status after %v: %v", time.Since(begin), err)
		}
		for range 10 {
			if _, err := c.Get(b.Context()); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took > time.Millisecond {
			t.Errorf("heartbeats took %v", took)
		}
	})
}

func TestAClientNeedsAServerAndAName(t *testing.T) {
	for _, cfg := range []Config{{}, {Node: "n"}, {REST: &rest.Config{}}, {Node: "n", REST: &rest.Config{Host: "https://h", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("junk")}}}} {
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), "kubeapi: ") {
			t.Errorf("%v", err)
		}
	}
}
