package kubeapi

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/observe"
)

// meter writes down what is recorded, without amounts.
type meter struct {
	mu   sync.Mutex // guards said
	said []string
}

type instrument struct {
	m    *meter
	name string
}

func (m *meter) Counter(name, _ string, _ ...string) (observe.Metric, error) {
	return instrument{m, name}, nil
}

func (m *meter) Gauge(name, _ string, _ ...string) (observe.Metric, error) {
	return instrument{m, name}, nil
}

func (m *meter) Histogram(name, _ string, _ []float64, _ ...string) (observe.Metric, error) {
	return instrument{m, name}, nil
}

func (n instrument) Record(_ float64, labels ...string) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	n.m.said = append(n.m.said, fmt.Sprint(n.name, " ", labels))
}

func (instrument) Forget(...string) {}

// Alerts on clients of an API server look for these figures by their names.
func TestRequestsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, server := &meter{}, apifake.New()
		c, err := New(Config{REST: server.Config(), Node: "n1", Observe: observe.To{Metrics: m}})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		defer c.CloseIdle()
		if _, err := c.Get(t.Context()); err == nil {
			t.Error("a node out of nothing")
		}
		server.Close()
		c.CloseIdle()
		_, _ = c.Get(t.Context())
		host := strings.TrimPrefix(strings.TrimPrefix(server.Config().Host, "https://"), "http://")
		var counts []string
		for _, said := range m.said {
			if strings.HasPrefix(said, "rest_client_requests_total") {
				counts = append(counts, said)
			}
		}
		want := []string{"rest_client_requests_total [404 GET " + host + "]", "rest_client_requests_total [<error> GET " + host + "]"}
		if diff := cmp.Diff(want, counts); diff != "" || !slices.Contains(m.said, "rest_client_request_duration_seconds [GET "+host+"]") {
			t.Errorf("(-want +got)\n%s%q", diff, m.said)
		}
	})
}
