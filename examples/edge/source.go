package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/staticpod"
)

// Push brings documents as somebody sends them, as a subscription at an MQTT broker does.
type Push interface {
	// Subscribe calls got with each message until ctx ends.
	Subscribe(ctx context.Context, got func(message []byte)) error
}

// Source is a syncloop.PodSource: the pods of a JSON document {"items": [pod, ...]} that is asked for at an address, and
// pushed. The last good one is kept in a file, so that a device starts its pods while nobody can be reached.
type Source struct {
	URL   string        // empty: only pushed documents
	Every time.Duration // how often it is asked for
	Push  Push          // nil: only asked for
	File  string
	Log   *slog.Logger

	etag string
}

// Run delivers the pods of each new document until ctx ends.
func (s *Source) Run(ctx context.Context, set func(pods []*v1.Pod, complete bool)) error {
	var pushing sync.WaitGroup
	defer pushing.Wait()
	pushed := make(chan []byte)
	if s.Push != nil {
		pushing.Go(func() {
			err := s.Push.Subscribe(ctx, func(m []byte) {
				select {
				case pushed <- m:
				case <-ctx.Done():
				}
			})
			if ctx.Err() == nil {
				s.Log.Error("documents are not pushed any more", "err", err)
			}
		})
	}
	if b, err := os.ReadFile(s.File); err == nil {
		s.take(b, set, false) // remembered: nothing is stopped for being absent
	}
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for {
		if b, err := s.ask(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("the document cannot be had; the pods stay as they are", "err", err)
		} else if b != nil {
			s.take(b, set, true)
		}
		for next := false; !next; {
			select {
			case <-ctx.Done():
				return nil
			case b := <-pushed:
				s.take(b, set, true)
			case <-tick.C:
				next = true
			}
		}
	}
}

// ask gets the document; nil when it has not changed.
func (s *Source) ask(ctx context.Context) ([]byte, error) {
	if s.URL == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("If-None-Match", s.etag)
	resp, err := http.DefaultClient.Do(req)
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
			s.etag = resp.Header.Get("ETag")
		}
		return b, err
	}
	return nil, errors.New(resp.Status)
}

// take delivers the pods of a document. A bad one is reported and changes nothing.
func (s *Source) take(b []byte, set func([]*v1.Pod, bool), complete bool) {
	pods, err := decode(b)
	if err != nil {
		s.Log.Error("a document is refused", "err", err)
		return
	}
	if complete {
		err := os.WriteFile(s.File+".new", b, 0o600)
		if err == nil {
			err = os.Rename(s.File+".new", s.File)
		}
		if err != nil {
			s.Log.Error("the document is not remembered", "err", err)
		}
	}
	set(pods, complete)
}

// decode reads a document. A pod without a uid gets one from its content: another content is another pod.
func decode(b []byte) (pods []*v1.Pod, err error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(b, &list); err != nil || list.Items == nil {
		return nil, errors.Join(errors.New("it is not of the form {\"items\": [...]}"), err)
	}
	for i, item := range list.Items {
		pod, _, err := staticpod.Decode(item)
		if err != nil {
			return nil, fmt.Errorf("pod %d: %w", i+1, err)
		}
		pod.Namespace = cmp.Or(pod.Namespace, v1.NamespaceDefault)
		if pod.UID == "" {
			sum := sha256.Sum256(item)
			pod.UID = types.UID(hex.EncodeToString(sum[:16]))
		}
		pods = append(pods, pod)
	}
	return pods, nil
}
