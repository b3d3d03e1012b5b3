package logs

import (
	"compress/gzip"
	"context"
	"errors"
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
	next, err := successor(f.path, r.src.file, f.left)
	if err != nil {
		return err
	}
	if info, err = r.src.file.Stat(); err != nil {
		return err
	}
	if r.src.zip == nil && info.Size() > r.src.at {
		return nil // written after the end was met, and before it was moved away
	}
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

// successor names the file that was written after the one that was read: what a rotation moved away since, or the one at path.
// left are files read before it. Empty: there is none yet.
func successor(path string, file *os.File, left []fs.FileInfo) (string, error) {
	live, liveErr := os.Stat(path)
	others := moved(path)
	own, err := file.Stat() // after the others: whatever was made of it, it is the same as that
	if err != nil {
		return "", err
	}
	if liveErr == nil && os.SameFile(live, own) {
		return "", nil
	}
	for _, m := range others {
		was := func(i fs.FileInfo) bool { // the number of a file that is gone is soon another's
			return m.ModTime().Equal(i.ModTime()) && (os.SameFile(m, i) || packedOf(path, m, i))
		}
		if m.ModTime().Before(own.ModTime()) || os.SameFile(m, own) || was(own) || slices.ContainsFunc(left, was) {
			continue
		}
		return filepath.Join(filepath.Dir(path), m.Name()), nil
	}
	if liveErr == nil {
		return path, nil
	}
	return "", nil
}

// packedOf says that m is a compressed file made of one that was read.
func packedOf(path string, m, read fs.FileInfo) bool {
	return filepath.Ext(m.Name()) == packed && originOf(filepath.Join(filepath.Dir(path), m.Name())) == origin(read)
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
	for range 10 {
		if list, whole := listMoved(path); whole {
			return list
		}
	}
	return nil
}

// listMoved lists them once. A file that vanishes meanwhile may have got another name that is not in the list: it is not whole.
func listMoved(path string) (out []fs.FileInfo, whole bool) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, true
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), filepath.Base(path)+".") || filepath.Ext(e.Name()) == unfinished || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false
		}
		if err == nil {
			out = append(out, info)
		}
	}
	slices.SortStableFunc(out, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) }) // else by name
	return out, true
}
