package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Names of streams, for [Options].Stream.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Options choose what is read. The zero value is everything that is in the file now.
type Options struct {
	Tail   int64     // the last so many lines, also of the file that was moved away last; 0: all of the file; negative: none, only what is new
	Limit  int64     // give out so many bytes, then end, even within a line; 0 or negative: no limit
	Since  time.Time // only lines not older; zero: all
	Stream string    // Stdout or Stderr; empty: both, as they come

	Timestamps bool // each line begins with its time, RFC 3339 with nine digits, and a space

	// Follow waits for more at the end of the file, until Done says that the container has ended and all it
	// wrote is read, or the context of Open ends. Done is asked at the end of the file, at most once a second,
	// by the goroutine that reads; nil: it never ends by itself.
	Follow bool
	Done   func() bool
}

// Open opens the log file at path. A file that does not exist is runtime.ErrNotFound, unless it was moved away by a
// rotation a moment ago: then the moved one is read. A symlink is resolved once.
//
// The reader is for one goroutine, but Close may be called by another one and ends a Read that waits. Read reports the
// cause of ctx when that ends first, and io.EOF at the end. Without Follow the end is where the file ended when it was
// opened. Nothing is read ahead: who does not read, holds an open file and no more.
func Open(ctx context.Context, path string, o Options) (io.ReadCloser, error) {
	if o.Stream != "" && o.Stream != Stdout && o.Stream != Stderr {
		return nil, fmt.Errorf("read log %s: unknown stream %q", path, o.Stream)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	r := &reader{ctx: ctx, path: path, limit: o.Limit, lines: joiner{o: o}, closed: make(chan struct{})}
	if o.Follow {
		r.follow = newFollower(path, o.Done) // before the file is opened: no change is missed
	}
	if err := r.open(o); err != nil {
		_ = r.Close() // nothing was read
		return nil, fmt.Errorf("read log %s: %w", path, err)
	}
	return r, nil
}

// reader is what Open gives.
type reader struct {
	ctx    context.Context
	path   string
	limit  int64 // bytes still to be given out; 0 or negative: no limit
	src    source
	then   *source // read after src, which is the file that was moved away before; nil: there is none
	lines  joiner
	out    []byte    // of lines.out, not read yet
	follow *follower // nil: do not
	err    error     // sticky

	mu     sync.Mutex // guards src: Close may come at any time
	once   sync.Once
	closed chan struct{}
}

func (r *reader) open(o Options) error {
	f, err := openFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = newest(r.path); f == nil && err == nil {
			err = runtime.ErrNotFound
		}
	}
	if err != nil {
		return err
	}
	r.src = source{file: f, end: -1}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !o.Follow {
		r.src.end = info.Size()
	}
	if o.Tail == 0 {
		return nil
	}
	m, err := tail(f, info.Size(), o.Tail, o.Stream)
	r.src.at = m.at
	if err == nil && m.have < o.Tail {
		if before, earlier := r.before(info, o, m.have); before != nil {
			live := r.src
			live.at = 0
			r.src, r.then, m = source{file: before, at: earlier.at, end: -1}, &live, earlier
		}
	}
	for i, n := range m.skip {
		r.lines.lines[i].skip = n
	}
	return err
}

// before is the file that was moved away last, if it has wanted lines: who asks for the last hundred soon after a rotation wants no
// less. nil: it has none, or is compressed already.
func (r *reader) before(live fs.FileInfo, o Options, have int64) (*os.File, mark) {
	names, err := rotated(r.path)
	if err != nil || len(names) == 0 {
		return nil, mark{}
	}
	f, err := openFile(filepath.Join(filepath.Dir(r.path), slices.Max(names)))
	if err != nil {
		return nil, mark{}
	}
	info, err := f.Stat()
	if err == nil && filepath.Ext(f.Name()) != packed && filepath.Ext(f.Name()) != unfinished && !os.SameFile(info, live) {
		if m, err := tail(f, info.Size(), o.Tail-have, o.Stream); err == nil && m.have > 0 {
			return f, m
		}
	}
	_ = f.Close() // it was only read
	return nil, mark{}
}

