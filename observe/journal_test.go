package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var web = Pod("ns", "web", "u1")

// line writes an entry as "seconds since start: what".
func line(start time.Time, e Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: ", e.At.Sub(start).Seconds())
	if e.Event {
		fmt.Fprintf(&b, "event %s %q x%d since %v", e.Reason, e.Message, e.Count, e.First.Sub(start).Seconds())
		if e.Warning {
			b.WriteString(" warning")
		}
		return b.String()
	}
	fmt.Fprintf(&b, "step %s %v", e.Step, e.Duration)
	if e.Running {
		b.WriteString(" running")
	}
	if e.Error != "" {
		b.WriteString(" error " + e.Error)
	}
	if len(e.Attrs) > 0 {
		fmt.Fprint(&b, " ", e.Attrs)
	}
	return b.String()
}

func timeline(j *Journal, uid string, start time.Time) string {
	var out []string
	for _, e := range j.Timeline(uid) {
		out = append(out, line(start, e))
	}
	return strings.Join(out, "\n")
}

func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j Journal
		start := time.Now()
		_, pull := j.Begin(t.Context(), web, "pull", slog.String("image", "nginx"))
		time.Sleep(time.Second)
		back := Event{About: web, Warning: true, Reason: "BackOff", Message: "again"}
		j.Event(back)
		pull.Note(slog.Int("done", 1))
		time.Sleep(time.Second)
		j.Event(Event{About: web, Reason: "Pulled", Message: "ok"})
		pull.Note(slog.Int("done", 2), slog.Attr{})
		pull.End(errors.New("no space"))
		time.Sleep(time.Second)
		j.Event(back)
		_, sync := j.Begin(t.Context(), web, "sync")
		time.Sleep(time.Second)
		pull.End(nil) // only the first End counts
		pull.Note(slog.Bool("late", true))

		want := `0: step pull 2s error no space map[done:2 image:nginx late:true]
2: event Pulled "ok" x1 since 2
3: step sync 1s running
3: event BackOff "again" x2 since 1 warning`
		if got := timeline(&j, "u1", start); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		sync.End(nil)
		if got := j.Timeline("u2"); got != nil {
			t.Errorf("of a pod nobody knows: %v", got)
		}
		j.Forget("u1")
		if got := j.Timeline("u1"); got != nil {
			t.Errorf("forgotten, but %v", got)
		}
		sync.End(nil)
	})
}

func TestEventsThatDifferAreNotJoined(t *testing.T) {
	var j Journal
	field := web
	field.FieldPath = "spec.containers{app}"
	e := Event{About: web, Reason: "r", Message: "m"}
	for _, e := range []Event{e, {About: field, Reason: "r", Message: "m"}, {About: web, Reason: "other", Message: "m"}, {About: web, Reason: "r", Message: "other"}, {About: web, Reason: "r", Message: "m", Warning: true}} {
		j.Event(e)
	}
	if n := len(j.Timeline("u1")); n != 5 {
		t.Errorf("%d entries, want 5", n)
	}
}

func TestTheJournalIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := Journal{PerPod: 3, Pods: 2}
		start := time.Now()
		j.Event(Event{About: web, Reason: "kept"})
		for i := range 5 {
			time.Sleep(time.Second)
			_, s := j.Begin(t.Context(), web, fmt.Sprint("step", i))
			s.End(nil)
		}
		// Many steps do not drive out an event.
		want := "0: event kept \"\" x1 since 0\n3: step step2 0s\n4: step step3 0s\n5: step step4 0s"
		if got := timeline(&j, "u1", start); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		for i := range 4 {
			j.Event(Event{About: web, Reason: fmt.Sprint(i)})
		}
		if got := timeline(&j, "u1", start); strings.Count(got, "event") != 3 || strings.Contains(got, "kept") {
			t.Errorf("got\n%s", got)
		}

		time.Sleep(time.Second)
		j.Event(Event{About: Pod("ns", "b", "u2"), Reason: "r"})
		time.Sleep(time.Second)
		j.Event(Event{About: web, Reason: "r"})
		time.Sleep(time.Second)
		j.Event(Event{About: Pod("ns", "c", "u3"), Reason: "r"}) // u2 was quiet for the longest time
		if j.Timeline("u1") == nil || j.Timeline("u2") != nil || j.Timeline("u3") == nil {
			t.Error("another pod than the quietest was forgotten")
		}

		var zero Journal
		for i := range 1200 {
			zero.Event(Event{About: Pod("ns", "p", fmt.Sprint(i))})
			_, s := zero.Begin(t.Context(), web, "s")
			s.End(nil)
			time.Sleep(time.Millisecond)
		}
		if n := len(zero.pods); n != 1000 {
			t.Errorf("%d pods kept at zero", n)
		}
		if n := len(zero.Timeline("u1")); n != 64 {
			t.Errorf("%d entries kept at zero", n)
		}
	})
}

func TestEntriesGoThroughJSON(t *testing.T) {
	var j Journal
	j.Event(Event{About: web, Warning: true, Reason: "r", Message: "m", Annotations: map[string]string{"a": "b"}})
	_, s := j.Begin(t.Context(), web, "pull", slog.String("image", "nginx"), slog.Any("list", []int{1}))
	s.End(errors.New("broken"))
	all := j.Timeline("u1")
	for i := range all {
		all[i].At = all[i].At.Round(0).UTC() // JSON knows no monotonic reading
		if !all[i].First.IsZero() {
			all[i].First = all[i].First.Round(0).UTC()
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var back []Entry
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(all, back) {
		t.Errorf("went in %+v\ncame out %+v", all, back)
	}
}

func TestATimelineIsTheCallers(t *testing.T) {
	var j Journal
	annotations := map[string]string{"a": "b"}
	j.Event(Event{About: web, Annotations: annotations})
	annotations["a"] = "changed by the sender"
	j.Timeline("u1")[0].Attrs["a"] = "changed by the reader"
	if got := j.Timeline("u1")[0].Attrs["a"]; got != "b" {
		t.Errorf("attribute %q", got)
	}
}

func TestTheJournalIsSafeForConcurrentUse(t *testing.T) {
	j := Journal{PerPod: 4, Pods: 3}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			pod := Pod("ns", "p", fmt.Sprint(i%5))
			for n := range 200 {
				_, s := j.Begin(context.Background(), pod, "s", slog.Int("n", n))
				s.Note(slog.Int("m", n))
				j.Event(Event{About: pod, Reason: fmt.Sprint(n % 7)})
				j.Timeline(fmt.Sprint(n % 5))
				s.End(nil)
				if n%50 == 0 {
					j.Forget(pod.UID)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkJournal(b *testing.B) {
	j := Journal{}
	b.ReportAllocs()
	for b.Loop() {
		_, s := j.Begin(context.Background(), web, "sync")
		j.Event(Event{About: web, Reason: "Started", Message: "started container"})
		s.End(nil)
	}
}
