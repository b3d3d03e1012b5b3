package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var errBroken = errors.New("broken")

func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestRunRelistsAPeriodAfterTheLastEnded(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.does(func(_ context.Context, what string) error {
			if what == "list" {
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		stop := n.run()
		defer stop()
		n.after(7*time.Second, "0s list", "3s list", "6s list")
	})
}

func TestRunTellsWhatChanged(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a s1+ c1+")
		defer n.run()()
		n.after(100*time.Millisecond, "0s list", "0s look a", "0s a s1 started", "0s a c1 started")
		n.has("a s1+ c1-")
		n.after(time.Second, "1s list", "1s look a", "1s a c1 died")
		n.after(time.Second, "2s list") // nothing new: no look
		n.has("")
		n.after(time.Second, "3s list", "3s a c1 removed", "3s a s1 died", "3s a s1 removed") // nothing left to look at
	})
}

// Who counts what is dead gets the look that told of it, once, after all events of it.
func TestDiedIsGivenWhatWasSeen(t *testing.T) {
	var n *node
	cfg := pleg.Config{Died: func(seen runtime.Pod) { n.note("dead are of %s", write(seen)) }}
	onNode(t, cfg, func(on *node) {
		n = on
		n.has("a s1+ c1+ c2+ | b c3+")
		n.relist()
		n.take()
		time.Sleep(time.Second)
		n.has("a s1- c1- c2+ | b c3+")
		n.relist()
		n.after(time.Second, "1s list", "1s look a", "1s a c1 died", "1s a s1 died", "1s dead are of a s1- c1- c2+")
		n.has("b c3+")
		n.relist()
		n.after(time.Second, "2s list", "2s a c1 removed", "2s a c2 died", "2s a c2 removed", "2s a s1 removed", "2s dead are of a")
		n.has("b c3+ c4+")
		n.relist()
		n.after(0, "3s list", "3s look b", "3s b c4 started")
	})
}

func TestCreatedContainersAreLookedAtAndNotTold(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a s1+")
		n.relist()
		n.take()
		time.Sleep(time.Second)
		n.has("a s1+ c1?")
		n.relist()
		n.after(0, "1s list", "1s look a")
		if got := n.pod("a", time.Time{}); got != "a s1+ c1?" {
			t.Error(got)
		}
	})
}

// Case c047: whatever was lost, the next relist shows it.
func TestCase_c047_AContainerThatVanishedIsTold(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a s1+ c1+")
		n.relist()
		n.take()
		time.Sleep(time.Second)
		n.has("a s1+")
		n.relist()
		n.after(0, "1s list", "1s look a", "1s a c1 died", "1s a c1 removed")
	})
}

// What a listing showed is told even if it is gone when looked at.
func TestAContainerGoneBetweenListingAndLookIsToldWhole(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a s1+ c1+")
		n.does(func(_ context.Context, what string) error {
			if what == "look a" {
				n.has("a s1+")
			}
			return nil
		})
		n.relist()
		n.after(0, "0s list", "0s look a", "0s a s1 started", "0s a c1 started", "0s a c1 died", "0s a c1 removed")
	})
}

// Case c042: nothing is dropped, however much dies at once and whatever fails meanwhile.
func TestCase_c042_ManyDeathsAtOnceAreAllTold(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has(crowd("p# c#+"))
		n.relist()
		n.take()
		time.Sleep(time.Second)
		n.has(crowd("p# c#-"))
		n.does(func(_ context.Context, what string) error {
			if strings.HasPrefix(what, "look") {
				return errBroken
			}
			return nil
		})
		if err := n.g.Relist(n.t.Context()); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		n.take()
		n.does(func(context.Context, string) error { return nil })
		time.Sleep(time.Second)
		n.relist()
		if died := deaths(n.take()); died != 200 {
			t.Errorf("%d of 200 deaths told", died)
		}
	})
}

// crowd is two hundred pods, each with its number for a #.
func crowd(each string) string {
	pods := make([]string, 200)
	for i := range pods {
		pods[i] = strings.ReplaceAll(each, "#", strconv.Itoa(i))
	}
	return strings.Join(pods, "|")
}

func deaths(diary []string) (n int) {
	for _, l := range diary {
		if strings.HasSuffix(l, "died") {
			n++
		}
	}
	return n
}

