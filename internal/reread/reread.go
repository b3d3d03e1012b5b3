// Package reread keeps what files say that somebody else writes anew now and then, such as certificates.
package reread

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"time"
)

// Every is the time between two looks at files. A look costs a few microseconds, so it needs no watch.
const Every = 5 * time.Second

// Config describes Files. Parse is required.
type Config[T any] struct {
	Paths []string
	Parse func(texts [][]byte) (T, error) // of the files, in their order

	Changed func(T)     // called with each good content after the first; nil: nobody listens
	Bad     func(error) // called when the files have become bad, once for the same error; nil: nobody listens
}

// Files are looked at when somebody asks, at most every five seconds. While they are bad or half written, their last good
// content holds. Nothing runs. Current is safe for concurrent use.
type Files[T any] struct {
	cfg Config[T]

	mu     sync.Mutex // guards the rest
	looked time.Time
	texts  [][]byte // of good
	good   T
	broken string // the last error that was told
}

// Open reads the files. Bad ones are an error.
func Open[T any](cfg Config[T]) (*Files[T], error) {
	f := &Files[T]{cfg: cfg}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Current is the newest good content. It calls Changed and Bad, which must not call it.
func (f *Files[T]) Current() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < Every {
		return f.good
	}
	changed, err := f.read()
	switch {
	case err == nil:
		f.broken = ""
		if changed && f.cfg.Changed != nil {
			f.cfg.Changed(f.good)
		}
	case err.Error() != f.broken:
		f.broken = err.Error()
		if f.cfg.Bad != nil {
			f.cfg.Bad(err)
		}
	}
	return f.good
}

// read looks at the files. Bad ones leave the good content.
func (f *Files[T]) read() (changed bool, err error) {
	f.looked = time.Now()
	texts := make([][]byte, len(f.cfg.Paths))
	for i, path := range f.cfg.Paths {
		if texts[i], err = os.ReadFile(path); err != nil {
			return false, err
		}
	}
	if f.texts != nil && slices.EqualFunc(texts, f.texts, bytes.Equal) {
		return false, nil
	}
	good, err := f.cfg.Parse(texts)
	if err != nil {
		return false, err
	}
	f.texts, f.good = texts, good
	return true, nil
}
