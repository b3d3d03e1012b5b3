package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
)

// PodTimeline is one pod of /debug/pods?format=json, which answers with an array of them, by namespace and name.
type PodTimeline struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	UID       types.UID       `json:"uid"`
	LastEvent *observe.Entry  `json:"lastEvent,omitempty"` // absent when there is none
	Timeline  []observe.Entry `json:"timeline,omitempty"`  // oldest first; left out with brief=1
}

// timelines answers with what happened to each wanted pod: a table, or JSON.
func (h *handler) timelines(w http.ResponseWriter, r *http.Request) error {
	if h.cfg.Timeline == nil {
		return fmt.Errorf("timelines of pods: %w", errors.ErrUnsupported)
	}
	q := r.URL.Query()
	all := []PodTimeline{}
	for _, pod := range h.cfg.Pods.Pods() {
		all = append(all, timelineOf(pod, h.cfg.Timeline))
	}
	slices.SortFunc(all, func(a, b PodTimeline) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	switch format := q.Get("format"); format {
	case "", "text":
		writeText(w, timelineTable(all, time.Now()))
		return nil
	case "json":
		if q.Get("brief") == "1" {
			for i := range all {
				all[i].Timeline = nil
			}
		}
		return writeJSON(w, all)
	default:
		return fail(http.StatusBadRequest, "unknown format %q: text or json", format)
	}
}

func timelineOf(pod *v1.Pod, t Timeline) PodTimeline {
	p := PodTimeline{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Timeline: t.Timeline(string(pod.UID))}
	for i := range p.Timeline {
		if p.Timeline[i].Event {
			p.LastEvent = &p.Timeline[i]
		}
	}
	return p
}

// timelineTable is all of it for people.
func timelineTable(all []PodTimeline, now time.Time) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "POD\tAGE\tWHAT\tDETAIL")
	for _, p := range all {
		name := p.Namespace + "/" + p.Name
		if len(p.Timeline) == 0 {
			fmt.Fprintf(w, "%s\t-\t-\tnothing yet\n", name)
		}
		for _, e := range p.Timeline {
			what, detail := describe(e)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, now.Sub(e.At).Round(time.Second), oneLine(what), oneLine(detail))
		}
	}
	_ = w.Flush() // a buffer takes everything
	return b.String()
}

// describe says in two columns what an entry is about.
func describe(e observe.Entry) (what, detail string) {
	if e.Event {
		detail = e.Message
		if e.Count > 1 {
			detail = fmt.Sprintf("%s (%d times since %s)", detail, e.Count, e.First.Format(time.TimeOnly))
		}
		return e.Reason, detail
	}
	switch took := e.Duration.Round(time.Millisecond); {
	case e.Running:
		return e.Step, fmt.Sprintf("under way for %v", took)
	case e.Error != "":
		return e.Step, fmt.Sprintf("went wrong after %v: %s", took, e.Error)
	default:
		return e.Step, fmt.Sprintf("took %v", took)
	}
}

// oneLine keeps what others wrote from bending a table.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
