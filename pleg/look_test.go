package pleg_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestPodFromMemoryOrByALook(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		at := func(s int) time.Time { return n.begin.Add(time.Duration(s) * time.Second) }
		n.has("a c1+")
		for _, c := range []struct {
			name  string
			do    func()
			after time.Time
			uid   string
			want  string
			looks bool
		}{
			{"nothing listed, nothing known: look", nil, time.Time{}, "a", "a c1+", true},
			{"nothing listed, but looked at", nil, time.Time{}, "a", "a c1+", false},
			{"listed: what is not there is empty", n.relist, time.Time{}, "zz", "zz", false},
			{"looked at after that moment", func() { time.Sleep(5 * time.Second) }, at(-1), "a", "a c1+", false},
			{"looked at in that moment is not after it", nil, at(0), "a", "a c1+", true},
			{"a look renews memory", nil, at(1), "a", "a c1+", false},
			{"not looked at since", nil, at(5), "a", "a c1+", true},
			{"a listing that saw no change renews it too", func() { time.Sleep(time.Second); n.relist() }, at(5), "a", "a c1+", false},
			{"and says that nothing is there", nil, at(5), "zz", "zz", false},
			{"but not for later", nil, at(6), "zz", "zz", true},
			{"zero takes what there is, however old", func() { n.has("a c1-"); time.Sleep(time.Minute) }, time.Time{}, "a", "a c1+", false},
			{"what changed is looked at", nil, at(60), "a", "a c1-", true},
			{"gone", func() { time.Sleep(time.Second); n.has(""); time.Sleep(time.Second); n.relist() }, time.Time{}, "a", "a", false},
		} {
			if c.do != nil {
				c.do()
			}
			n.take()
			if got := n.pod(types.UID(c.uid), c.after); got != c.want {
				t.Errorf("%s: got %s, want %s", c.name, got, c.want)
			}
			if looked := slices.ContainsFunc(n.take(), func(l string) bool { return l[len(l)-len("look "+c.uid):] == "look "+c.uid }); looked != c.looks {
				t.Errorf("%s: looked %v, want %v", c.name, looked, c.looks)
			}
		}
	})
}

func TestALookThatCallersLedIsToldToo(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.relist()
		time.Sleep(time.Second)
		n.has("a c1+")
		n.take()
		n.pod("a", time.Now())
		n.after(time.Second, "1s look a", "1s a c1 started")
		n.relist()
		n.after(0, "2s list") // not twice
	})
}

func TestCallersShareALookThatBeganAfterTheirMoment(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a c1+")
		n.does(func(context.Context, string) error { time.Sleep(2 * time.Second); return nil })
		var wg sync.WaitGroup
		ask := func(after time.Time) { wg.Go(func() { n.pod("a", after) }) }
		began := time.Now()
		ask(began)
		time.Sleep(time.Second)
		for range 10 {
			ask(began.Add(-1)) // the look under way is new enough
		}
		later := time.Now()
		for range 10 {
			ask(later) // these need one that begins later, and share it
		}
		wg.Wait()
		n.after(0, "0s look a", "2s a c1 started", "2s look a")
	})
}

func TestACallerWhoGivesUpTakesNobodyAlong(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a c1+")
		n.does(func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Second):
				return nil
			}
		})
		impatient, cancel := context.WithTimeout(n.t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := n.g.Pod(impatient, "a", time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if got := n.pod("a", time.Time{}); got != "a c1+" {
				t.Error(got)
			}
		})
		wg.Go(func() { // waits for the others, and not longer than it wants
			if _, err := n.g.Pod(impatient, "a", time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		wg.Wait()
		n.after(0, "0s look a", "1s look a", "3s a c1 started")
	})
}

func TestThoseWhoShareALookShareItsFailure(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.does(func(context.Context, string) error { time.Sleep(time.Second); return errBroken })
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := n.g.Pod(n.t.Context(), "a", time.Time{}); !errors.Is(err, errBroken) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		n.after(0, "0s look a")
	})
}

// Trap 36.
func TestAddressesOutliveTheSandbox(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		for _, c := range []struct {
			name, has string
			ips       []string
			want      []string
		}{
			{"as seen", "a s1+ c1+", []string{"10.0.0.5"}, []string{"10.0.0.5"}},
			{"kept when the sandbox is not ready", "a s1- c1-", nil, []string{"10.0.0.5"}},
			{"kept when only containers are left", "a c1-", nil, []string{"10.0.0.5"}},
			{"not kept beside a ready sandbox", "a s1- s2+ c1-", nil, nil},
			{"new ones replace", "a s2+ c1-", []string{"10.0.0.6"}, []string{"10.0.0.6"}},
			{"gone with the pod", "", nil, nil},
		} {
			time.Sleep(time.Second)
			n.ips = c.ips
			n.has(c.has)
			n.relist()
			p, err := n.g.Pod(n.t.Context(), "a", time.Time{})
			if err != nil || !slices.Equal(p.IPs, c.want) {
				t.Errorf("%s: %v, %v; want %v", c.name, p.IPs, err, c.want)
			}
		}
	})
}

func TestAListingDoesNotOverruleALookSinceItBegan(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a c1+")
		var wg sync.WaitGroup
		g, err := pleg.New(pleg.Config{Source: lateListing{n}, Tell: func(e pleg.Event) { n.note("%s", show(e)) }})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := g.Relist(n.t.Context()); err != nil { // shows c1 running, two seconds late
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		n.has("a c1-")
		if p, err := g.Pod(n.t.Context(), "a", time.Now()); err != nil || write(p) != "a c1-" {
			t.Error(write(p), err)
		}
		wg.Wait()
		n.after(time.Second, "0s list", "1s look a", "1s a c1 died")
		if p, err := g.Pod(n.t.Context(), "a", time.Time{}); err != nil || write(p) != "a c1-" {
			t.Error(write(p), err)
		}
	})
}

// lateListing takes two seconds to hand over what it saw.
type lateListing struct{ *node }

func (l lateListing) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := l.node.Pods(ctx)
	time.Sleep(2 * time.Second)
	return pods, err
}

// A caller who holds a moment from before the clock was set back gets a look each time, and never waits for that moment.
func TestAClockSetBackFreezesNothing(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a c1+")
		n.relist()
		n.take()
		ahead := time.Now().Add(time.Hour)
		for range 2 {
			if got := n.pod("a", ahead); got != "a c1+" {
				t.Error(got)
			}
			n.after(0, "0s look a")
		}
	})
}

// What is remembered is compared by a clock that nobody sets.
func TestMomentsAreOfTheMonotonicClock(t *testing.T) {
	p := parsePod([]string{"a", "c1+"})
	p.At = time.Now().Round(0).Add(-time.Hour) // a source's own opinion
	g, err := pleg.New(pleg.Config{Source: quiet{all: []runtime.Pod{p}, byUID: map[types.UID]runtime.Pod{"a": p}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // by a look, then by a listing
		if err := g.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, uid := range []types.UID{"a", "gone"} {
			if p, err := g.Pod(t.Context(), uid, time.Time{}); err != nil || !strings.Contains(p.At.String(), " m=") {
				t.Errorf("pod %s is as of %v, by the clock of the wall; %v", uid, p.At, err)
			}
		}
	}
}
