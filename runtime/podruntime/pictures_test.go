package podruntime

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// questions is how often the engine was asked for lists, sandboxes and containers since the last call.
type questions struct {
	n    *node
	last [3]int
}

func (a *questions) now() string {
	e := a.n.engine
	all := [3]int{e.Calls("ListSandboxes") + e.Calls("ListContainers"), e.Calls("Sandbox"), e.Calls("Container")}
	defer func() { a.last = all }()
	return fmt.Sprint(all[0]-a.last[0], all[1]-a.last[1], all[2]-a.last[2])
}

func TestLooksAskOnlyForWhatMayHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(polite, "sleep 100")
		p.Spec.RestartPolicy = v1.RestartPolicyNever
		a := &questions{n: n}
		expect := func(what, want string) runtime.Pod {
			t.Helper()
			seen := n.look(p)
			if got := a.now(); got != want {
				t.Errorf("%s: %s lists, sandboxes, containers were asked for, want %s", what, got, want)
			}
			return seen
		}
		n.sync(p)
		a.now()
		first := expect("nothing has changed", "2 0 0")
		if first.Newest("a").Started.IsZero() || len(first.IPs) == 0 || first.Newest("a").SandboxID != "" && first.Newest("a").LogPath == "" {
			t.Errorf("not complete: %+v", first)
		}
		time.Sleep(pictureAge)
		expect("after a while", "2 1 2")
		expect("and then no more", "2 0 0")
		if err := n.engine.Exit(first.Newest("a").ID, 3); err != nil {
			t.Fatal(err)
		}
		if seen := expect("a container has ended", "2 0 1"); seen.Newest("a").ExitCode != 3 {
			t.Errorf("%+v", seen.Newest("a"))
		}
		expect("something may still be said of its end", "2 0 1")
		time.Sleep(lastNews)
		expect("for the last time", "2 0 1")
		expect("nothing is said any more", "2 0 0")
		n.pictures.change(p.UID)
		expect("sizes were changed", "2 1 2")
		if err := n.engine.StopSandbox(t.Context(), first.Sandboxes[0].ID); err != nil {
			t.Fatal(err)
		}
		if seen := expect("all has ended", "2 1 2"); seen.Running() {
			t.Errorf("%+v", seen)
		}
	})
}

func TestRemovalAsksForNothingThatTheLastLookHasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := func() (*node, *questions, *v1.Pod) {
			n := newNode(t)
			p := pod(polite, "sleep 100")
			n.sync(p)
			if err := n.Stop(t.Context(), p, n.look(p), runtime.Termination{}); err != nil {
				t.Fatal(err)
			}
			return n, &questions{n: n}, p
		}
		purged := func(n *node, a *questions, p *v1.Pod, what, want string) {
			t.Helper()
			a.now()
			if err := n.Remove(t.Context(), p.UID, runtime.Purge); err != nil {
				t.Fatal(err)
			}
			if got := a.now(); got != want {
				t.Errorf("%s: %s lists, sandboxes, containers were asked for, want %s", what, got, want)
			}
			if sandboxes, containers := n.engine.Truth(); len(sandboxes)+len(containers) > 0 {
				t.Errorf("%s: %d sandboxes and %d containers are left", what, len(sandboxes), len(containers))
			}
		}
		n, a, p := ended()
		time.Sleep(time.Millisecond)
		n.look(p)
		purged(n, a, p, "just looked at", "0 0 0")

		n, a, p = ended()
		n.look(p)
		time.Sleep(pictureAge)
		purged(n, a, p, "looked at long ago", "2 0 0")

		n, a, p = ended()
		next, err := New(n.cfg)
		if err != nil {
			t.Fatal(err)
		}
		n.Runtime = next
		purged(n, a, p, "by another agent", "2 0 2")

		n, a, p = ended()
		n.pictures.makes(p.UID, errors.New("no answer"))
		time.Sleep(time.Millisecond)
		n.look(p)
		purged(n, a, p, "something may yet come to be", "2 0 0")
	})
}

func TestALookOlderThanAChangeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pictures
		box := runtime.Sandbox{PodRef: runtime.PodRef{UID: "u-1"}, ID: "s", IPs: []string{"192.0.2.1"}, Ready: true}
		look := func(at time.Time) *gallery {
			return &gallery{at: at, sandboxes: map[string]picture[runtime.Sandbox]{"s": {box, at, at}}}
		}
		early := time.Now()
		p.add(early, box)
		if _, good := p.sandbox(time.Now(), &box); !good {
			t.Error("a new sandbox is looked at again")
		}
		time.Sleep(time.Second)
		p.change("u-1")
		p.keep("u-1", look(early))
		if _, good := p.sandbox(time.Now(), &box); good {
			t.Error("a look is good that began before the change")
		}
		time.Sleep(time.Second)
		p.keep("u-1", look(time.Now()))
		if _, good := p.sandbox(time.Now(), &box); !good {
			t.Error("a look after the change is not good")
		}
		p.keep("u-1", &gallery{at: early})
		if _, good := p.sandbox(time.Now(), &box); !good {
			t.Error("an older look took the place of a newer one")
		}
		p.keep("u-1", &gallery{at: time.Now()})
		if len(p.pods) > 0 {
			t.Error("a pod that is no more is remembered")
		}
	})
}

func TestASandboxWithoutAnAddressIsLookedAtAgain(t *testing.T) {
	var p pictures
	box := runtime.Sandbox{PodRef: runtime.PodRef{UID: "u-1"}, ID: "s", Ready: true}
	p.add(time.Now(), box)
	if _, good := p.sandbox(time.Now(), &box); good {
		t.Error("it may have got one")
	}
	box.HostNetwork, box.ID = true, "host"
	p.add(time.Now(), box)
	if _, good := p.sandbox(time.Now(), &box); !good {
		t.Error("it never has one of its own")
	}
}
