// Demo is the program in the image kubeletkit.dev/demo:1. It shows the ways a container can behave:
//
//	demo web [-port 8080] [-warm-up 0]          serves / and /healthz, logs each request; /fail and /ok flip its health
//	demo job [-lines 5] [-every 1s] [-code 0]   prints lines and exits with a code
//	demo crash [-after 5s] [-code 1]            lives for a while, then exits with a code
//	demo wait [-delay 0]                        waits for a signal, says which came, takes a while to end
//	demo grow [-rate 200]                       takes so many MB of memory a second, for ever, and hears no signal
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	switch args := os.Args[2:]; os.Args[1] {
	case "web":
		web(flags, args)
	case "job":
		job(flags, args)
	case "crash":
		crash(flags, args)
	case "wait":
		wait(flags, args)
	case "grow":
		grow(flags, args)
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: demo web|job|crash|wait|grow [flags]")
	os.Exit(2)
}

// say prints one line of log with the time.
func say(format string, args ...any) {
	fmt.Printf(time.Now().UTC().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func web(flags *flag.FlagSet, args []string) {
	port := flags.Int("port", 8080, "port to listen on")
	warmUp := flags.Duration("warm-up", 0, "time after the start during which /healthz answers 503")
	_ = flags.Parse(args)

	go func() { say("%s: bye", <-signals()); os.Exit(0) }()
	say("listening on port %d", *port)
	server := &http.Server{Addr: fmt.Sprintf(":%d", *port), Handler: handler(time.Now(), *warmUp), ReadHeaderTimeout: 10 * time.Second}
	say("%v", server.ListenAndServe())
	os.Exit(1)
}

// handler answers the web server's paths and logs each request. Before warmUp has passed since the start,
// /healthz answers 503.
func handler(started time.Time, warmUp time.Duration) http.Handler {
	var sick atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		host, _ := os.Hostname()
		fmt.Fprintf(w, "hello from %s, up %s\n", host, time.Since(started).Round(time.Second))
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case sick.Load():
			http.Error(w, "sick", http.StatusInternalServerError)
		case time.Since(started) < warmUp:
			http.Error(w, "warming up", http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	mux.HandleFunc("GET /fail", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	mux.HandleFunc("GET /ok", func(http.ResponseWriter, *http.Request) { sick.Store(false) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say("%s %s from %s", r.Method, r.URL.Path, r.RemoteAddr)
		mux.ServeHTTP(w, r)
	})
}

func job(flags *flag.FlagSet, args []string) {
	lines := flags.Int("lines", 5, "lines to print")
	every := flags.Duration("every", time.Second, "time between two lines")
	code := flags.Int("code", 0, "exit code")
	_ = flags.Parse(args)
	for i := range *lines {
		say("step %d of %d", i+1, *lines)
		time.Sleep(*every)
	}
	say("done, exit code %d", *code)
	os.Exit(*code)
}

func crash(flags *flag.FlagSet, args []string) {
	after := flags.Duration("after", 5*time.Second, "time to live")
	code := flags.Int("code", 1, "exit code")
	_ = flags.Parse(args)
	say("going to crash in %s", *after)
	select {
	case <-time.After(*after):
		say("crashing on purpose, exit code %d", *code)
		os.Exit(*code)
	case s := <-signals():
		say("%s: bye", s)
	}
}

func wait(flags *flag.FlagSet, args []string) {
	delay := flags.Duration("delay", 0, "time to take for the end after a signal")
	_ = flags.Parse(args)
	say("waiting for a signal")
	say("%s: ending in %s", <-signals(), *delay)
	time.Sleep(*delay)
	say("bye")
}

func grow(flags *flag.FlagSet, args []string) {
	rate := flags.Int("rate", 200, "megabytes a second")
	_ = flags.Parse(args)
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	debug.SetGCPercent(-1)
	say("growing by %d MB a second", *rate)
	const every = 10 * time.Millisecond
	step := *rate * 1e6 / int(time.Second/every)
	var all [][]byte
	begun := time.Now()
	for i := 0; ; i++ {
		b := make([]byte, step)
		for at := 0; at < len(b); at += 4096 {
			b[at] = 1 // the kernel gives what is written to
		}
		all = append(all, b)
		time.Sleep(time.Until(begun.Add(time.Duration(i+1) * every)))
		if i%100 == 0 {
			say("%d MB", len(all)*step/1e6)
		}
	}
}

// signals tells of the requests to end. Process 1 of a container gets none it has not asked for.
func signals() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	return c
}
