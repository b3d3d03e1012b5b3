package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// until is a log that ends the program once it has these words.
type until struct {
	words string
	stop  context.CancelFunc
	log   bytes.Buffer
}

func (u *until) Write(b []byte) (int, error) {
	if u.log.Write(b); bytes.Contains(u.log.Bytes(), []byte(u.words)) {
		u.stop()
	}
	return len(b), nil
}

func TestWhatGoesWrongIsToldWithoutAsking(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")) // the program changes it
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.Mkdir(bad, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bad, "pod.yaml"), []byte("kind: Pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, manifests, words string }{
		{"a manifest that is refused", bad, "manifest is refused"},
		{"a directory that is not there", filepath.Join(dir, "nowhere"), "directory cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			log := until{words: c.words, stop: stop}
			if err := command(ctx, []string{"-root", filepath.Join(dir, "root"), c.manifests}, io.Discard, &log); err != nil {
				t.Error(err)
			}
			if !bytes.Contains(log.log.Bytes(), []byte(c.words)) {
				t.Errorf("told was: %s", log.log.Bytes())
			}
		})
	}
}
