package pleg_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the beginning of the other processes of BenchmarkAtRest.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}
