// Command edge is an agent for a device: what is to run comes as a JSON document over HTTP or is pushed, how it runs is
// appended to a file, and containers are processes of the device. A bad document changes nothing; while there is no other,
// the last good one goes on, also after a restart.
//
//	go run ./examples/edge -url http://fleet.example/devices/7/pods.json -root /var/lib/edge -status /var/log/edge.json
//
// An agent of your own is a source, a sink and an engine; syncloop/agent joins them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/staticpod"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/agent"
)

func main() {
	if process.Shim() {
		return
	}
	pods := source{log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	every := flag.Duration("every", 30*time.Second, "how often the document is asked for")
	flag.Func("url", "where it is asked for", func(s string) error { pods.feeds = append(pods.feeds, &address{url: s, every: every}); return nil })
	flag.Func("push", "named pipe that it is written to", func(s string) error { pods.feeds = append(pods.feeds, pipe(s)); return nil })
	root := flag.String("root", "", "directory for the state of pods, an absolute path")
	file := flag.String("status", "/dev/stdout", "file that statuses are appended to")
	flag.Parse()
	if len(pods.feeds) == 0 {
		must(0, errors.New("nobody brings the document: give -url or -push"))
	}
	obs := observe.To{Log: pods.log}
	engine := must(process.New(process.Config{Root: filepath.Join(*root, "engine"), Observe: obs}))
	a := must(agent.New(agent.Config{
		Sources: map[string]syncloop.PodSource{"fleet": &pods}, Remember: true, Root: *root,
		Sink:   appender{must(os.OpenFile(*file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))},
		Engine: engine, Notifier: engine, Reopen: engine, Observe: obs,
	}))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	must(a, a.Run(ctx))
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
	return v
}

// source is a pod source: the pods of a document {"items": [pod, ...]}, whoever brings it. A bad one changes nothing.
type source struct {
	log   *slog.Logger
	feeds []feed
}

// feed brings documents until ctx ends, one that is asked for or one that is sent, as by a subscription at an MQTT broker.
// One that returns an error is run again.
type feed interface {
	Run(ctx context.Context, got func(document []byte, err error)) error
}

func (s *source) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	feeds, ctx := errgroup.WithContext(ctx)
	for _, f := range s.feeds {
		feeds.Go(func() error {
			return f.Run(ctx, func(document []byte, err error) {
				var pods []*v1.Pod
				if err == nil {
					pods, _, err = staticpod.DecodeList(document)
				}
				switch {
				case err == nil:
					set(pods, true)
				case ctx.Err() == nil:
					s.log.Warn("no good document was brought; the pods stay as they are", "err", err)
				}
			})
		})
	}
	return feeds.Wait()
}

// address is a feed: the document there, whenever it is another.
type address struct {
	url   string
	every *time.Duration
	etag  string
}

func (a *address) Run(ctx context.Context, got func([]byte, error)) error {
	for {
		if b, err := a.ask(ctx); b != nil || err != nil {
			got(b, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(*a.every):
		}
	}
}

func (a *address) ask(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("If-None-Match", a.etag)
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotModified:
		return nil, nil
	case http.StatusOK:
		b, err := io.ReadAll(io.LimitReader(resp.Body, staticpod.MaxBytes))
		if err == nil {
			a.etag = resp.Header.Get("ETag")
		}
		return b, err
	}
	return nil, errors.New(resp.Status)
}

// pipe is a feed: documents that somebody writes to a named pipe. The client of a broker would stand here.
type pipe string

func (p pipe) Run(ctx context.Context, got func([]byte, error)) error {
	f, err := os.OpenFile(string(p), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	for documents := json.NewDecoder(f); ctx.Err() == nil; {
		var b json.RawMessage
		err := documents.Decode(&b)
		if err != nil { // what came with it is lost
			documents = json.NewDecoder(f)
		}
		got(b, err)
	}
	return nil
}

// appender is a sink: each status becomes a line of JSON at the end of a file.
type appender struct{ file *os.File }

type line struct {
	Time     time.Time   `json:"time"`
	Pod      string      `json:"pod"`
	Phase    v1.PodPhase `json:"phase"`
	Ready    bool        `json:"ready"`
	Reason   string      `json:"reason,omitempty"`
	Finished bool        `json:"finished,omitempty"`
}

func (a appender) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error {
	ready := slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
	return json.NewEncoder(a.file).Encode(line{time.Now(), pod.Namespace + "/" + pod.Name, s.Phase, ready, s.Reason, false})
}

func (a appender) Finished(_ context.Context, pod *v1.Pod) error {
	return json.NewEncoder(a.file).Encode(line{time.Now(), pod.Namespace + "/" + pod.Name, pod.Status.Phase, false, pod.Status.Reason, true})
}