// Case c048, trap 35: a pod that hangs in every look is alone with it.
func TestCase_c048_AHangingPodHoldsUpNobody(t *testing.T) {
	onNode(t, pleg.Config{Inspect: 2}, func(n *node) {
		n.has("a c1+ | bad1 c8+ | bad2 c9+")
		n.does(func(ctx context.Context, what string) error {
			if strings.HasPrefix(what, "look bad") {
				return hang(ctx)
			}
			return nil
		})
		defer n.run()()
		time.Sleep(5 * time.Second)
		if got := n.take(); !slices.Contains(got, "0s a c1 started") && !slices.Contains(got, "1s a c1 started") {
			t.Error(got)
		}
		n.has("a c1- | bad1 c8+ | bad2 c9+")
		n.after(1500*time.Millisecond, "6s list", "6s look a", "6s a c1 died")
		time.Sleep(10 * time.Minute)
		if err := n.g.Healthy(); err != nil {
			t.Error(err)
		}
		bad := 0
		for _, l := range n.take() {
			if strings.Contains(l, "look bad1") {
				bad++
			}
		}
		if bad != 5 { // one each two minutes, when the last gave up
			t.Errorf("looked %d times at a pod that hangs", bad)
		}
		n.does(func(context.Context, string) error { return nil })
		time.Sleep(3 * time.Minute)
		if got := n.take(); !slices.ContainsFunc(got, func(l string) bool { return strings.HasSuffix(l, "bad1 c8 started") }) {
			t.Error("never told once it could be looked at")
		}
	})
}

func TestAFailedLookIsRepeated(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a c1+")
		n.relist()
		n.take()
		n.does(func(_ context.Context, what string) error {
			if what == "look a" {
				return errBroken
			}
			return nil
		})
		defer n.run()()
		n.after(500*time.Millisecond, "0s list")
		n.has("a c1+ c2+")
		n.after(2*time.Second, "1s list", "1s look a", "2s list", "2s look a")
		if got := n.pod("a", time.Time{}); got != "a c1+" { // what there is
			t.Error(got)
		}
		if err := n.g.Healthy(); err != nil {
			t.Error(err)
		}
		n.has("a c1+") // as before: nothing to be told but that it can be looked at again
		n.does(func(context.Context, string) error { return nil })
		n.after(2*time.Second, "3s list", "3s look a", "3s a changed", "4s list")
	})
}

// Case c046: unhealthy says why, and ends with the first listing that works.
func TestCase_c046_HealthyOnceListed(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.has("a c1+")
		n.does(func(_ context.Context, what string) error {
			switch age := time.Since(n.begin); {
			case age < 20*time.Second:
				return errors.New("no such socket")
			case age < 30*time.Second:
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		want := func(want string) {
			t.Helper()
			if err := n.g.Healthy(); fmt.Sprint(err) != want {
				t.Errorf("after %v: %v, want %s", time.Since(n.begin), err, want)
			}
		}
		want("the pods of this node have not been listed yet")
		defer n.run()()
		time.Sleep(10 * time.Second)
		want("the pods of this node have not been listed yet: list pods: no such socket")
		time.Sleep(21 * time.Second)
		want("<nil>")
		if got := n.take(); got[len(got)-1] != "30s a c1 started" && got[len(got)-2] != "30s a c1 started" {
			t.Error(got)
		}
	})
}

func TestUnhealthyAfterPatience(t *testing.T) {
	onNode(t, pleg.Config{}, func(n *node) {
		n.relist()
		n.does(func(ctx context.Context, _ string) error { return hang(ctx) })
		defer n.run()()
		time.Sleep(3 * time.Minute)
		if err := n.g.Healthy(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := n.g.Healthy(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "3m1s ago") {
			t.Error(err)
		}
		n.does(func(context.Context, string) error { return nil })
		time.Sleep(2 * time.Minute) // the listing that hangs gives up
		if err := n.g.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

func TestNewNamesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		cfg  pleg.Config
		want string
	}{
		{pleg.Config{}, "pleg: Source is required"},
		{pleg.Config{Source: &node{}, Timeout: -time.Second}, "pleg: Period 0s, Patience 0s, Timeout -1s and Inspect 0 must not be negative"},
		{pleg.Config{Source: &node{}, Inspect: -1}, "pleg: Period 0s, Patience 0s, Timeout 0s and Inspect -1 must not be negative"},
	} {
		if _, err := pleg.New(c.cfg); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
