package process

import (
	"os"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	before, rss, err := Usage(os.Getpid())
	if err != nil || before <= 0 || rss < 1<<20 {
		t.Fatalf("%v, %d bytes, %v", before, rss, err)
	}
	n := 0
	for begun := time.Now(); time.Since(begun) < time.Minute; n++ {
		if now, _, err := Usage(os.Getpid()); err != nil || now-before > time.Millisecond {
			if err != nil || now-before > time.Minute {
				t.Errorf("after some work: %v more, %v", now-before, err)
			}
			return
		}
	}
	t.Errorf("asking %d times took no time", n)
}

func TestUsageOfNobody(t *testing.T) {
	if _, _, err := Usage(1 << 22); err == nil {
		t.Error("a process that cannot be has used something")
	}
}
