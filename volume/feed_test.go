package volume

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestRenewAfter(t *testing.T) {
	const hour = time.Hour
	for _, c := range []struct {
		rule         string
		left, wanted time.Duration
		spread       float64
		want         time.Duration
	}{
		{"four fifths of a token's life", hour, hour, 0, 48 * time.Minute},
		{"up to ten seconds earlier", hour, hour, .99, 48*time.Minute - 9900*time.Millisecond},
		{"after a day, however long it lives", 1000 * hour, 1000 * hour, 0, 24 * hour},
		{"the server may grant less than is asked for", 2 * hour, 1000 * hour, 0, 96 * time.Minute},
		{"a clock that is a little late", hour + 30*time.Second, hour, 0, 48 * time.Minute},
		{"the server's clock is ahead, and may be put right", 48 * hour, hour, 0, 4 * time.Minute},
		{"a clock that is early does not make it asked for without end", 7 * time.Second, hour, 0, 48 * time.Minute},
		{"a clock that is days early neither", -1000 * hour, 2000 * hour, 0, 24 * hour},
		{"the shortest there is", 10 * time.Minute, 10 * time.Minute, 0, 8 * time.Minute},
	} {
		if got := renewAfter(c.left, c.wanted, c.spread); got != c.want {
			t.Errorf("%s: %v, want %v", c.rule, got, c.want)
		}
	}
}

// Field reports kubernetes/kubernetes#124022, #123415 and #132993: clocks were put right, and tokens were not valid for days.
func TestStepped(t *testing.T) {
	asked := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	due := asked.Add(48 * time.Minute)
	for _, c := range []struct {
		rule string
		due  time.Time
		now  time.Time
		want bool
	}{
		{"in between", due, asked.Add(30 * time.Minute), false},
		{"its timer is about to ring", due, due.Add(time.Second), false},
		{"the clock was put back by seconds", due, asked.Add(-30 * time.Second), false},
		{"by days", due, asked.Add(-48 * time.Hour), true},
		{"the machine slept", due, due.Add(2 * time.Hour), true},
		{"it is asked again anyhow", time.Time{}, asked.Add(-48 * time.Hour), false},
	} {
		if got := stepped(asked, c.due, c.now); got != c.want {
			t.Errorf("%s: %v", c.rule, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	for failures, want := range []float64{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := backoff(failures, 0); got.Seconds() != want {
			t.Errorf("after %d failures %v, want %v s", failures, got, want)
		}
	}
	if got := backoff(1000, 1); got != 90*time.Second {
		t.Errorf("%v", got)
	}
}

func TestTake(t *testing.T) {
	now := time.Now()
	one, two := &v1.ConfigMap{}, &v1.ConfigMap{}
	object, token := need{kind: kindConfigMap, name: "app"}, need{kind: kindToken, seconds: 600}
	away, missing := errors.New("away"), fmt.Errorf("app %w", runtime.ErrNotFound)
	for _, c := range []struct {
		rule  string
		was   answer
		need  need
		value any
		err   error

		fresh      bool
		has        any
		due, again bool
	}{
		{"the first value", answer{}, object, one, nil, true, one, false, false},
		{"the same value", answer{value: one}, object, one, nil, false, one, false, false},
		{"another value", answer{value: one}, object, two, nil, true, two, false, false},
		{"the same value after an error", answer{value: one, err: away}, object, one, nil, true, one, false, false},
		{"an error leaves the last value, and is tried again", answer{value: one}, object, nil, away, true, one, true, true},
		{"the same error is no news", answer{err: away}, object, nil, away, false, nil, true, true},
		{"one that is gone has no value, and is followed", answer{value: one}, object, nil, missing, true, nil, false, false},
		{"what is not known yet is no answer", answer{}, object, nil, runtime.ErrInProgress, false, nil, true, true},
		{"a token is renewed", answer{}, token, "t", nil, true, "t", true, false},
		{"a token whose account is gone stays, and is tried again", answer{value: "t"}, token, nil, missing, true, "t", true, true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			a := c.was
			if fresh := a.take(c.need, c.value, now.Add(10*time.Minute), c.err, now); fresh != c.fresh {
				t.Errorf("fresh: %v", fresh)
			}
			if a.value != c.has || a.due.IsZero() == c.due || (a.failures > 0) != c.again {
				t.Errorf("%+v", a)
			}
		})
	}
}
