package probetest

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Shop sells nothing in particular. Ping must be set; the zero value of the rest is a shop that still starts.
type Shop struct {
	Ping  func(ctx context.Context) error // asks the database
	Login string                          // where customers without a session are sent

	state atomic.Int32
}

const (
	starting = iota
	open
	closing
)

// Open says that all caches are warm.
func (s *Shop) Open() { s.state.Store(open) }

// Drain says that no new customers are wanted. Those inside are served to the end.
func (s *Shop) Drain() { s.state.Store(closing) }

// Handler is the whole web service.
func (s *Shop) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.alive)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /startupz", s.started)
	mux.HandleFunc("GET /", s.page)
	return mux
}

// alive is for the liveness probe. It is about this process alone: a new one would have the same database.
func (s *Shop) alive(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") }

// ready is for the readiness probe. It is done with its database before the probe gives up.
func (s *Shop) ready(w http.ResponseWriter, r *http.Request) {
	if s.state.Load() != open {
		http.Error(w, "not open", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Ping(ctx); err != nil {
		http.Error(w, "no database", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// started is for the startup probe.
func (s *Shop) started(w http.ResponseWriter, _ *http.Request) {
	if s.state.Load() == starting {
		http.Error(w, "caches are cold", http.StatusServiceUnavailable)
	}
}

func (s *Shop) page(w http.ResponseWriter, r *http.Request) {
	if _, err := r.Cookie("session"); err != nil {
		http.Redirect(w, r, s.Login, http.StatusFound)
		return
	}
	fmt.Fprintln(w, "welcome")
}
