package probe_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/kubeletkit/kubeletkit/internal/asuser"
	"github.com/kubeletkit/kubeletkit/probe"
)

func TestHTTPByStatusCode(t *testing.T) {
	for _, c := range []struct {
		code int
		want probe.Result
	}{
		{200, probe.Success},
		{204, probe.Success},
		{299, probe.Success},
		{300, probe.Warning},
		{302, probe.Warning},
		{304, probe.Warning},
		{399, probe.Warning}, // no Location: by the code (c029)
		{400, probe.Failure},
		{404, probe.Failure},
		{500, probe.Failure},
		{503, probe.Failure},
	} {
		t.Run(fmt.Sprint(c.code), func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.code) })
			if got, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL}); got != c.want || err != nil {
				t.Errorf("got %v, %q, %v; want %v", got, text, err, c.want)
			}
		})
	}
}

func TestHTTPFailureIsToldAsByTheKubeletAndNeverTheBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/there" {
			http.Redirect(w, r, "/x", http.StatusFound)
			return
		}
		http.Error(w, "secret", http.StatusServiceUnavailable)
	})
	const text = "HTTP probe failed with statuscode: 503"
	for path, want := range map[string]string{"/x?token=secret": text, "/there": text + "; redirected to " + s.URL + "/x"} {
		if _, got, _ := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL + path}); got != want {
			t.Errorf("%s: text %q, want %q", path, got, want)
		}
	}
}

func TestHTTPBody(t *testing.T) {
	body := strings.Repeat("a", 10239) + "é and more"
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL})
	if res != probe.Success || err != nil || text != body[:10239]+"\uFFFD" {
		t.Errorf("got %v, %d bytes, %v", res, len(text), err)
	}
}

func TestEveryTextIsShort(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, h := range map[string]http.HandlerFunc{
		"of a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.example/"+long, http.StatusFound)
		},
		"of one that broke": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+r.Host+":bad/"+long, http.StatusFound)
		},
		"of what is no HTTP": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(conn, long+"\r\n\r\n")
			_ = conn.Close()
		},
	} {
		if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: serve(t, h).URL}); len(text) > 10240 || err != nil {
			t.Errorf("the text %s has %d bytes: %v, %v", name, len(text), res, err)
		}
	}
}

// Case c036, rows (1) to (6).
func TestCase_c036_RequestHeaders(t *testing.T) {
	for _, c := range []struct {
		name   string
		header http.Header
		want   []string // sorted lines as they arrive
		host   string   // empty: the address
	}{
		{"(1) defaults", nil, []string{"Accept: */*", "Connection: close", "User-Agent: kube-probe/1.37"}, ""},
		{"(2) own User-Agent only", http.Header{"User-Agent": {"me"}}, []string{"Accept: */*", "Connection: close", "User-Agent: me"}, ""},
		{"(2) empty User-Agent sends none", http.Header{"User-Agent": {""}}, []string{"Accept: */*", "Connection: close"}, ""},
		{"(3) empty Accept sends none", http.Header{"Accept": {""}}, []string{"Connection: close", "User-Agent: kube-probe/1.37"}, ""},
		{"(3) own Accept", http.Header{"Accept": {"text/plain"}}, []string{"Accept: text/plain", "Connection: close", "User-Agent: kube-probe/1.37"}, ""},
		{"(4) Host is the request's", http.Header{"Host": {"web.example"}}, []string{"Accept: */*", "Connection: close", "User-Agent: kube-probe/1.37"}, "web.example"},
		{"(5) both of two values", http.Header{"X-A": {"1", "2"}}, []string{"Accept: */*", "Connection: close", "User-Agent: kube-probe/1.37", "X-A: 1", "X-A: 2"}, ""},
		{"(6) any letter case", http.Header{"accept": {""}, "user-agent": {"me"}, "hOST": {"h"}}, []string{"Connection: close", "User-Agent: me"}, "h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			var host string
			s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				host = r.Host
				for name, values := range r.Header {
					for _, v := range values {
						got = append(got, name+": "+v)
					}
				}
				slices.Sort(got)
			})
			if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL, Header: c.header}); res != probe.Success {
				t.Fatal(res, text, err)
			}
			if want := cmp.Or(c.host, s.Listener.Addr().String()); host != want {
				t.Errorf("host %q, want %q", host, want)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("headers %q, want %q", got, c.want)
			}
		})
	}
}

