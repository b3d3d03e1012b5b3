package reread

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func join(texts [][]byte) (string, error) {
	all := fmt.Sprintf("%s+%s", texts[0], texts[1])
	if all == "bad+b" {
		return "", errors.New("bad")
	}
	return all, nil
}

func TestTheLastGoodContentHolds(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	synctest.Test(t, func(t *testing.T) {
		var told []string
		cfg := Config[string]{
			Paths: []string{a, b}, Parse: join,
			Changed: func(s string) { told = append(told, s) }, Bad: func(err error) { told = append(told, "error") },
		}
		write(t, a, "a")
		if _, err := Open(cfg); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without the second file: %v", err)
		}
		write(t, b, "b")
		f, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			does       func()
			soon, then string
			told       []string
		}{
			{func() {}, "a+b", "a+b", nil},
			{func() { write(t, a, "A") }, "a+b", "A+b", []string{"A+b"}},
			{func() { write(t, a, "bad") }, "A+b", "A+b", []string{"error"}},
			{func() {}, "A+b", "A+b", nil}, // told already
			{func() { write(t, a, "A") }, "A+b", "A+b", nil},
			{func() { write(t, a, "bad") }, "A+b", "A+b", []string{"error"}}, // anew
			{func() { os.Remove(b) }, "A+b", "A+b", []string{"error"}},       // another error
			{func() { write(t, b, "B") }, "A+b", "bad+B", []string{"bad+B"}},
		} {
			told = nil
			step.does()
			if got := f.Current(); got != step.soon {
				t.Errorf("at once %q, want %q", got, step.soon)
			}
			time.Sleep(Every)
			if got := f.Current(); got != step.then || !slices.Equal(told, step.told) {
				t.Errorf("then %q, want %q; told %q, want %q", got, step.then, told, step.told)
			}
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
