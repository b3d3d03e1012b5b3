package staticpod

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
)

// site answers what it is told to, without a network. It is an http.RoundTripper.
type site struct {
	mu       sync.Mutex // guards the rest
	status   int
	body     string
	err      error
	requests int
	last     *http.Request
}

func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.last = r
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: s.status, Body: io.NopCloser(strings.NewReader(s.body)), Request: r, Header: http.Header{}}, nil
}

func (s *site) answer(status int, body string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body, s.err = status, body, err
}

// seen is how often it was asked, and the last request.
func (s *site) seen() (requests int, last *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.last
}

// startURL runs a URL over a site until the test ends. It is to be called in a bubble.
func startURL(t *testing.T, s *site) *node {
	t.Helper()
	n := &node{t: t, seen: map[string]int{}, known: map[*v1.Pod]bool{}}
	u, err := NewURL(URLConfig{
		URL: "https://robot:secret1@config.example/pods?token=secret2", Node: "N1",
		Header: http.Header{"X-Key": {"secret3", "secret4"}, "host": {"other.example"}},
		Client: &http.Client{Transport: s}, Observe: observe.To{Log: slog.New(n), Events: n},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- u.Run(ctx, n.set) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		for _, l := range append(n.Lines(""), fmt.Sprint(n.Events())) {
			if strings.Contains(l, "secret") {
				t.Errorf("told a secret: %s", l)
			}
		}
	})
	return n
}

func listText(items ...string) string {
	text := "apiVersion: v1\nkind: PodList\nitems:\n"
	for _, i := range items {
		text += "- " + strings.ReplaceAll(strings.TrimSpace(i), "\n", "\n  ") + "\n"
	}
	return text
}

// has checks what is delivered after some time, and a moment more.
func (n *node) has(d time.Duration, complete bool, sets int, want ...string) {
	n.t.Helper()
	time.Sleep(d + time.Millisecond)
	synctest.Wait()
	names, c, s := n.state()
	if !slices.Equal(names, want) || c != complete || s != sets {
		n.t.Errorf("delivered %v, complete %v, in %d sets; want %v, %v, %d", names, c, s, want, complete, sets)
	}
}

func TestPodsFromAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{status: 200, body: podText("a", "one")}
		n := startURL(t, s)
		n.has(0, true, 1, "a-n1=one")
		a := n.pod("a-n1")
		if a.Annotations[podspec.SourceAnnotation] != "http" || a.Annotations[podspec.HashAnnotation] != string(a.UID) || len(a.UID) != 32 || a.Spec.NodeName != "N1" || len(a.Spec.Tolerations) != 0 {
			t.Errorf("pod %+v", a)
		}
		_, last := s.seen()
		if h := last.Header["X-Key"]; !slices.Equal(h, []string{"secret3", "secret4"}) || last.Host != "other.example" {
			t.Errorf("asked with %v of host %s", h, last.Host)
		}
		if user, password, _ := last.BasicAuth(); user != "robot" || password != "secret1" {
			t.Errorf("asked as %s", user)
		}
		n.has(time.Hour, true, 1, "a-n1=one")
		if n, _ := s.seen(); n != 181 {
			t.Errorf("%d requests in an hour", n)
		}
		s.answer(200, "# another comment\n"+podText("a", "one"), nil)
		n.has(time.Minute, true, 1, "a-n1=one")
		s.answer(200, listText(podText("a", "one"), podText("b", "two")), nil)
		n.has(20*time.Second, true, 2, "a-n1=one", "b-n1=two")
		if n.pod("a-n1") != a {
			t.Error("an unchanged pod is another one in a list")
		}
		s.answer(200, `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"three"}]}}]}`, nil)
		n.has(20*time.Second, true, 3, "b-n1=three")
		s.answer(200, `{"apiVersion":"v1","kind":"PodList","items":[]}`, nil)
		n.has(20*time.Second, true, 4)
		s.answer(200, podText("a", "one"), nil)
		n.has(20*time.Second, true, 5, "a-n1=one")
		if n.pod("a-n1").UID != a.UID {
			t.Error("the same text is another pod")
		}
		if l := n.Lines(""); len(l) > 0 {
			t.Errorf("logged %v", l)
		}
	})
}

