package main

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"
)

// It holds for each thread that there is, and for those that come later.
func TestEachThreadIsWokenLater(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may do that to threads")
	}
	const usual = 50 * time.Microsecond
	t.Cleanup(func() {
		if err := wakeLater(usual); err != nil {
			t.Error(err)
		}
	})
	if err := wakeLater(timerSlack); err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}), make(chan struct{})
	go func() { // on a thread of its own, so that others are started
		goruntime.LockOSThread()
		close(held)
		<-release
	}()
	<-held
	defer close(release)
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, task := range threads {
		slack, err := os.ReadFile(filepath.Join("/proc", filepath.Base(task), "timerslack_ns"))
		if err != nil && os.IsNotExist(err) {
			continue // it has ended
		}
		if got := strings.TrimSpace(string(slack)); got != "250000" || err != nil {
			t.Errorf("thread %s may be woken %s ns late: %v", filepath.Base(task), got, err)
		}
	}
}
