package probetest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/probe"
)

// serve is a shop at an address, and how a node sees it.
func serve(t *testing.T, s *Shop) (ask func(path string) probe.Result) {
	t.Helper()
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return func(path string) probe.Result {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, text, err := probe.HTTP(ctx, probe.HTTPTarget{URL: server.URL + path})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(path, res, text)
		return res
	}
}

func pings(err error) func(context.Context) error { return func(context.Context) error { return err } }

func TestLifeOfAShop(t *testing.T) {
	s := &Shop{Ping: pings(nil)}
	ask := serve(t, s)
	for _, c := range []struct {
		name                    string
		do                      func()
		startup, ready, healthy probe.Result
	}{
		{"while it starts nobody is sent to it, and nobody kills it", func() {}, probe.Failure, probe.Failure, probe.Success},
		{"open it is all three", s.Open, probe.Success, probe.Success, probe.Success},
		{"closing it gets no new customers, and may finish", s.Drain, probe.Success, probe.Failure, probe.Success},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do()
			for path, want := range map[string]probe.Result{"/startupz": c.startup, "/readyz": c.ready, "/healthz": c.healthy} {
				if got := ask(path); got != want {
					t.Errorf("%s: %v, want %v", path, got, want)
				}
			}
		})
	}
}

func TestABrokenDatabaseRestartsNothing(t *testing.T) {
	s := &Shop{Ping: pings(errors.New("refused"))}
	s.Open()
	ask := serve(t, s)
	if ask("/readyz") != probe.Failure || ask("/healthz") != probe.Success {
		t.Error("without a database a shop is not ready, and healthy all the same")
	}
}

// A probe that times out says nothing about why. This endpoint answers first.
func TestADatabaseThatHangsIsToldInTime(t *testing.T) {
	s := &Shop{Ping: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	s.Open()
	synctest.Test(t, func(t *testing.T) {
		begun, answer := time.Now(), httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		if took := time.Since(begun); answer.Code != http.StatusServiceUnavailable || took > 900*time.Millisecond {
			t.Errorf("%d after %v", answer.Code, took)
		}
	})
}

// A redirect to another host counts as healthy, whatever is there. No probe must ever ask for such a page.
func TestOnlyPagesForCustomersLeadToTheLogin(t *testing.T) {
	s := &Shop{Ping: pings(nil), Login: "https://login.example/"}
	s.Open()
	ask := serve(t, s)
	if got := ask("/"); got != probe.Warning {
		t.Errorf("the front page is %v; is it no longer behind a login?", got)
	}
	for _, path := range []string{"/startupz", "/readyz", "/healthz"} {
		if got := ask(path); got == probe.Warning {
			t.Errorf("%s leads away", path)
		}
	}
}

// What a node makes of it: with a threshold of three, a database that is away for two checks goes unnoticed.
func TestAShortOutageTakesNoShopOutOfService(t *testing.T) {
	away := errors.New("away")
	s := &Shop{}
	s.Open()
	var h probe.History
	rule := probe.Rule{FailureThreshold: 3}
	var ready bool
	for i, err := range []error{nil, away, away, nil, away, away, away} {
		s.Ping = pings(err)
		next, verdict, decided := rule.Add(h, serve(t, s)("/readyz"))
		h = next
		if decided {
			ready = verdict == probe.Success
		}
		if want := i < 6; ready != want {
			t.Errorf("after %d checks it is in service: %t", i+1, ready)
		}
	}
}
