package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTwoAgentsDoNotShareARootDirectory(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	first, err := alone(t.Context(), root, 0, log)
	if err != nil || said.Len() > 0 {
		t.Fatal(err, said.String())
	}
	_, err = alone(t.Context(), root, 0, log)
	if want := fmt.Sprintf("another agent (pid %d) runs with --root-dir=%s; stop that one, or give this one another directory", os.Getpid(), root); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := alone(ended, root, time.Minute, log); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	said.Reset()
	type taken struct {
		release func()
		err     error
	}
	second := make(chan taken)
	waits := slog.New(slog.NewTextHandler(tell(func(b []byte) { // it waits: the first one may end now
		said.Write(b)
		first()
	}), nil))
	go func() {
		release, err := alone(t.Context(), root, time.Minute, waits)
		second <- taken{release, err}
	}()
	s := <-second
	if s.err != nil {
		t.Fatal(s.err)
	}
	if n := strings.Count(said.String(), "it is waited for"); n != 1 {
		t.Errorf("told %d times: %s", n, said.String())
	}
	s.release()
}

// tell is a writer that is a function.
type tell func([]byte)

func (f tell) Write(b []byte) (int, error) { f(b); return len(b), nil }