func TestAFailingAddressEndsNoPod(t *testing.T) {
	for name, broken := range map[string]*site{
		"no connection":  {err: fmt.Errorf("connection refused")},
		"error":          {status: 500, body: podText("b", "two")},
		"not found":      {status: 404},
		"no content":     {status: 204},
		"empty":          {status: 200},
		"only blanks":    {status: 200, body: "\n\n"},
		"a sign-in page": {status: 200, body: "<html>please sign in</html>"},
		"another kind":   {status: 200, body: "apiVersion: v1\nkind: ConfigMap\n"},
		"a List":         {status: 200, body: "apiVersion: v1\nkind: List\nitems: []\n"},
		"old version":    {status: 200, body: "apiVersion: v2\nkind: PodList\nitems: []\n"},
		"items a text":   {status: 200, body: "apiVersion: v1\nkind: PodList\nitems: none\n"},
		"one bad item":   {status: 200, body: listText(podText("b", "two"), podText("c", ""))},
		"too much":       {status: 200, body: "# " + strings.Repeat("x", MaxBytes)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{status: 200, body: podText("a", "one")}
				n := startURL(t, s)
				n.has(0, true, 1, "a-n1=one")
				s.answer(broken.status, broken.body, broken.err)
				n.has(time.Hour, true, 1, "a-n1=one")
				if l := n.Lines("WARN"); len(l) == 0 || len(l) > firstFailures || !strings.Contains(l[0], "https://config.example/pods") {
					t.Errorf("logged %v", l)
				}
				s.answer(200, podText("a", "one"), nil)
				n.has(time.Minute, true, 1, "a-n1=one")
				if l := n.Lines("again"); len(l) != 1 {
					t.Errorf("logged %v", n.Lines(""))
				}
			})
		})
	}
}

// Before the first good answer nothing is known: nothing may be cleaned up for it, and it is asked for sooner.
func TestAnAddressThatFailsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{err: fmt.Errorf("no route to host")}
		n := startURL(t, s)
		n.has(0, false, 1)
		n.has(10*time.Second, false, 1)
		if n, _ := s.seen(); n != 4 {
			t.Errorf("%d requests in 10 s", n)
		}
		n.has(time.Hour, false, 1)
		s.answer(200, "", nil) // says nothing about pods, where the kubelet takes it for "none"
		n.has(time.Minute, false, 1)
		s.answer(200, podText("a", "one"), nil)
		n.has(20*time.Second, true, 2, "a-n1=one")
	})
}

func TestTextThatIsBadInAnotherWayEachTimeIsNotToldEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		n := startURL(t, s)
		for i := range 200 {
			s.answer(200, fmt.Sprint("<html>nonce ", i), nil)
			time.Sleep(20 * time.Second)
		}
		synctest.Wait()
		if l := len(n.Lines("WARN")); l != firstFailures || len(n.Events()) != firstFailures {
			t.Errorf("%d warnings, %d events", l, len(n.Events()))
		}
	})
}

func TestTwoItemsWithOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{status: 200, body: listText(podText("a", "one"), podText("a", "two"), podText("b", "one"))}
		n := startURL(t, s)
		n.has(time.Hour, true, 1, "a-n1=one", "b-n1=one")
		if l := n.Lines("WARN"); len(l) != 1 || !strings.Contains(l[0], "default/a-n1") || len(n.Events()) != 1 || n.Events()[0].Reason != "FailedValidation" {
			t.Errorf("logged %v, events %v", l, n.Events())
		}
	})
}

func TestProblemsOfAListNameTheItem(t *testing.T) {
	_, warnings, err := readAll([]byte(listText(podText("a", ""), "just text", podText("b", "x")+"color: red\n", "kind: Service\n", podText("C", "x"))))
	want := "items[0].spec.containers[0].image: is missing; " +
		"items[1]: holds the text \"just text\", not a Pod; " +
		"items[3]: is of kind Service; only a Pod can come from a file; " +
		"items[4].metadata.name: "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "items[2].") {
		t.Errorf("warnings %q", warnings)
	}
}

