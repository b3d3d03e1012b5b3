package bed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// ForTest gives the bed that tests share, brought up on first use: the one in the directory KUBELETKIT_BED,
// or else kubeletkit-bed among the temporary files, which is left running for the next test run. A test
// must use names of its own and remove its pods, and must not stop this containerd; see [Private] for that.
// Without root the test is skipped.
func ForTest(t testing.TB) *Bed {
	t.Helper()
	dir := os.Getenv("KUBELETKIT_BED")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "kubeletkit-bed")
	}
	return up(t, dir)
}

// Private gives a bed to this test alone, to stop and kill as it likes. It is cleaned when the test ends.
// Without root the test is skipped.
func Private(t testing.TB) *Bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubeletkit-bed-")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Clean(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return up(t, dir)
}

func up(t testing.TB, dir string) *Bed {
	t.Helper()
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	b.Log = t.Output()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // cold, the tools are built
	defer cancel()
	switch err := b.Up(ctx); {
	case errors.Is(err, ErrNotRoot):
		t.Skip("no container runtime for this test: ", err)
	case err != nil:
		t.Fatal(err)
	}
	return b
}
