package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/layers"
)

// runner is a part that runs until its context ends.
type runner = layers.Part

// web serves a handler over HTTPS, or without a TLS configuration over HTTP. It is bound before Run, so that a port that is
// taken is an error at the start.
type web struct {
	listener net.Listener
	server   *http.Server
}

func newWeb(address string, port int, handler http.Handler, config *tls.Config, log *slog.Logger) (*web, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("serve on %s port %d: %w by %s; stop that one, or give another port", address, port, err, cmp.Or(host("/").portOwner(port), "another process"))
	case err != nil:
		return nil, fmt.Errorf("serve on %s port %d: %w", address, port, err)
	}
	return &web{l, &http.Server{
		Handler: handler, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 1 << 20, // a command to run in a container is part of the address
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// patient is a server that pods can do without. When its port is taken, the agent works all the same: it says so, and tries
// again after a pause.
type patient struct {
	open  func() (*web, error)
	pause time.Duration
	log   *slog.Logger
}

// Run serves until ctx ends.
func (p patient) Run(ctx context.Context) error {
	said := ""
	for {
		w, err := p.open()
		if err == nil {
			said, err = "", w.Run(ctx)
		}
		if err == nil {
			return nil
		}
		if text := fmt.Sprint(err); text != said {
			said = text
			p.log.Error("nobody can ask here how the agent is; it is tried again", "err", err, "pause", p.pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.pause):
		}
	}
}

func (w *web) serve() error {
	if w.server.TLSConfig == nil {
		return w.server.Serve(w.listener)
	}
	return w.server.ServeTLS(w.listener, "", "")
}

// Run serves until ctx ends. Followed logs and sessions end with it.
func (w *web) Run(ctx context.Context) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	w.server.BaseContext = func(net.Listener) context.Context { return requests }
	served := make(chan error, 1)
	go func() { served <- w.serve() }() // ended by Shutdown or Close below
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	end()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := w.server.Shutdown(grace); err != nil {
		_ = w.server.Close() // a session that does not end
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
