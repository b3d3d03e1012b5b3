package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestRandomHistories lets containers come, go and answer at random, and compares every check and every result with a
// second version of the rules that computes each instance's whole life anew. A failure names its seed; SEED=n replays.
func TestRandomHistories(t *testing.T) {
	first, n := rand.Uint64N(1<<32), 60
	if s := os.Getenv("SEED"); s != "" {
		var err error
		if first, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
		n = 1
	}
	for i := range n {
		seed := first + uint64(i)
		if !t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) { playHistory(t, rand.New(rand.NewPCG(seed, 7))) }) {
			return
		}
	}
}

// life is one instance: when it ran and what its checks answer, by turn.
type life struct {
	id           string
	spec         *v1.Container
	began, ended time.Duration
	answers      map[string][]byte // by probe; S, W, F, U, or E for an error
}

// asked is one check that took place.
type asked struct {
	at time.Duration
	by string // instance and probe
}

const forever = time.Duration(1 << 62)

type history struct {
	rng     *rand.Rand
	pod     *v1.Pod
	lives   []*life
	running map[string]*life // by container name
	ending  time.Duration

	turns map[string]int // checks so far, by instance and probe
	tries map[string]int // of the check under way
	asked []asked
}

func playHistory(t *testing.T, rng *rand.Rand) {
	t.Helper()
	h := &history{rng: rng, pod: randomPod(rng), running: map[string]*life{}, ending: forever, turns: map[string]int{}, tries: map[string]int{}}
	inWorld(t, func(w *world) {
		w.answers(h.answer(w))
		for i := range 150 {
			// Each step lies in a microsecond of the millisecond of its own, and checks are whole seconds after a step that
			// started something: nothing ties.
			next := time.Since(w.begin).Truncate(time.Millisecond) + time.Duration(1+rng.IntN(1500))*time.Millisecond
			time.Sleep(next + time.Duration(i)*time.Microsecond - time.Since(w.begin))
			synctest.Wait()
			w.m.Track(h.pod, h.step(time.Since(w.begin)), h.ending < forever)
			time.Sleep(500 * time.Nanosecond)
			synctest.Wait()
			h.compare(t, w)
			if t.Failed() {
				return
			}
		}
	})
}

// step changes something, or nothing, and looks.
func (h *history) step(now time.Duration) runtime.Pod {
	c := &h.pod.Spec.Containers[h.rng.IntN(len(h.pod.Spec.Containers))]
	switch l := h.running[c.Name]; {
	case h.rng.IntN(3) == 0: // just another look
	case l != nil:
		if h.rng.IntN(3) == 0 {
			l.ended = now
			delete(h.running, c.Name)
		}
	default:
		l = &life{id: fmt.Sprint(c.Name, len(h.lives)), spec: c, began: now, ended: forever, answers: map[string][]byte{}}
		for _, name := range []string{"start", "live", "ready"} {
			l.answers[name] = randomAnswers(h.rng)
		}
		h.lives = append(h.lives, l)
		h.running[c.Name] = l
	}
	if h.rng.IntN(120) == 0 {
		h.ending = min(h.ending, now)
	}
	look := seen()
	for _, l := range slices.Backward(h.lives) {
		c := runtime.Container{ID: l.id, Name: l.spec.Name, State: runtime.Running, Started: time.Now().Add(l.began - now)}
		if l.ended < forever {
			c.State = runtime.Exited
		}
		look.Containers = append(look.Containers, c)
	}
	return look
}

// answer is the Check of the world: the next of the instance's answers, an error three times.
func (h *history) answer(w *world) func(context.Context, string, string) (probe.Result, string, error) {
	return func(_ context.Context, name, id string) (probe.Result, string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.IndexFunc(h.lives, func(l *life) bool { return l.id == id })
		by := id + " " + name
		a := h.lives[i].answers[name][h.turns[by]]
		h.tries[by]++
		if h.tries[by] == 1 {
			h.asked = append(h.asked, asked{time.Since(w.begin), by})
		}
		if a != 'E' || h.tries[by] == tries {
			h.turns[by]++
			h.tries[by] = 0
		}
		switch a {
		case 'S':
			return probe.Success, "", nil
		case 'W':
			return probe.Warning, "", nil
		case 'F':
			return probe.Failure, "", nil
		case 'U':
			return probe.Unknown, "", nil
		}
		return probe.Unknown, "", errors.New("broken")
	}
}