// The same address gives another UID on each node; what is written in front of the host does not count, as passwords change.
func TestUIDOfAPodFromAnAddress(t *testing.T) {
	uid := func(url, node string) string {
		u, err := NewURL(URLConfig{URL: url, Node: node})
		if err != nil {
			t.Fatal(err)
		}
		pods, err := u.pods([]byte(podText("a", "one")), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return string(pods[0].UID)
	}
	first := uid("https://x/pods", "n1")
	if uid("https://me:pw@x/pods", "n1") != first {
		t.Error("a password makes another pod")
	}
	for _, other := range []string{uid("https://x/pods", "n2"), uid("https://x/pods?rack=7", "n1"), uid("https://y/pods", "n1")} {
		if other == first {
			t.Error("another node or address gives the same UID")
		}
	}
}

func TestNewURLRefuses(t *testing.T) {
	for _, c := range []URLConfig{
		{},
		{URL: "https://x/y"},
		{Node: "n1"},
		{URL: "https://x/y", Node: "not a name"},
		{URL: "/pods", Node: "n1"},
		{URL: "ftp://secret@x/y", Node: "n1"},
		{URL: "https://secret%zz@x", Node: "n1"},
		{URL: "http:///x", Node: "n1"},
	} {
		if _, err := NewURL(c); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}

// A source that ran has told of its pods. Whoever asks it again would wait for them in vain.
func TestASourceRunsOnce(t *testing.T) {
	dir, err := NewDir(Config{Path: t.TempDir(), Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	address, err := NewURL(URLConfig{URL: "http://127.0.0.1:1/pods", Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	for _, run := range []func(context.Context, func([]*v1.Pod, bool)) error{dir.Run, address.Run} {
		if err := run(ended, func([]*v1.Pod, bool) {}); err != nil {
			t.Error(err)
		}
		if err := run(ended, func([]*v1.Pod, bool) {}); err == nil || !strings.Contains(err.Error(), " ran before; New") {
			t.Errorf("run again: %v", err)
		}
	}
}

// Over a real connection: headers do not follow to another host, and nothing is left open when Run is over.
func TestAnAddressThatSendsOn(t *testing.T) {
	keys := make(chan string, 100)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("X-Key")
		_, _ = io.WriteString(w, podText("a", "one"))
	})
	elsewhere := httptest.NewServer(answer)
	defer elsewhere.Close()
	mux := http.NewServeMux()
	mux.Handle("/pods", answer)
	mux.Handle("/away", http.RedirectHandler(elsewhere.URL, http.StatusFound))
	mux.Handle("/near", http.RedirectHandler("/pods", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	home := httptest.NewServer(mux)
	defer home.Close()
	for path, want := range map[string]string{"/pods": "key", "/near": "key", "/away": "", "/round": "fails"} {
		u, err := NewURL(URLConfig{URL: home.URL + path, Node: "n1", Header: http.Header{"X-Key": {"key"}}, Every: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := "fails"
		err = u.Run(ctx, func(_ []*v1.Pod, complete bool) {
			if complete {
				got = <-keys
			}
			cancel()
		})
		if got != want || err != nil {
			t.Errorf("%s: key %q, error %v; want %q", path, got, err, want)
		}
	}
}

// A server that sends byte by byte for ever is given up, and Run ends in the middle of it when told to.
func TestAnAddressThatNeverEnds(t *testing.T) {
	begun := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "#")
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	u, err := NewURL(URLConfig{URL: server.URL, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if err := u.Run(ctx, func([]*v1.Pod, bool) { t.Error("delivered something") }); err != nil {
		t.Error(err)
	}
}

func FuzzReadAll(f *testing.F) {
	f.Add([]byte(podText("a", "one")))
	f.Add([]byte(listText(podText("a", "one"), podText("b", "two"))))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"b"}},null,7,[],{}]}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := NewURL(URLConfig{URL: "http://x", Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		pods, err := u.pods(b, time.Unix(1, 0))
		if err != nil {
			if len(pods) > 0 || len(err.Error()) > 4<<10 {
				t.Errorf("%d pods, error of %d bytes", len(pods), len(err.Error()))
			}
			return
		}
		u.sent = pods
		again, err := u.pods(b, time.Unix(2, 0))
		if err != nil || !slices.Equal(pods, again) {
			t.Errorf("the same text gives other pods the second time: %v", err)
		}
		for _, p := range pods {
			if p.UID == "" || p.Name == "" || p.Namespace == "" || p.Annotations[podspec.SourceAnnotation] != "http" {
				t.Errorf("pod %+v", p.ObjectMeta)
			}
		}
	})
}
