package access

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	authnv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/observe"
)

// meter is observe.Metrics that counts what is recorded, by name and labels.
type meter map[string]int

type instrument struct {
	m    meter
	name string
}

func (m meter) Counter(name, _ string, _ ...string) (observe.Metric, error) {
	return instrument{m, name}, nil
}

func (m meter) Gauge(name, _ string, _ ...string) (observe.Metric, error) {
	return instrument{m, name}, nil
}

func (m meter) Histogram(name, _ string, _ []float64, _ ...string) (observe.Metric, error) {
	return instrument{m, name}, nil
}

func (instrument) Forget(...string) {}
func (i instrument) Record(_ float64, labels ...string) {
	i.m[strings.Join(append([]string{i.name}, labels...), " ")]++
}

func TestFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		figures, ca := meter{}, newAuthority(t)
		c := &cluster{trouble: []error{apierrors.NewInternalError(errors.New("x")), nil, errors.New("connection refused")}}
		a := open(t, c, func(c *Config) {
			c.Observe, c.ClientCAs = observe.To{Metrics: figures}, ca.pool
		})
		_, _ = ask(t.Context(), a, "token-anna")
		_, _ = a.Authorize(t.Context(), &authnv1.UserInfo{Username: "anna"}, "get", "nodes", "proxy")
		_, _ = a.Authorize(t.Context(), &authnv1.UserInfo{Username: "anna"}, "get", "nodes", "proxy")
		_, _ = a.Authenticate(shown(t.Context(), ca.client(t, "anna", nil)))
		want := meter{
			"apiserver_delegated_authn_request_total 500": 1, "apiserver_delegated_authn_request_duration_seconds 500": 1,
			"apiserver_delegated_authn_request_total 201": 1, "apiserver_delegated_authn_request_duration_seconds 201": 1,
			"apiserver_delegated_authz_request_total <error>": 1, "apiserver_delegated_authz_request_duration_seconds <error>": 1,
			"apiserver_delegated_authz_request_total 201": 1, "apiserver_delegated_authz_request_duration_seconds 201": 1,
			"apiserver_client_certificate_expiration_seconds": 1,
		}
		if !maps.Equal(figures, want) {
			t.Errorf("got  %v\nwant %v", figures, want)
		}
	})
}
