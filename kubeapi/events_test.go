package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/observe"
)

func about(name, reason, message string) observe.Event {
	return observe.Event{About: observe.Pod("default", name, "uid-of-"+name), Reason: reason, Message: message}
}

func (b *bench) events() []*v1.Event { return apifake.All[*v1.Event](b.server) }

func TestAnEventOfThePast(t *testing.T) {
	inBubble(t, func(b *bench) {
		e := NewEvents(b.client)
		happened := time.Now()
		ev := about("web", "Killing", "Stopping container app")
		ev.Warning, ev.Annotations, ev.About.FieldPath = true, map[string]string{"a": "b"}, "spec.containers{app}"
		e.Event(ev)
		time.Sleep(time.Minute)
		b.begin(e.Run)
		b.settle()
		all := b.events()
		if len(all) != 1 {
			t.Fatalf("%d events", len(all))
		}
		is := all[0]
		if is.Type != "Warning" || is.Reason != "Killing" || is.Source != (v1.EventSource{Component: "kubelet", Host: "n1"}) || is.Count != 1 ||
			is.InvolvedObject.FieldPath != "spec.containers{app}" || is.InvolvedObject.UID != "uid-of-web" || is.Annotations["a"] != "b" ||
			is.ReportingController != "kubelet" || is.ReportingInstance != "n1" || is.FirstTimestamp.Unix() != happened.Unix() {
			t.Errorf("%+v", is)
		}
	})
}

func TestEventsOfOneInstantAreTwo(t *testing.T) {
	inBubble(t, func(b *bench) {
		e := NewEvents(b.client)
		e.Event(about("web", "Pulled", "a"))
		e.Event(about("web", "Created", "b"))
		e.Event(observe.Event{About: observe.Ref{Kind: "Node", Name: "n1", UID: "n1"}, Reason: "Starting", Message: "c"})
		b.begin(e.Run)
		b.settle()
		if n := len(b.events()); n != 3 {
			t.Errorf("%d events", n)
		}
		b.wantCalls("create events default", "create events default", "create events default")
	})
}

func TestEqualEventsAreCounted(t *testing.T) {
	inBubble(t, func(b *bench) {
		e := NewEvents(b.client)
		b.begin(e.Run)
		for range 5 {
			e.Event(about("web", "Unhealthy", "no answer"))
			b.settle()
		}
		all := b.events()
		if len(all) != 1 || all[0].Count != 5 || len(b.calls()) != 5 {
			t.Fatalf("%+v", all)
		}
		b.server.Remove(all[0]) // the server forgets events after an hour
		e.Event(about("web", "Unhealthy", "no answer"))
		b.settle()
		if all := b.events(); len(all) != 1 || all[0].Count != 6 {
			t.Errorf("%+v", all)
		}
	})
}

func TestAStormIsFewRequests(t *testing.T) {
	inBubble(t, func(b *bench) {
		e := NewEvents(b.client)
		b.begin(e.Run)
		for i := range 900 {
			e.Event(about("web", "Failed", fmt.Sprintf("try %d", i)))
		}
		time.Sleep(time.Minute)
		if n := len(b.calls()); n > 26 {
			t.Errorf("%d requests", n)
		}
		if n := len(b.events()); n > 11 {
			t.Errorf("%d events", n)
		}
		e.Event(about("other", "Failed", "mine"))
		b.settle()
		if n := len(b.calls()); n != 1 {
			t.Errorf("another pod's event: %d requests", n)
		}
	})
}

