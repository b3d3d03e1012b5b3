package agent

import (
	"testing"
	"time"
)

// Eventually asks again and again until ok has no error, and returns how long that took. It fails the test at once, with the
// last error, when it takes longer than limit.
func Eventually(tb testing.TB, limit time.Duration, what string, ok func() error) time.Duration {
	tb.Helper()
	start := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(pause*3/2, 200*time.Millisecond) {
		err := ok()
		took := time.Since(start)
		switch {
		case err == nil:
			return took
		case took > limit:
			tb.Fatalf("not within %s: %s: %v", limit, what, err)
		}
		select {
		case <-time.After(pause):
		case <-tb.Context().Done():
			tb.Fatalf("the test ended before: %s: %v", what, err)
		}
	}
}
