package kubeapi

import (
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/observe"
)

// counted has each request show in figures that dashboards and alerts of clusters know.
func counted(rc *rest.Config, o observe.To) error {
	in := o.Instruments()
	requests := in.Counter("rest_client_requests_total", "Requests to the API server.", "code", "method", "host")
	duration := in.Histogram("rest_client_request_duration_seconds", "How long the API server took to answer.",
		[]float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}, "verb", "host")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, requests, duration} })
	return in.Err
}

// counter counts what passes.
type counter struct {
	next               http.RoundTripper
	requests, duration observe.Metric
}

// RoundTrip implements http.RoundTripper.
func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	resp, err := c.next.RoundTrip(r)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	c.requests.Record(1, code, r.Method, r.URL.Host)
	c.duration.Record(time.Since(begun).Seconds(), r.Method, r.URL.Host)
	return resp, err
}

// WrappedRoundTripper shows those who close idle connections what has them.
func (c counter) WrappedRoundTripper() http.RoundTripper { return c.next }
