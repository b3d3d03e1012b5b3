package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// web is the program of the demo pod web, so that it needs nothing that may not be on a machine: it says hello, and its
// /healthz is good until somebody asks for /fail.
func web(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("standalone web", flag.ContinueOnError)
	port := f.Int("port", 18080, "port on 127.0.0.1")
	if err := f.Parse(args); err != nil {
		return err
	}
	var broken atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(out, "%s %s\n", r.Method, r.URL.Path)
		fmt.Fprintln(w, "hello")
	})
	mux.HandleFunc("/fail", func(w http.ResponseWriter, _ *http.Request) {
		broken.Store(true)
		fmt.Fprintln(out, "from now on I am not well")
		fmt.Fprintln(w, "as you wish")
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "not well", http.StatusInternalServerError)
		}
	})
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(*port)))
	if err != nil {
		return err
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	stopped := make(chan struct{})
	go func() { // ends with ctx
		defer close(stopped)
		<-ctx.Done()
		_ = s.Close()
	}()
	fmt.Fprintln(out, "listening on", l.Addr())
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	fmt.Fprintln(out, "good-bye")
	return nil
}
