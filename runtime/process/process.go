package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Config describes an Engine. Root is required.
type Config struct {
	Root string // state; it must outlive the program, and the pods' processes while they run

	Shim string          // a program that calls Shim first thing in its main; empty: this program
	IPs  func() []string // addresses pods have: this host's, the primary one first; nil: 127.0.0.1

	Observe observe.To
}

// Engine runs containers as host processes. All methods are safe for concurrent use.
type Engine struct {
	cfg  Config
	boot string        // of the kernel: sandboxes do not outlive it
	turn chan struct{} // has room for the one call of this engine that may wait for the lock of Root

	mu     sync.Mutex // guards the rest
	opened bool
	known  map[string]*containerRecord // containers never change
	ended  map[string]life             // nor do ends
	frames map[string]*sandboxRecord
	starts map[string]bool // containers that this engine is starting
}

var (
	_ runtime.Engine      = (*Engine)(nil)
	_ runtime.Notifier    = (*Engine)(nil)
	_ runtime.LogReopener = (*Engine)(nil)
	_ runtime.Stats       = (*Engine)(nil)
)

// New makes an engine at rest. Two engines over one root show the same.
func New(cfg Config) (*Engine, error) {
	switch {
	case !supported:
		return nil, fmt.Errorf("process: containers as host processes need Linux: %w", errors.ErrUnsupported)
	case cfg.Root == "":
		return nil, errors.New("process: Root is required")
	case os.Getenv(shimDir) != "":
		return nil, errors.New("process: this program was started as a container's shim, but does not call process.Shim first thing in main")
	}
	var err error
	if cfg.Root, err = filepath.Abs(cfg.Root); err != nil {
		return nil, fmt.Errorf("process: find Root: %w", err)
	}
	if cfg.IPs == nil {
		cfg.IPs = func() []string { return []string{"127.0.0.1"} }
	}
	cfg.Shim = cmp.Or(cfg.Shim, ownProgram)
	return &Engine{
		cfg: cfg, boot: bootID(), turn: make(chan struct{}, 1),
		known: map[string]*containerRecord{}, ended: map[string]life{}, frames: map[string]*sandboxRecord{},
		starts: map[string]bool{},
	}, nil
}

// version of the files in Root.
const version = "1"

// begin is the beginning of every call: it makes sure of the context, and of the directories.
func (e *Engine) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opened {
		return nil
	}
	for _, dir := range []string{"", "sandboxes", "containers", "changes"} {
		if err := os.MkdirAll(filepath.Join(e.cfg.Root, dir), dirMode()); err != nil {
			return fmt.Errorf("open engine state: %w", err)
		}
	}
	path := filepath.Join(e.cfg.Root, "version")
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		have, err = []byte(version), writeFile(path, []byte(version))
	}
	if err != nil {
		return fmt.Errorf("open engine state: %w", err)
	}
	if v := strings.TrimSpace(string(have)); v != version {
		return fmt.Errorf("the engine state in %s has version %q, this program knows version %s: use the program that made it, or remove it when nothing of it runs", e.cfg.Root, v, version)
	}
	e.opened = true
	return nil
}

// dirMode lets other users pass, not look, where containers may be other users.
func dirMode() fs.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// Info says that the engine is ready once its directory can be used.
func (e *Engine) Info(ctx context.Context) (runtime.Info, error) {
	info := runtime.Info{
		Name: "process", Version: version, Handlers: []runtime.Handler{{}},
		Ready: runtime.Condition{OK: true}, Network: runtime.Condition{OK: true},
	}
	switch err := e.begin(ctx); {
	case ctx.Err() != nil:
		return runtime.Info{}, err
	case err != nil:
		info.Ready = runtime.Condition{Reason: "StateUnusable", Message: err.Error()}
	}
	return info, nil
}

// host is the image that is no directory.
const host = "host"

// Image finds "host", and directories by their absolute path. They run as the agent's user.
func (e *Engine) Image(ctx context.Context, ref string) (runtime.Image, error) {
	if err := ctx.Err(); err != nil {
		return runtime.Image{}, err
	}
	if ref != host {
		if !filepath.IsAbs(ref) {
			return runtime.Image{}, fmt.Errorf("image %q is neither the word host nor the absolute path of a directory: %w", ref, runtime.ErrNotFound)
		}
		if info, err := os.Stat(ref); err != nil || !info.IsDir() {
			return runtime.Image{}, fmt.Errorf("image %q: no such directory: %w", ref, runtime.ErrNotFound)
		}
	}
	return runtime.Image{ID: ref, Tags: []string{ref}, UID: new(int64(os.Geteuid())), Pinned: true}, nil
}

// PullImage answers errors.ErrUnsupported: there is nowhere to pull from.
func (e *Engine) PullImage(_ context.Context, r runtime.PullRequest) (string, error) {
	return "", fmt.Errorf("pull image %q: containers here are host processes, and an image is a directory or the word host: %w", r.Image, errors.ErrUnsupported)
}

// ListImages answers errors.ErrUnsupported: any directory may be an image.
func (e *Engine) ListImages(context.Context) ([]runtime.Image, error) {
	return nil, fmt.Errorf("list images: any directory may be one: %w", errors.ErrUnsupported)
}

// RemoveImage answers errors.ErrUnsupported: directories are not the engine's to remove.
func (e *Engine) RemoveImage(_ context.Context, id string) error {
	return fmt.Errorf("remove image %q: directories are not the engine's: %w", id, errors.ErrUnsupported)
}

// ImageFS is the file system of Root, on which no images lie.
func (e *Engine) ImageFS(ctx context.Context) ([]runtime.FSUsage, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	return []runtime.FSUsage{{Mountpoint: e.cfg.Root}}, nil
}

// UpdateSandbox answers errors.ErrUnsupported: nothing is held to limits.
func (e *Engine) UpdateSandbox(context.Context, string, runtime.Resources, runtime.Resources) error {
	return fmt.Errorf("change the limits of host processes: %w", errors.ErrUnsupported)
}

// UpdateContainer answers errors.ErrUnsupported: nothing is held to limits.
func (e *Engine) UpdateContainer(context.Context, string, runtime.Resources) error {
	return fmt.Errorf("change the limits of host processes: %w", errors.ErrUnsupported)
}

// pause waits between two looks at something that takes time, a little longer each time.
func pause(ctx context.Context, d *time.Duration) error {
	*d = min(max(*d*3/2, 2*time.Millisecond), 50*time.Millisecond)
	t := time.NewTimer(*d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
