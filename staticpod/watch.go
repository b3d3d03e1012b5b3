package staticpod

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	quiet   = 3 * time.Millisecond  // without an event: the burst is over
	burst   = 10 * time.Millisecond // the longest a burst is waited for
	maxRest = time.Second           // the longest rest after a costly look
)

// watch waits for changes of the directory, and of its parent, where a directory comes back or a link is turned
// around. It is a help only: without it the rescan finds everything.
type watch struct {
	path   string
	log    *slog.Logger
	fs     *fsnotify.Watcher
	places map[string]fs.FileInfo // what is watched, as it was then
	told   bool                   // that watching does not work

	removed map[string]bool // paths of files that were removed since the last look
}

// removals are the files that were removed since they were asked for last, whatever stands in their place now.
func (w *watch) removals() map[string]bool {
	all := w.removed
	w.removed = nil
	return all
}

// follow watches what stands at the path now.
func (w *watch) follow(single bool) {
	if w.fs == nil {
		fs, err := fsnotify.NewWatcher()
		if err != nil {
			w.fails(err)
			return
		}
		w.fs = fs
		w.places = map[string]os.FileInfo{}
	}
	places := []string{filepath.Dir(w.path)}
	if !single {
		places = append(places, w.path)
	}
	for _, p := range places {
		fi, err := os.Stat(p)
		old := w.places[p]
		if err == nil && old != nil && os.SameFile(old, fi) && slices.Contains(w.fs.WatchList(), p) {
			continue
		}
		if old != nil {
			_ = w.fs.Remove(p) // it is gone with what it stood for
			delete(w.places, p)
		}
		if err != nil || !fi.IsDir() {
			continue
		}
		if err := w.fs.Add(p); err != nil {
			w.fails(err)
			continue
		}
		w.places[p] = fi
	}
}

func (w *watch) fails(err error) {
	if !w.told {
		w.told = true
		w.log.Warn("static pod directory cannot be watched; changes are found by the rescan only", "path", w.path, "err", err)
	}
}

// wait returns when it is time to look: after an event and the burst it belongs to, but not before rest is
// over; else when the time given has passed, or ctx has ended.
func (w *watch) wait(ctx context.Context, atMost, rest time.Duration) {
	latest := time.NewTimer(atMost)
	defer latest.Stop()
	rested := time.Now().Add(min(rest, maxRest))
	var events <-chan fsnotify.Event // nil, and so never ready, without a watcher
	var errs <-chan error
	if w.fs != nil {
		events, errs = w.fs.Events, w.fs.Errors
	}
	var over <-chan time.Time // the end of the burst; nil: no event yet
	var deadline time.Duration
	var began time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-latest.C:
			return
		case <-over:
			return
		case e := <-events:
			if !w.concerns(e) {
				continue
			}
			if e.Has(fsnotify.Remove) && e.Name != w.path {
				if w.removed == nil {
					w.removed = map[string]bool{}
				}
				w.removed[e.Name] = true
			}
		case err := <-errs: // events were lost, or worse: look at everything
			w.log.Debug("static pod directory: the watcher lost events", "path", w.path, "err", err)
		}
		if over == nil {
			began = time.Now()
			deadline = max(burst, rested.Sub(began))
		}
		since := time.Since(began)
		over = time.After(min(deadline-since, max(quiet, time.Until(rested))))
	}
}

// concerns leaves out what happens beside the directory. For a single file all counts, as it may be a link to
// where something happens.
func (w *watch) concerns(e fsnotify.Event) bool {
	_, dir := w.places[w.path]
	return !dir || e.Name == w.path || filepath.Dir(e.Name) == w.path
}

func (w *watch) close() {
	if w.fs != nil {
		_ = w.fs.Close()
	}
}
