package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"
)

// UserAgent is what a request calls itself unless its header says otherwise.
const UserAgent = "kube-probe/1.37"

// HTTPTarget says what [HTTP] asks for. URL is required.
type HTTPTarget struct {
	URL string // http or https

	// Header is sent along; all values of a name are, and the names need not be in canonical form. Host goes into the
	// request line's place for it. Without User-Agent it is [UserAgent], without Accept it is */*; given with an
	// empty value, neither is sent.
	Header http.Header

	Client *http.Client // nil: [Client]
}

// HTTP checks with a GET. Status 2xx is Success. Redirects to the same host name are followed, whatever the port and
// scheme, and the last answer decides; one that was not followed is a Warning, as is any other 3xx. Everything else is
// Failure: other status codes, too many redirects, no connection, and no whole answer (head and body) before the deadline.
// The text of a Success is the body; that of a Failure never shows it.
func HTTP(ctx context.Context, t HTTPTarget) (Result, string, error) {
	req, err := request(ctx, t)
	if err != nil {
		return Unknown, "", err
	}
	res, redirected, err := do(t.Client, req)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%w (Client.Timeout exceeded while awaiting headers)", err) // as it is known of the kubelet
	}
	switch {
	case err != nil && cancelled(ctx):
		return Unknown, "", context.Cause(ctx)
	case err != nil && redirected != "":
		return Failure, textf("redirected to %s: %v", redirected, err), nil
	case err != nil:
		return Failure, textf("%v", err), nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, limit))
	switch {
	case err != nil && cancelled(ctx):
		return Unknown, "", context.Cause(ctx)
	case err != nil && res.StatusCode < 400:
		return Failure, textf("the answer of %s broke off: %v", res.Request.URL.Host, err), nil
	}
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return Success, text(body), nil
	case code >= 300 && code < 400:
		return Warning, notFollowed(res, body), nil
	case redirected != "":
		return Failure, textf("HTTP probe failed with statuscode: %d; redirected to %s", code, redirected), nil
	default:
		return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", code), nil // the kubelet's words, which people look for
	}
}

// Client makes a client that asks as the kubelet does: a new connection for each request, whatever certificate the
// server has, no proxy, no compression, HTTP/2 where a TLS server offers it, redirects within one host name only.
func Client() *http.Client {
	return &http.Client{
		CheckRedirect: sameHost,
		Transport: &http.Transport{
			DialContext:         Dialer().DialContext,
			DisableCompression:  true,
			DisableKeepAlives:   true,
			ForceAttemptHTTP2:   true,
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a probe asks for health, not for identity
			TLSHandshakeTimeout: 10 * time.Second,
			ReadBufferSize:      1 << 10, // made anew for each connection
			WriteBufferSize:     1 << 10,
		},
	}
}

func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// do sends a request and says where to it was redirected last, if it was.
func do(client *http.Client, req *http.Request) (res *http.Response, redirected string, err error) {
	if client == nil {
		client = Client()
	}
	check := client.CheckRedirect
	if check == nil {
		check = sameHost
	}
	noting := *client
	noting.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		err := check(req, via)
		if !errors.Is(err, http.ErrUseLastResponse) {
			redirected = req.URL.Redacted()
		}
		return err
	}
	res, err = noting.Do(req)
	return res, redirected, err
}

// notFollowed begins with the kubelet's words, which people look for, and quotes no more of a page than leaves room for the rest.
func notFollowed(res *http.Response, body []byte) string {
	answer := textf("%s answered with status code %d", res.Request.URL.Host, res.StatusCode)
	if where := res.Header.Get("Location"); where != "" {
		answer += textf(": the redirect to %q was not followed", where)
	}
	return textf("Probe terminated redirects, Response body: %s; %s", bytes.TrimSpace(body[:min(len(body), 1<<10)]), answer)
}

func request(ctx context.Context, t HTTPTarget) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("URL %q is not one like http://host:port/path: %w", t.URL, err)
	}
	if u := req.URL; u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("URL %q is not one like http://host:port/path", t.URL)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Header)) {
		for _, value := range t.Header[name] {
			req.Header.Add(name, value)
		}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	req.Header.Del("Host")
	if !has(req.Header, "User-Agent") {
		req.Header.Set("User-Agent", UserAgent)
	}
	if !has(req.Header, "Accept") {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	return req, nil
}

func has(h http.Header, name string) bool { _, ok := h[name]; return ok }
