package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Names of the files of one sandbox or container. A directory without a config is one that was being made or removed.
const (
	configFile  = "config.json"
	stoppedFile = "stopped.json" // of a sandbox
	launchFile  = "launch.json"  // that an agent began to have it started
	shimFile    = "shim.json"    // who starts and keeps a container; it is written once, so a container starts once
	startedFile = "started.json"
	exitFile    = "exit.json"
)

// sandboxRecord is a sandbox as it was made.
type sandboxRecord struct {
	ID      string                `json:"id"`
	Boot    string                `json:"boot"`
	Created time.Time             `json:"created"`
	Config  runtime.SandboxConfig `json:"config"`
}

// containerRecord is a container as it was made, and what its shim needs to know.
type containerRecord struct {
	ID      string                  `json:"id"`
	Sandbox string                  `json:"sandbox"`
	Created time.Time               `json:"created"`
	Config  runtime.ContainerConfig `json:"config"`
	LogPath string                  `json:"logPath,omitempty"`
	Command []string                `json:"command"`
	Dir     string                  `json:"dir"`
	Env     []string                `json:"env"`
}

// launch says that an agent began to have a container started.
type launch struct {
	Boot string    `json:"boot"`
	At   time.Time `json:"at"`
}

// started says that a container's first process runs.
type started struct {
	Process ident     `json:"process"`
	At      time.Time `json:"at"`
}

// exit says how a container ended.
type exit struct {
	At      time.Time `json:"at"`
	Code    int32     `json:"code"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// ident names a process for good: pids are given away again, but not at the same time since the same boot.
type ident struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since the boot
	Boot  string `json:"boot"`
}

func newID() string {
	return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
}

// validID keeps what is no ID from leading out of Root.
func validID(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

func (e *Engine) path(kind, id string, file ...string) string {
	return filepath.Join(append([]string{e.cfg.Root, kind, id}, file...)...)
}

// writeFile makes a file whole or not at all.
func writeFile(path string, b []byte) error {
	tmp, err := temporary(path, b)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		os.Remove(tmp)
		return err
	}
	return nil
}

// writeOnce is writeFile for a file that must not be there yet; else the error is fs.ErrExist.
func writeOnce(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp, err := temporary(path, b)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	return os.Link(tmp, path)
}

// temporary is a file with that content beside path, on disk.
func temporary(path string, b []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// readFile reads a file of ours; ok is false when it is not there.
func readFile(path string, v any) (ok bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

// ids are the sandboxes or containers there are.
func (e *Engine) ids(kind string) ([]string, error) {
	entries, err := os.ReadDir(e.path(kind, ""))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	var out []string
	for _, d := range entries {
		if e.exists(kind, d.Name()) {
			out = append(out, d.Name())
		}
	}
	return out, nil
}

// record reads what something was made from. It is ErrNotFound once that is removed, whoever did it.
func record[R any](e *Engine, memory map[string]*R, kind, id string) (*R, error) {
	notFound := fmt.Errorf("%s %q: %w", kind[:len(kind)-1], id, runtime.ErrNotFound)
	if !validID(id) {
		return nil, notFound
	}
	if !e.exists(kind, id) {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(memory, id)
		delete(e.ended, id)
		return nil, notFound
	}
	e.mu.Lock()
	r := memory[id]
	e.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r = new(R)
	if ok, err := readFile(e.path(kind, id, configFile), r); err != nil {
		return nil, err
	} else if !ok {
		return nil, notFound
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	memory[id] = r
	return r, nil
}

func (e *Engine) sandbox(id string) (*sandboxRecord, error) {
	return record(e, e.frames, "sandboxes", id)
}

func (e *Engine) container(id string) (*containerRecord, error) {
	return record(e, e.known, "containers", id)
}

// all reads the records of a kind. One that cannot be read is logged and left out: it hides no other.
func all[R any](e *Engine, memory map[string]*R, kind string) ([]*R, error) {
	ids, err := e.ids(kind)
	if err != nil {
		return nil, err
	}
	out := make([]*R, 0, len(ids))
	for _, id := range ids {
		switch r, err := record(e, memory, kind, id); {
		case err == nil:
			out = append(out, r)
		case !errors.Is(err, runtime.ErrNotFound):
			e.cfg.Observe.Logger().Error("a record of the engine cannot be read and is left out", "err", err)
		}
	}
	return out, nil
}

// keep writes a record. The caller holds the lock of Root.
func (e *Engine) keep(kind, id string, r any) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(e.path(kind, id), dirMode()); err != nil {
		return err
	}
	return writeFile(e.path(kind, id, configFile), b)
}

// drop removes a record, then all that belongs to it. The caller holds the lock of Root.
func (e *Engine) drop(kind, id string) error {
	if err := os.Remove(e.path(kind, id, configFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A shim that was asked to start before may only now come to it: out of its way first.
	away := e.path(kind, "."+id)
	if err := os.Rename(e.path(kind, id), away); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(away)
}

// tidy removes what is left of things whose making or removal was cut off. The caller holds the lock of Root.
func (e *Engine) tidy() {
	for _, kind := range []string{"sandboxes", "containers"} {
		entries, err := os.ReadDir(e.path(kind, ""))
		if err != nil {
			continue
		}
		for _, d := range entries {
			if !e.exists(kind, d.Name()) {
				os.RemoveAll(e.path(kind, d.Name()))
			}
		}
	}
	told, _ := os.ReadDir(e.path("changes", "")) // those that stay cost nothing
	for _, d := range told {
		if !e.exists("sandboxes", d.Name()) && !e.exists("containers", d.Name()) {
			os.Remove(e.path("changes", d.Name()))
		}
	}
}

func (e *Engine) exists(kind, id string) bool {
	_, err := os.Stat(e.path(kind, id, configFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// exclusive does something that no other engine over this Root does at the same time.
func (e *Engine) exclusive(ctx context.Context, do func() error) error {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	f, err := os.OpenFile(filepath.Join(e.cfg.Root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() // gives the lock back
	var d time.Duration
	for {
		if ok, err := tryLock(f); err != nil {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		} else if ok {
			return do()
		}
		if err := pause(ctx, &d); err != nil {
			return err
		}
	}
}

// changed lets all engines over this Root tell of a change.
func changed(root, id string) {
	_ = os.WriteFile(filepath.Join(root, "changes", id), nil, 0o600) // a change nobody hears of is found by listing
}