// openFile opens a regular file for reading. Anything else is refused: a pipe would hold us for ever.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close() // nothing was written
		return nil, errors.Join(errors.New("not a regular file"), err)
	}
	return f, nil
}

// Close ends the reader.
func (r *reader) Close() error {
	r.once.Do(func() {
		close(r.closed)
		if r.follow != nil {
			r.follow.close()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.src.file != nil {
			_ = r.src.file.Close() // it was only read
		}
		if r.then != nil {
			_ = r.then.file.Close() // likewise
		}
	})
	return nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.out) == 0 && len(p) > 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.err = r.fill()
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// fill reads until there is something to give out. An error may come together with the last of it.
func (r *reader) fill() error {
	r.lines.out = r.lines.out[:0]
	for {
		err := r.scan()
		if errors.Is(err, io.EOF) && r.goesOn() {
			continue
		}
		if errors.Is(err, io.EOF) && r.follow != nil {
			if r.lines.flushAll(); len(r.lines.out) > 0 {
				return r.give(nil)
			}
			if err = r.follow.wait(r); err == nil {
				continue
			}
		}
		if errors.Is(err, io.EOF) {
			r.lines.add(r.src.rest(), !r.src.mid, false)
		}
		if err != nil {
			r.lines.flushAll()
		}
		return r.give(err)
	}
}

// scan brings pieces from the file to the joiner, as long as there are some and the reader's hunger.
func (r *reader) scan() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.over(); err != nil {
		return err
	}
	for len(r.lines.out) < blockSize/2 {
		piece, first, last, err := r.src.next()
		if err != nil {
			return err
		}
		r.lines.add(piece, first, last)
	}
	return nil
}

// goesOn turns from the file that was moved away to the one behind it, if that is where it is.
func (r *reader) goesOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.then == nil {
		return false
	}
	if info, err := r.src.file.Stat(); err == nil && r.follow != nil {
		r.follow.left = append(r.follow.left, info) // it may be as old as the one behind it
	}
	r.turned(r.then.file, nil)
	r.src.end, r.then = r.then.end, nil
	return true
}

// over is why nobody wants to read any more, nil if somebody does.
func (r *reader) over() error {
	select {
	case <-r.closed:
		return fs.ErrClosed
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	default:
		return nil
	}
}

// turn goes on with file f, which may be the same one from its beginning. The line that was left unfinished ends.
func (r *reader) turn(f *os.File, zip *gzip.Reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turned(f, zip)
}

func (r *reader) turned(f *os.File, zip *gzip.Reader) {
	if rest := r.src.rest(); len(rest) > 0 || r.src.mid {
		r.lines.add(rest, !r.src.mid, true)
	}
	r.src.turn(f, zip)
}

// give makes what the joiner has readable, within the limit.
func (r *reader) give(err error) error {
	r.out = r.lines.out
	if r.limit <= 0 {
		return err
	}
	if r.limit -= int64(len(r.out)); r.limit <= 0 {
		r.out = r.out[:int64(len(r.out))+r.limit]
		return io.EOF
	}
	return err
}

// LastLines returns the end of a log: at most so many lines and bytes, both streams.
func LastLines(path string, lines, bytes int) (string, error) {
	if lines <= 0 || bytes <= 0 {
		return "", nil
	}
	r, err := Open(context.Background(), path, Options{Tail: int64(lines)})
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }() // it was only read
	var last []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		last = append(last, buf[:n]...)
		if cut := len(last) - bytes; cut > 0 {
			last = append(last[:0], last[cut:]...)
		}
		if errors.Is(err, io.EOF) {
			return strings.ToValidUTF8(string(last), ""), nil
		}
		if err != nil {
			return "", fmt.Errorf("read log %s: %w", path, err)
		}
	}
}