func TestCase_c036_EachCheckHasItsOwnConnection(t *testing.T) {
	seen := map[string]bool{}
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { seen[r.RemoteAddr] = true })
	client := probe.Client()
	for range 3 {
		_, _, _ = probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL, Client: client})
	}
	if len(seen) != 3 {
		t.Errorf("%d connections for 3 checks", len(seen))
	}
}

func TestEachCheckOverHTTP2HasItsOwnConnection(t *testing.T) {
	var seen sync.Map
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.RemoteAddr+r.Proto, true) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	client := probe.Client()
	for range 3 {
		if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL, Client: client}); res != probe.Success {
			t.Error(res, text, err)
		}
	}
	n := 0
	seen.Range(func(key, _ any) bool { n++; return strings.HasSuffix(key.(string), "HTTP/2.0") })
	if n != 3 {
		t.Errorf("%d connections for 3 checks", n)
	}
}

func TestHTTPUsesNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	if tr, ok := probe.Client().Transport.(*http.Transport); !ok || tr.Proxy != nil {
		t.Error("the client has a proxy")
	}
}

func TestHTTPSWithAnyCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL}); res != probe.Success || text != "HTTP/2.0" {
		t.Error(res, text, err)
	}
}

// Case c028: another host name does not decide, and the warning shows where it would have gone.
func TestCase_c028_RedirectToAnotherHostIsNotFollowed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://example.invalid/ok", http.StatusFound)
	})
	res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL + "/health"})
	if res != probe.Warning || !res.OK() || err != nil || !strings.HasPrefix(text, `Probe terminated redirects, Response body: <a href="https://example.invalid/ok">Found</a>.; `) ||
		!strings.HasSuffix(text, `answered with status code 302: the redirect to "https://example.invalid/ok" was not followed`) {
		t.Error(res, text, err)
	}
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	s = serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL}); res != probe.Failure || err != nil {
		t.Errorf("another port of the same host is the same host: %v, %q, %v", res, text, err)
	}
}

func TestCase_c029_RedirectWithinTheHost(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) {})
	mux := http.NewServeMux()
	mux.Handle("/good", http.RedirectHandler("/ok", http.StatusFound))
	mux.Handle("/bad", http.RedirectHandler("/fails", http.StatusMovedPermanently))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	mux.Handle("/port", http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	mux.HandleFunc("/nowhere", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) })
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/fails", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for n := range 12 {
		next := fmt.Sprintf("/hop%d", n-1)
		if n == 0 {
			next = "/ok"
		}
		mux.Handle(fmt.Sprintf("/hop%d", n), http.RedirectHandler(next, http.StatusFound))
	}
	s := serve(t, mux.ServeHTTP)
	for path, want := range map[string]probe.Result{
		"/good": probe.Success, "/bad": probe.Failure, "/loop": probe.Failure, "/port": probe.Success,
		"/hop8": probe.Success, "/hop9": probe.Failure, "/hop11": probe.Failure, // the tenth redirect is one too many
		"/nowhere": probe.Warning, // by its code, which counts as healthy
	} {
		if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL + path}); res != want || err != nil {
			t.Errorf("%s: got %v, %q, %v; want %v", path, res, text, err, want)
		}
	}
}

// Case c030: what cannot be followed is a failure that says it is about a redirect, within one deadline.
func TestCase_c030_RedirectToHTTPSWhereNobodyListens(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+deadAddr(t)+"/x", http.StatusMovedPermanently)
	})
	res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL})
	if res != probe.Failure || err != nil || !strings.HasPrefix(text, "redirected to https://") {
		t.Error(res, text, err)
	}
}

