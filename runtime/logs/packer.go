package logs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
)

// packer compresses files that were moved away, beside rotations: a log that is written faster than it can be compressed has to be
// moved away all the same.
type packer struct {
	log      *slog.Logger
	room     *semaphore.Weighted
	compress func(ctx context.Context, path string) error

	mu   sync.Mutex // guards busy
	busy map[string]bool
}

// add compresses files in the background, each once; a file that somebody removes meanwhile is done with.
func (p *packer) add(ctx context.Context, work *sync.WaitGroup, paths []string) {
	for _, path := range paths {
		p.mu.Lock()
		taken := p.busy[path]
		p.busy[path] = true
		p.mu.Unlock()
		if taken {
			continue
		}
		work.Go(func() {
			p.one(ctx, path)
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.busy, path)
		})
	}
}

func (p *packer) one(ctx context.Context, path string) {
	if p.room.Acquire(ctx, 1) != nil {
		return // the next rotation comes back to it
	}
	defer p.room.Release(1)
	if err := p.compress(ctx, path); err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
		p.log.Warn("a rotated log could not be compressed; next try at its next rotation", "file", path, "err", err)
	}
}

// others are the names in a directory without those of files that are just being made.
func (p *packer) others(dir string, names []string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(names, func(n string) bool {
		of, ok := strings.CutSuffix(n, packed+unfinished)
		return ok && p.busy[filepath.Join(dir, of)]
	})
}

// until reads as long as nobody wants to stop.
type until struct {
	ctx context.Context
	io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(b)
}
