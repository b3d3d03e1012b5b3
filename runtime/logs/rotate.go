package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Containers shows what runs and where it logs to. An engine does.
type Containers interface {
	ListContainers(ctx context.Context, f runtime.Filter) ([]runtime.Container, error)
	Container(ctx context.Context, id string) (runtime.Container, error)
}

// RotatorConfig describes a Rotator. Containers and Reopen are required; every other field works at zero.
type RotatorConfig struct {
	Containers Containers
	Reopen     runtime.LogReopener

	MaxSize  int64         // bytes a log may have before it is rotated; 0: 10 MiB; negative: none ever is
	MaxFiles int           // files of one log, the one being written included; 0: five; at least two
	Interval time.Duration // time between two looks; 0: ten seconds
	Workers  int           // logs rotated, and files compressed, at a time; 0: one

	Log *slog.Logger // nil is silent
}

// Rotator keeps the logs of running containers from growing without end. All methods are safe for concurrent use.
type Rotator struct {
	cfg    RotatorConfig
	log    *slog.Logger
	packer packer

	mu    sync.Mutex        // held while logs are looked at; guards paths
	paths map[string]string // of logs, by container ID: they stay the same as long as a container exists
}

// NewRotator makes a Rotator at rest.
func NewRotator(cfg RotatorConfig) (*Rotator, error) {
	if cfg.Containers == nil || cfg.Reopen == nil {
		return nil, errors.New("logs: Containers and Reopen are required")
	}
	cfg.MaxSize = cmp.Or(cfg.MaxSize, 10<<20)
	cfg.MaxFiles = cmp.Or(cfg.MaxFiles, 5)
	cfg.Interval = cmp.Or(cfg.Interval, 10*time.Second)
	cfg.Workers = cmp.Or(cfg.Workers, 1)
	if cfg.MaxFiles < 2 || cfg.Interval < 0 || cfg.Workers < 0 {
		return nil, fmt.Errorf("logs: MaxFiles (%d) must be two at least, Interval (%v) and Workers (%d) not negative", cfg.MaxFiles, cfg.Interval, cfg.Workers)
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Rotator{
		cfg: cfg, log: log, paths: map[string]string{},
		packer: packer{log: log, room: semaphore.NewWeighted(int64(cfg.Workers)), compress: compress, busy: map[string]bool{}},
	}, nil
}

// Run rotates at each interval, and compresses in between, which holds up no rotation. It returns nil once ctx has ended.
func (r *Rotator) Run(ctx context.Context) error {
	var packing sync.WaitGroup
	defer packing.Wait()
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := r.rotate(ctx, &packing); err != nil && ctx.Err() == nil {
			r.log.Warn("not every log could be looked at; next try at the next round", "err", err)
		}
	}
}

// Rotate looks once at the logs of all running containers, rotates those that are too large, and compresses what was moved away
// before. One that cannot be rotated holds up no other.
func (r *Rotator) Rotate(ctx context.Context) error {
	var packing sync.WaitGroup
	defer packing.Wait()
	return r.rotate(ctx, &packing)
}

// rotate leaves compressing to packing.
func (r *Rotator) rotate(ctx context.Context, packing *sync.WaitGroup) error {
	if r.cfg.MaxSize < 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	running, err := r.cfg.Containers.ListContainers(ctx, runtime.Filter{OnlyAlive: true})
	if err != nil {
		return fmt.Errorf("list the containers that log: %w", err)
	}
	var errs problems
	var work errgroup.Group
	work.SetLimit(r.cfg.Workers)
	paths := make(map[string]string, len(running))
	for i := range running {
		c := &running[i]
		_, seen := r.paths[c.ID]
		path, err := r.path(ctx, c.ID)
		if err != nil {
			errs.add(c, err)
			continue
		}
		if paths[c.ID] = path; path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Size() < r.cfg.MaxSize && seen {
			continue // nearly all, nearly always: no work for others
		}
		work.Go(func() error {
			errs.add(c, r.one(ctx, c, path, packing))
			if !seen {
				errs.add(c, r.clearUp(ctx, path, packing))
			}
			return nil
		})
	}
	_ = work.Wait() // errs has them all
	r.paths = paths
	return errs.all()
}

// problems are what went wrong with containers.
type problems struct {
	mu   sync.Mutex // guards errs
	errs []error
}

func (p *problems) add(c *runtime.Container, err error) {
	if err == nil || errors.Is(err, runtime.ErrNotFound) { // it ended meanwhile
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, fmt.Errorf("log of container %s of pod %s: %w", c.Name, c.Pod, err))
}

func (p *problems) all() error { return errors.Join(p.errs...) }

func (r *Rotator) path(ctx context.Context, id string) (string, error) {
	if path, ok := r.paths[id]; ok {
		return path, nil
	}
	c, err := r.cfg.Containers.Container(ctx, id)
	return c.LogPath, err
}

// one rotates a log if it is large enough. A log that is missing is made anew: somebody removed it, or an agent died between
// moving it away and having it reopened.
func (r *Rotator) one(ctx context.Context, c *runtime.Container, path string, packing *sync.WaitGroup) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := r.cfg.Reopen.ReopenLog(ctx, c.ID); err != nil {
			return fmt.Errorf("reopen a log that is missing: %w", err)
		}
		info, err = os.Stat(path)
	}
	if err != nil || info.Size() < r.cfg.MaxSize {
		return err
	}
	plain, err := r.makeRoom(path, r.cfg.MaxFiles-2)
	if err != nil {
		r.log.Warn("rotated logs could not be removed", "container", c.Name, "pod", c.Pod.Name, "namespace", c.Pod.Namespace, "err", err)
	}
	defer func() { r.packer.add(ctx, packing, plain) }() // after the log was moved away: it may grow faster than that goes
	moved, err := move(path, time.Now())
	if err != nil {
		return err
	}
	if err := r.cfg.Reopen.ReopenLog(ctx, c.ID); err != nil {
		return errors.Join(fmt.Errorf("reopen: %w", err), putBack(moved, path))
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) { // it goes on in the old file, which would be compressed and removed
		return errors.Join(fmt.Errorf("reopen: the runtime says that it did, but there is no %s", path), putBack(moved, path))
	}
	r.log.Debug("rotated a log", "container", c.Name, "pod", c.Pod.Name, "namespace", c.Pod.Namespace, "bytes", info.Size())
	return nil
}

// clearUp ends what an agent before this one began, and what may wait long for the next rotation. It leaves the newest file: the
// runtime may just have been told to go on in another.
func (r *Rotator) clearUp(ctx context.Context, path string, packing *sync.WaitGroup) error {
	plain, err := r.makeRoom(path, r.cfg.MaxFiles-1)
	r.packer.add(ctx, packing, plain[:max(len(plain)-1, 0)])
	if errors.Is(err, fs.ErrNotExist) { // there are no logs to clear up
		return nil
	}
	return err
}

// makeRoom removes rotated files beside path but for the newest keep of them, and answers those that stay and are to be
// compressed: nobody writes to them any more since the log was last reopened.
func (r *Rotator) makeRoom(path string, keep int) (plain []string, err error) {
	names, err := rotated(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	remove, pack := sortOut(r.packer.others(dir, names), keep)
	var errs []error
	for _, n := range remove {
		if err := os.Remove(filepath.Join(dir, n)); !errors.Is(err, fs.ErrNotExist) { // it was just compressed
			errs = append(errs, err)
		}
	}
	for _, n := range pack {
		plain = append(plain, filepath.Join(dir, n))
	}
	return plain, errors.Join(errs...)
}