func (h *history) compare(t *testing.T, w *world) {
	t.Helper()
	now := time.Since(w.begin)
	want := runtime.ProbeResults{}
	var wantAsked []asked
	for _, l := range h.lives {
		r, a := l.naive(h.ending, now)
		wantAsked = append(wantAsked, a...)
		if l.ended == forever && probes(l.spec) {
			want[l.id] = r
		}
	}
	if got := w.m.Results("u"); !maps.Equal(got, want) {
		t.Errorf("after %v: results\n got %v\nwant %v", now, got, want)
	}
	order := func(a, b asked) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) }
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(h.asked, order)
	slices.SortFunc(wantAsked, order)
	if !slices.Equal(h.asked, wantAsked) {
		t.Errorf("after %v: checks\n got %v\nwant %v", now, h.asked, wantAsked)
	}
}

// naive computes the life of an instance up to now from its beginning.
func (l *life) naive(ending, now time.Duration) (r runtime.ProbeResult, all []asked) {
	gate := l.began
	if p := l.spec.StartupProbe; p != nil {
		gate = forever
		for _, c := range l.checks("start", p, l.began, min(l.ended-1, ending-1, now)) {
			all = append(all, c.asked)
			if c.verdict == '+' {
				r.Startup, gate = runtime.Passing, c.at
				break
			}
			if c.verdict == '-' {
				r.Startup = runtime.Failing
				break
			}
		}
	}
	if p := l.spec.LivenessProbe; p != nil {
		r.Liveness = runtime.Passing
		for _, c := range l.checks("live", p, gate, min(l.ended-1, ending-1, now)) {
			all = append(all, c.asked)
			if c.verdict == '-' {
				r.Liveness = runtime.Failing
				break
			}
		}
	}
	if p := l.spec.ReadinessProbe; p != nil {
		r.Readiness = runtime.Failing
		for _, c := range l.checks("ready", p, gate, min(l.ended-1, now)) {
			all = append(all, c.asked)
			switch c.verdict {
			case '+':
				r.Readiness = runtime.Passing
			case '-':
				r.Readiness = runtime.Failing
			}
		}
	}
	return r, all
}

type verdict struct {
	asked
	verdict byte // +, -, or . for none
}

// checks are all turns of a probe from a moment until another, were it never to rest.
func (l *life) checks(name string, p *v1.Probe, from, until time.Duration) (all []verdict) {
	at := max(from, l.began+time.Duration(p.InitialDelaySeconds)*time.Second)
	for n := 0; at <= until; n++ {
		v := byte('.')
		row := slices.DeleteFunc(slices.Clone(l.answers[name][:n+1]), func(a byte) bool { return a == 'E' })
		if l.answers[name][n] != 'E' {
			good := func(a byte) bool { return a == 'S' || a == 'W' }
			last, run := row[len(row)-1], 0
			for i := len(row) - 1; i >= 0 && good(row[i]) == good(last); i-- {
				run++
			}
			if good(last) && run >= int(p.SuccessThreshold) {
				v = '+'
			} else if !good(last) && run >= int(p.FailureThreshold) {
				v = '-'
			}
		}
		all = append(all, verdict{asked{at, l.id + " " + name}, v})
		at += time.Duration(p.PeriodSeconds) * time.Second
	}
	return all
}

func randomPod(rng *rand.Rand) *v1.Pod {
	p := pod(v1.Container{})
	p.Spec.Containers = nil
	for i := range 1 + rng.IntN(3) {
		c := v1.Container{Name: string(rune('a' + i))}
		for name, at := range map[string]**v1.Probe{"start": &c.StartupProbe, "live": &c.LivenessProbe, "ready": &c.ReadinessProbe} {
			*at = every(name, 1)
		}
		c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = randomProbe(rng, c.StartupProbe), randomProbe(rng, c.LivenessProbe), randomProbe(rng, c.ReadinessProbe)
		if c.StartupProbe != nil {
			c.StartupProbe.SuccessThreshold = 1
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

func randomProbe(rng *rand.Rand, p *v1.Probe) *v1.Probe {
	p.PeriodSeconds, p.InitialDelaySeconds = 1+rng.Int32N(4), rng.Int32N(2)*rng.Int32N(6)
	p.SuccessThreshold, p.FailureThreshold = 1+rng.Int32N(3), 1+rng.Int32N(4)
	if rng.IntN(4) == 0 {
		return nil
	}
	return p
}

func randomAnswers(rng *rand.Rand) []byte {
	out := make([]byte, 400)
	mood := "SSSSW"
	for i := range out {
		if rng.IntN(6) == 0 {
			mood = []string{"SSSSW", "FFFU", "SF", "SFE"}[rng.IntN(4)]
		}
		out[i] = mood[rng.IntN(len(mood))]
	}
	return out
}