// TestEventsWaitForCalm: the server is asked for something else each 300 ms; at 2.4 s the last time.
func TestEventsWaitForCalm(t *testing.T) {
	const (
		busy = 2700 * time.Millisecond
		last = 2400 * time.Millisecond
	)
	said := func(at time.Duration, warning bool) observe.Event {
		ev := about("pod"+at.String(), "Said", "x")
		ev.Warning = warning
		return ev
	}
	for name, c := range map[string]struct {
		busy time.Duration // requests go on for so long
		take map[time.Duration]bool
		more int // events besides, at the start, behind those
		want map[string]time.Duration
	}{
		"it is calm":                {0, map[time.Duration]bool{0: false}, 0, map[string]time.Duration{"pod0s": 0}},
		"not yet":                   {busy, map[time.Duration]bool{0: false, time.Second: false}, 0, map[string]time.Duration{"pod0s": last + eventCalm, "pod1s": last + eventCalm}},
		"a warning":                 {busy, map[time.Duration]bool{time.Second: true}, 0, map[string]time.Duration{"pod1s": time.Second}},
		"what is before a warning":  {busy, map[time.Duration]bool{0: false, time.Second: true}, 0, map[string]time.Duration{"pod0s": time.Second, "pod1s": time.Second}},
		"what comes after one":      {busy, map[time.Duration]bool{0: true, time.Second: false}, 0, map[string]time.Duration{"pod0s": 0, "pod1s": last + eventCalm}},
		"it is never calm":          {time.Minute, map[time.Duration]bool{0: false, time.Second: false}, 0, map[string]time.Duration{"pod0s": eventAge, "pod1s": eventAge + time.Second}},
		"many wait":                 {busy, map[time.Duration]bool{0: false}, eventQueue/2 + 1, map[string]time.Duration{"pod0s": 0}},
		"as many wait as is usual":  {busy, map[time.Duration]bool{0: false}, 20, map[string]time.Duration{"pod0s": last + eventCalm}},
		"the agent ends in between": {time.Minute, map[time.Duration]bool{19 * time.Second: false}, 0, map[string]time.Duration{"pod19s": 20 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.put(pod("web"))
				e := NewEvents(b.client)
				begun, told := time.Now(), map[string]time.Duration{}
				b.server.Answer(func(call apifake.Call) *apifake.Answer {
					if call.Resource == "events" {
						ev, err := kruntime.Decode(codecs.UniversalDeserializer(), call.Body)
						if err != nil {
							b.Error(err)
							return nil
						}
						told[ev.(*v1.Event).InvolvedObject.Name] = time.Since(begun)
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
				defer cancel()
				const step = 300 * time.Millisecond
				var others sync.WaitGroup
				defer others.Wait()
				others.Go(func() {
					for at := time.Duration(0); at < c.busy && ctx.Err() == nil; at += step {
						_ = place{b.client.pods, "pods", "default", "web"}.get(ctx, &v1.Pod{})
						time.Sleep(step)
					}
				})
				synctest.Wait()
				for at, warning := range c.take {
					time.AfterFunc(at, func() { e.Event(said(at, warning)) })
				}
				synctest.Wait() // those of 0 s are taken
				for i := range c.more {
					e.Event(about(fmt.Sprint("another", i), "Said", "x"))
				}
				if err := e.Run(ctx); err != nil {
					t.Error(err)
				}
				for name, at := range c.want {
					if got, ok := told[name]; !ok || got.Round(step/3) != at.Round(step/3) {
						t.Errorf("%s was told of at %v, %v, not at %v", name, got, ok, at)
					}
				}
			})
		})
	}
}

func TestAnEventNeverBlocksAndMoreThanAThousandAreDropped(t *testing.T) {
	inBubble(t, func(b *bench) {
		e := NewEvents(b.client)
		for i := range 1500 {
			e.Event(about(fmt.Sprintf("pod%d", i), "Failed", "x"))
		}
		b.begin(e.Run)
		time.Sleep(time.Minute)
		if n := len(b.events()); n != 1000 {
			t.Errorf("%d events", n)
		}
		if len(b.log.Lines("events were dropped")) != 1 {
			t.Errorf("%v", b.log.Lines(""))
		}
	})
}

func TestWhatTheServerRefusesIsNotRepeated(t *testing.T) {
	terminating := apierrors.NewForbidden(v1.Resource("events"), "x", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err    error
		warned int
		tries  int
	}{
		"namespace terminating":   {terminating, 0, 1},
		"no such namespace":       {apierrors.NewNotFound(v1.Resource("namespaces"), "default"), 1, 1},
		"forbidden":               {apierrors.NewForbidden(v1.Resource("events"), "x", errors.New("no")), 1, 1},
		"no leader, given up":     {apierrors.NewInternalError(errors.New("no leader")), 1, eventTries},
		"not available, given up": {apierrors.NewServiceUnavailable("no"), 1, eventTries},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				e := NewEvents(b.client)
				b.begin(e.Run)
				b.server.Answer(func(call apifake.Call) *apifake.Answer {
					if strings.Contains(string(call.Body), "bad") {
						return &apifake.Answer{Err: c.err}
					}
					return nil
				})
				e.Event(about("bad", "Failed", "x"))
				e.Event(about("good", "Failed", "x"))
				time.Sleep(3 * time.Minute)
				if n := len(b.calls()); n != c.tries+1 {
					t.Errorf("%d requests", n)
				}
				if all := b.events(); len(all) != 1 || all[0].InvolvedObject.Name != "good" {
					t.Errorf("%v", all)
				}
				if n := len(b.log.Lines("WARN an event is")); n != c.warned {
					t.Errorf("%v", b.log.Lines(""))
				}
			})
		})
	}
}

func TestEventsOutliveAnOutage(t *testing.T) {
	inBubble(t, func(b *bench) {
		e := NewEvents(b.client)
		b.begin(e.Run)
		b.server.SetDown(true)
		for i := range 50 {
			e.Event(about(fmt.Sprintf("pod%d", i), "Failed", "x"))
		}
		time.Sleep(90 * time.Second)
		b.server.SetDown(false)
		time.Sleep(time.Minute)
		if n := len(b.events()); n != 50 {
			t.Errorf("%d events", n)
		}
	})
}

func TestWhatWaitsAtTheStopIsTriedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(b *bench)
		told   int
		within time.Duration
	}{
		"well":             {func(*bench) {}, 40, time.Millisecond},
		"down":             {func(b *bench) { b.server.SetDown(true) }, 0, time.Millisecond},
		"slow":             {func(b *bench) { b.server.Answer(always(apifake.Answer{Delay: time.Hour})) }, 0, eventStop},
		"in a wait":        {func(b *bench) { b.server.SetDown(true); time.Sleep(15 * time.Second); b.server.SetDown(false) }, 40, time.Millisecond},
		"too many answers": {func(b *bench) { b.server.Answer(always(apifake.Answer{Err: apierrors.NewTooManyRequests("no", 30)})) }, 0, eventStop},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				e := NewEvents(b.client)
				stop := b.begin(e.Run)
				b.settle()
				b.server.Answer(always(apifake.Answer{Delay: time.Second})) // so that most of them wait
				for i := range 40 {
					e.Event(about(fmt.Sprintf("pod%d", i), "Failed", "x"))
				}
				b.settle()
				b.server.Answer(nil)
				c.breaks(b)
				begin := time.Now()
				stop()
				if took := time.Since(begin); took > c.within {
					t.Errorf("the stop took %v", took)
				}
				if n := len(b.events()); n != c.told {
					t.Errorf("%d events", n)
				}
			})
		})
	}
}
