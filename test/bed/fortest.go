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
func ForTest(tb testing.TB) *Bed {
	tb.Helper()
	dir := os.Getenv("KUBELETKIT_BED")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "kubeletkit-bed")
	}
	return up(tb, dir)
}

// Private gives a bed to this test alone, to stop and kill as it likes. It is cleaned when the test ends.
// Without root the test is skipped.
func Private(tb testing.TB) *Bed {
	tb.Helper()
	// Not TempDir of the test: its name is too long for a socket, and it cannot be removed before Clean.
	dir, err := os.MkdirTemp("", "kubeletkit-bed-") //nolint:usetesting // see above
	if err != nil {
		tb.Fatal(err)
	}
	b, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			log, _ := os.ReadFile(b.path("containerd.log")) // a bed that never started has none
			tb.Logf("the end of containerd's log:\n%s", log[max(0, len(log)-8000):])
		}
		if err := b.Clean(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
		os.RemoveAll(dir)
	})
	return up(tb, dir)
}

func up(tb testing.TB, dir string) *Bed {
	tb.Helper()
	b, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	b.Log = tb.Output()
	ctx, cancel := context.WithTimeout(tb.Context(), 15*time.Minute) // cold, the tools are built
	defer cancel()
	switch err := b.Up(ctx); {
	case errors.Is(err, ErrNotRoot):
		tb.Skip("no container runtime for this test: ", err)
	case err != nil:
		tb.Fatal(err)
	}
	return b
}
