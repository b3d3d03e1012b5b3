package apifake

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const bookmarkEvery = time.Minute

// watch sends changes until the client, CutWatches or the time that was asked for ends it.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, c Call) {
	send := sender(w, r)
	s.mu.Lock()
	s.watches++
	cut := s.cut
	at, events, err := s.first(c)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.watches--
		s.mu.Unlock()
	}()
	if err != nil {
		reply(w, r, nil, err)
		return
	}
	seconds, err := strconv.Atoi("0" + c.Query.Get("timeoutSeconds"))
	if err != nil || seconds == 0 {
		seconds = 3600
	}
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	bookmarks := time.NewTicker(bookmarkEvery)
	defer bookmarks.Stop()
	for {
		if send(events...) != nil {
			return
		}
		if len(events) > 0 && events[len(events)-1].Type == watch.Error {
			return
		}
		s.mu.Lock()
		news := s.news
		at, events = s.since(c, at)
		s.mu.Unlock()
		if len(events) > 0 {
			continue
		}
		select {
		case <-news:
		case <-bookmarks.C:
			if c.Query.Get("allowWatchBookmarks") == "true" {
				events = append(events, bookmark(c, at, false))
			}
		case <-end.C:
			return
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// first is where a watch begins, and what is sent before changes. The lock is held.
func (s *Server) first(c Call) (at int64, events []watch.Event, err error) {
	want := c.Query.Get("resourceVersion")
	initial := c.Query.Get("sendInitialEvents") == "true"
	if want == "" && initial {
		want = strconv.FormatInt(s.store.version, 10) // as fresh as can be
	}
	has, err := s.seen(want)
	if err != nil {
		return 0, nil, err
	}
	at, _ = strconv.ParseInt("0"+want, 10, 64)
	switch {
	case !initial && at != 0 && at < s.store.compacted:
		return at, gone(at), nil
	case !initial && at != 0:
		return at, nil, nil
	}
	for k, o := range s.store.at(has) {
		in, err := c.selects(k, o)
		if err != nil {
			return 0, nil, err
		}
		if in {
			events = append(events, watch.Event{Type: watch.Added, Object: clone(o)})
		}
	}
	if initial {
		events = append(events, bookmark(c, has, true))
	}
	return has, events, nil
}

// since are the changes after a version that a watch may see. The lock is held.
func (s *Server) since(c Call, at int64) (int64, []watch.Event) {
	var events []watch.Event
	if at < s.store.compacted {
		return at, gone(at)
	}
	for _, h := range s.store.history {
		if h.version <= at || s.frozen != 0 && h.version > s.frozen {
			continue
		}
		at = h.version
		was, _ := c.selects(h.key, h.was)
		is, _ := c.selects(h.key, h.is)
		switch {
		case was && is:
			events = append(events, watch.Event{Type: watch.Modified, Object: clone(h.is)})
		case is:
			events = append(events, watch.Event{Type: watch.Added, Object: clone(h.is)})
		case was && h.is != nil: // it no longer matches
			last := clone(h.was)
			last.SetResourceVersion(h.is.GetResourceVersion())
			events = append(events, watch.Event{Type: watch.Deleted, Object: last})
		case was:
			events = append(events, watch.Event{Type: watch.Deleted, Object: clone(h.last)})
		}
	}
	return at, events
}

// gone ends a watch that would have to show what is forgotten.
func gone(at int64) []watch.Event {
	e := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", at))
	return []watch.Event{{Type: watch.Error, Object: &e.ErrStatus}}
}

func bookmark(c Call, at int64, end bool) watch.Event {
	o, err := scheme.New(kinds[c.key().GroupResource])
	if err != nil {
		panic(err) // it is in the table
	}
	b := o.(Object) //nolint:forcetypeassert // the table has only those
	b.SetResourceVersion(strconv.FormatInt(at, 10))
	if end {
		b.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return watch.Event{Type: watch.Bookmark, Object: b}
}

// sender writes events in the form the client asked for.
func sender(w http.ResponseWriter, r *http.Request) func(...watch.Event) error {
	info := serializerFor(r)
	frames := info.StreamSerializer.NewFrameWriter(w)
	begun := false
	return func(events ...watch.Event) error {
		if !begun {
			begun = true
			kind := info.MediaType
			if !info.EncodesAsText {
				kind += ";stream=watch"
			}
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(http.StatusOK)
		}
		for _, e := range events {
			e.Object.GetObjectKind().SetGroupVersionKind(gvkOf(e.Object))
			raw, err := runtime.Encode(info.Serializer, e.Object)
			if err != nil {
				return err
			}
			if err := info.StreamSerializer.Encode(&metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: raw}}, frames); err != nil {
				return err
			}
		}
		w.(http.Flusher).Flush() //nolint:forcetypeassert // both servers have it
		return nil
	}
}