func TestCase_c030_OneDeadlineCoversBothRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pipeServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(700 * time.Millisecond)
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/second", http.StatusFound)
			}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		res, text, err := probe.HTTP(ctx, probe.HTTPTarget{URL: "http://pod/", Client: client})
		if took := time.Since(start); res != probe.Failure || err != nil || took != time.Second || !strings.Contains(text, "redirected to http://pod/second") {
			t.Error(res, text, err, took)
		}
	})
}

func TestHTTPDeadline(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		text    string
	}{
		{
			"before the head", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			`Get "http://pod/": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
		},
		{"within the body (kubernetes/kubernetes#113938)", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "the answer of pod broke off: context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := pipeServer(t, c.handler)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				res, text, err := probe.HTTP(ctx, probe.HTTPTarget{URL: "http://pod/", Client: client})
				if res != probe.Failure || err != nil || time.Since(start) != time.Second || text != c.text {
					t.Error(res, text, err, time.Since(start))
				}
			})
		})
	}
}

// kubernetes/kubernetes#122591: a server that breaks off in each answer was never restarted.
func TestHTTPBodyThatBreaksOffIsAFailure(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "begun")
	})
	if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL}); res != probe.Failure || err != nil || !strings.HasSuffix(text, " broke off: unexpected EOF") {
		t.Error(res, text, err)
	}
}

func TestHTTPDoesNotWaitForTheEndOfALongBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("a", 10240))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL}); res != probe.Success || len(text) != 10240 {
		t.Error(res, len(text), err)
	}
}

func TestHTTPOverIPv6(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 on this machine:", err)
	}
	var host string
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { host = r.Host })}}
	s.Start()
	t.Cleanup(s.Close)
	if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: s.URL}); res != probe.Success || host != l.Addr().String() {
		t.Error(res, text, err, host)
	}
	if res, text, err := probe.TCP(t.Context(), l.Addr().String()); res != probe.Success {
		t.Error(res, text, err)
	}
}

func TestHTTPNoConnectionIsAFailureThatNamesTheAddress(t *testing.T) {
	addr := deadAddr(t)
	if res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: "http://" + addr + "/"}); res != probe.Failure || err != nil || !strings.Contains(text, addr) {
		t.Error(res, text, err)
	}
}

func TestHTTPNoAnswer(t *testing.T) {
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("had enough"))
	for name, ask := range map[string]func() (probe.Result, string, error){
		"a URL that is none": func() (probe.Result, string, error) {
			return probe.HTTP(t.Context(), probe.HTTPTarget{URL: "http://[::1/"})
		},
		"an address without a scheme, as one gives it to TCP": func() (probe.Result, string, error) {
			res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: "127.0.0.1:80"})
			if err != nil && !strings.Contains(err.Error(), "is not one like http://host:port/path") {
				err = nil // nor would its reader know what to write
			}
			return res, text, err
		},
		"no URL": func() (probe.Result, string, error) { return probe.HTTP(t.Context(), probe.HTTPTarget{}) },
		"a URL without a scheme": func() (probe.Result, string, error) {
			return probe.HTTP(t.Context(), probe.HTTPTarget{URL: "localhost:80/healthz"})
		},
		"a URL without a host": func() (probe.Result, string, error) {
			return probe.HTTP(t.Context(), probe.HTTPTarget{URL: "http:///healthz"})
		},
		"the caller cancelled": func() (probe.Result, string, error) {
			return probe.HTTP(gone, probe.HTTPTarget{URL: "http://127.0.0.1:1"})
		},
	} {
		if res, text, err := ask(); res != probe.Unknown || err == nil {
			t.Errorf("%s: got %v, %q, %v", name, res, text, err)
		}
	}
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// pipeServer serves over connections in memory, which a bubble can see through.
func pipeServer(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	client := probe.Client()
	client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		l.conns <- theirs
		return ours, nil
	}
	return client
}

type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// deadAddr is an address of this host where nobody listens.
func deadAddr(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", asuser.FreePort(t))
}

func FuzzHTTPURL(f *testing.F) {
	for _, s := range []string{"http://h/", "http://[::1]:80/%zz", "mailto:x", "http://u:p@h:99999/?q#f", ""} {
		f.Add(s, "Host", "x")
	}
	refuse := &http.Client{Transport: refuser{}}
	f.Fuzz(func(t *testing.T, raw, name, value string) {
		res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: raw, Header: http.Header{name: {value}}, Client: refuse})
		if (err == nil) != (res == probe.Failure) {
			t.Error(res, text, err)
		}
		if _, bad := url.Parse(raw); bad != nil && err == nil {
			t.Errorf("%q is no URL, and yet %v", raw, res)
		}
	})
}

type refuser struct{}

func (refuser) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }

// FuzzHeaders sends any two headers: the server reads one request with these or none at all.
func FuzzHeaders(f *testing.F) {
	f.Add("X-Probe", "a", "x-probe", "b")
	f.Add("Host", "example.com", "User-Agent", "")
	f.Add("Accept", "", "X: y\r\nZ", "a\r\n\r\nGET / HTTP/1.1")
	f.Add("Content-Length", "7", "Transfer-Encoding", "chunked")
	f.Fuzz(func(t *testing.T, name, value, other, last string) {
		var wg sync.WaitGroup
		var got *http.Request
		client := probe.Client()
		client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			wg.Go(func() {
				defer theirs.Close()
				r := bufio.NewReader(theirs)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				if got != nil || r.Buffered() > 0 {
					t.Errorf("%d bytes more than a request", r.Buffered())
				}
				got = req
				_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			})
			return ours, nil
		}
		header := http.Header{name: {value}}
		header[other] = append(header[other], last)
		res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: "http://pod/", Header: header, Client: client})
		wg.Wait()
		if (err != nil) != (res == probe.Unknown) || (got != nil) != (res == probe.Success) {
			t.Fatalf("%v, %q, %v; the server read %v", res, text, err, got)
		}
		own := func(name string) bool {
			return slices.Contains([]string{"Host", "User-Agent", "Accept", "Connection", "Content-Length", "Transfer-Encoding", "Trailer"}, http.CanonicalHeaderKey(name))
		}
		for name, values := range header {
			for _, v := range values {
				if got != nil && !own(name) && !slices.Contains(got.Header[http.CanonicalHeaderKey(name)], strings.Trim(v, " \t")) {
					t.Errorf("%q: %q did not arrive: %q", name, v, got.Header)
				}
			}
		}
	})
}

// FuzzHTTPAnswer has a server send anything.
func FuzzHTTPAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/%zz\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n\xff\xff\xff\xff\xff\r\n0\r\n\r\n",
		"HTTP/1.0 500\r\n\r\nsecret", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 999 \r\n\r\n", "SSH-2.0-x\r\n", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		var wg sync.WaitGroup
		client := probe.Client()
		client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			wg.Go(func() {
				defer theirs.Close()
				_, _ = theirs.Read(make([]byte, 4096))
				_, _ = theirs.Write(answer)
			})
			return ours, nil
		}
		res, text, err := probe.HTTP(t.Context(), probe.HTTPTarget{URL: "http://pod/", Client: client})
		if (err != nil) != (res == probe.Unknown) {
			t.Errorf("%v with %v", res, err)
		}
		if len(text) > 3*10240 || !utf8.ValidString(text) {
			t.Errorf("a text of %d bytes: %.100q", len(text), text)
		}
		if strings.HasPrefix(text, "pod answered") && strings.Contains(text, "secret") && res == probe.Failure {
			t.Errorf("%q shows what the server sent", text)
		}
		wg.Wait()
	})
}
