package logs

import (
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	askEvery  = time.Second            // how often Done is asked, and the file looked at without a notice
	pollEvery = 200 * time.Millisecond // how often the file is looked at where notices are not to be had
	settle    = 100 * time.Millisecond // for so long a runtime may still write to a file it has replaced
)

// follower waits at the end of a log.
type follower struct {
	path   string
	done   func() bool
	asked  time.Time
	ended  bool              // done said so; what was written until then is read once more
	newer  time.Time         // when a file after this one was seen first; zero: there is none
	left   []fs.FileInfo     // files read to their end; those changed earlier than the last one do not matter
	notice *fsnotify.Watcher // nil: poll
}

func newFollower(path string, done func() bool) *follower {
	f := &follower{path: path, done: done}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return f // the kernel gives only so many
	}
	if err := w.Add(filepath.Dir(path)); err != nil {
		_ = w.Close() // nothing was watched
		return f
	}
	f.notice = w
	return f
}

func (f *follower) close() {
	if f.notice != nil {
		_ = f.notice.Close() // it never fails
	}
}

// wait returns nil when there may be more to read, io.EOF when there will be none. It is called at the end of r's file.
func (f *follower) wait(r *reader) error {
	info, err := r.src.file.Stat()
	if err != nil {
		return err
	}
	if r.src.zip == nil && info.Size() < r.src.at {
		r.turn(r.src.file, nil) // truncated
		return nil
	}
	next := successor(f.path, info, f.left)
	switch {
	case next == "":
		f.newer = time.Time{}
	case next != f.path: // two rotations ago: nobody writes to it any more
		return f.turn(r, info, next)
	case f.newer.IsZero():
		f.newer = time.Now()
		return f.pause(r, settle, false)
	case time.Since(f.newer) < settle:
		return f.pause(r, settle-time.Since(f.newer), false)
	default:
		return f.turn(r, info, next)
	}
	if f.ended {
		return io.EOF
	}
	if f.done != nil && time.Since(f.asked) >= askEvery {
		f.asked = time.Now()
		if f.ended = f.done(); f.ended {
			return nil
		}
	}
	if f.notice == nil {
		return f.pause(r, pollEvery, false)
	}
	return f.pause(r, askEvery, true)
}

// turn leaves one file and goes on with the file named next. One that vanished meanwhile is looked for again.
func (f *follower) turn(r *reader, left fs.FileInfo, next string) error {
	file, zip, err := openMoved(next)
	if err != nil {
		return f.pause(r, settle, false)
	}
	f.newer = time.Time{}
	f.left = append(slices.DeleteFunc(f.left, func(i fs.FileInfo) bool { return i.ModTime().Before(left.ModTime()) }), left)
	r.turn(file, zip)
	return nil
}

// pause returns after d, or earlier when something happened to the log file and heed is set.
func (f *follower) pause(r *reader, d time.Duration, heed bool) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var events <-chan fsnotify.Event
	var trouble <-chan error
	if heed {
		events, trouble = f.notice.Events, f.notice.Errors
	}
	for {
		select {
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		case <-r.closed:
			return fs.ErrClosed
		case <-timer.C:
			return nil
		case <-trouble: //nolint:errcheck // notices were lost is all it can say
			return nil
		case e := <-events:
			if filepath.Base(e.Name) == filepath.Base(f.path) {
				return nil
			}
		}
	}
}

// successor names the file that was written after own: what a rotation moved away since, or the one at path. left are
// files read before own. Empty: there is none yet.
func successor(path string, own fs.FileInfo, left []fs.FileInfo) string {
	live, err := os.Stat(path)
	if err == nil && os.SameFile(live, own) {
		return ""
	}
	for _, m := range moved(path) {
		same := func(i fs.FileInfo) bool { return os.SameFile(m, i) || packedOf(path, m, i) }
		switch m.ModTime().Compare(own.ModTime()) {
		case -1:
			continue
		case 0: // the clock of the file system is coarse
			if same(own) || slices.ContainsFunc(left, same) {
				continue
			}
		}
		return filepath.Join(filepath.Dir(path), m.Name())
	}
	if err != nil {
		return ""
	}
	return path
}

// packedOf says that m is a compressed file made of one that was read: it has its time, and its size within.
func packedOf(path string, m, read fs.FileInfo) bool {
	if filepath.Ext(m.Name()) != packed || !m.ModTime().Equal(read.ModTime()) {
		return false
	}
	n, ok := unpackedSize(filepath.Join(filepath.Dir(path), m.Name()))
	return ok && n == uint32(read.Size())
}

// openMoved opens a file that a rotation moved away, or the log that is written now. One that only calls itself compressed is
// read as it is.
func openMoved(name string) (*os.File, *gzip.Reader, error) {
	f, err := openFile(name)
	if err != nil || filepath.Ext(name) != packed {
		return f, nil, err
	}
	zip, err := gzip.NewReader(f)
	if err != nil {
		return f, nil, nil //nolint:nilerr // there are no records in it, and those after it are wanted
	}
	return f, zip, nil
}

// newest opens the file that a rotation moved away last, if it is not compressed yet; nil: there is none.
func newest(path string) (*os.File, error) {
	m := slices.DeleteFunc(moved(path), func(i fs.FileInfo) bool { return filepath.Ext(i.Name()) == packed })
	if len(m) == 0 {
		return nil, nil
	}
	return openFile(filepath.Join(filepath.Dir(path), m[len(m)-1].Name()))
}

// moved lists the files that rotations left beside path, oldest first. Names alone tell no order: one rotator appends a date,
// another counts up from the newest.
func moved(path string) []fs.FileInfo {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil
	}
	var out []fs.FileInfo
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if !strings.HasPrefix(e.Name(), filepath.Base(path)+".") || ext == unfinished || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil {
			out = append(out, info)
		}
	}
	slices.SortStableFunc(out, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) }) // else by name
	return out
}
