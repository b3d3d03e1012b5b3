package syncloop_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// always is a source that wants the same for ever.
type always []*v1.Pod

func (a always) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	set(a, true)
	<-ctx.Done()
	return nil
}

func TestNewNamesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*syncloop.Config)
	}{
		{"", func(*syncloop.Config) {}},
		{"syncloop: Sources, Runtime and Sink are required", func(c *syncloop.Config) { c.Runtime = nil }},
		{`syncloop: Sources["mine"] is nil`, func(c *syncloop.Config) { c.Sources = map[string]syncloop.PodSource{"mine": nil} }},
		{"syncloop: Admit[1] is nil", func(c *syncloop.Config) { c.Admit = []syncloop.Admitter{&node{}, nil} }},
		{"syncloop: Sweepers[0] is nil", func(c *syncloop.Config) { c.Sweepers = []syncloop.Sweeper{nil} }},
		{"syncloop: Resync -1s must not be negative", func(c *syncloop.Config) { c.Resync = -time.Second }},
	} {
		cfg := syncloop.Config{Sources: map[string]syncloop.PodSource{"mine": always{}}, Runtime: new(instant), Sink: new(node)}
		c.change(&cfg)
		got := ""
		if _, err := syncloop.New(cfg); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// logged runs a loop for some time over a runtime, with pods that are wanted all the while, and is what was logged.
func logged(t *testing.T, rt syncloop.Runtime, during time.Duration, pods func(n *node) []*v1.Pod) (log string) {
	t.Helper()
	var b bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		loop, err := syncloop.New(syncloop.Config{
			Sources: map[string]syncloop.PodSource{"mine": always(pods(n))}, Runtime: rt, Sink: n, Resync: time.Hour,
			Observe: observe.To{Log: slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn}))},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), during)
		defer stop()
		if err := loop.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return b.String()
}

func TestPodsThatCannotBeToldApartAreLeftOut(t *testing.T) {
	q := new(instant)
	log := logged(t, q, time.Minute, func(n *node) []*v1.Pod {
		web, twin, unnamed := n.pod("web", []string{"app=x"}), n.pod("twin", []string{"app=x"}), n.pod("unnamed", []string{"app=x"})
		twin.UID, unnamed.UID = web.UID, ""
		return []*v1.Pod{nil, web, twin, unnamed}
	})
	for _, want := range []string{
		"a nil pod is left out; its source must not deliver any\" from=mine\n",
		"of two pods with one uid the second is left out; their source must give each its own\" from=mine namespace=default pod=twin uid=web-1\n",
		"a pod without a uid is left out; its source must give it one\" from=mine namespace=default pod=unnamed\n",
	} {
		if strings.Count(log, want) != 1 {
			t.Errorf("not told once: %s\n%s", want, log)
		}
	}
	if len(q.given) != 1 || q.given["web-1"].Name != "web" {
		t.Errorf("running: %v", q.given)
	}
}

func TestALoopRunsOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop, err := syncloop.New(syncloop.Config{Sources: map[string]syncloop.PodSource{"mine": always{}}, Runtime: new(instant), Sink: newNode(t)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- loop.Run(ctx) }()
		synctest.Wait()
		if err := loop.Run(ctx); err == nil || err.Error() != "syncloop: this Loop runs already" {
			t.Error(err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := loop.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// brief is a source that ends by itself after some time, each time it is run.
type brief struct {
	lasts  time.Duration
	begins []time.Time
}

func (b *brief) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	b.begins = append(b.begins, time.Now())
	set(nil, true)
	select {
	case <-ctx.Done():
	case <-time.After(b.lasts):
	}
	return nil
}

func TestASourceThatEndsIsStartedAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		lasts time.Duration
		pause []time.Duration
	}{
		{"one that ends at once, more and more seldom", 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		{"one that goes well for a while, soon", time.Hour, []time.Duration{time.Second, time.Second, time.Second, time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &brief{lasts: c.lasts}
				loop, err := syncloop.New(syncloop.Config{Sources: map[string]syncloop.PodSource{"mine": b}, Runtime: new(instant), Sink: newNode(t)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), 5*c.lasts+20*time.Second)
				defer stop()
				if err := loop.Run(ctx); err != nil {
					t.Error(err)
				}
				var pauses []time.Duration
				for i := range b.begins[1:] {
					pauses = append(pauses, b.begins[i+1].Sub(b.begins[i])-c.lasts)
				}
				if len(pauses) < len(c.pause) || !slices.Equal(pauses[:len(c.pause)], c.pause) {
					t.Errorf("it rested %v", pauses)
				}
			})
		})
	}
}

// eager is a Runtime that says at each step that it has changed something.
type eager struct {
	instant
	steps int
}

func (e *eager) Sync(ctx context.Context, pod *v1.Pod, in runtime.SyncInput) (runtime.SyncResult, error) {
	_, err := e.instant.Sync(ctx, pod, in)
	e.steps++
	return runtime.SyncResult{Acted: true}, err
}

func TestARuntimeThatAlwaysActedGetsStepsWithRests(t *testing.T) {
	e := new(eager)
	log := logged(t, e, time.Minute+time.Second/2, func(n *node) []*v1.Pod { return []*v1.Pod{n.pod("web", []string{"app=x"})} })
	if e.steps < 150 || e.steps > 170 {
		t.Errorf("%d steps within a minute", e.steps)
	}
	if n := strings.Count(log, `at each step that it has changed something; the pod gets a step a second from now on" ref=default/web`); n != 1 {
		t.Errorf("told %d times:\n%s", n, log)
	}
}
