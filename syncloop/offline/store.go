package offline

import (
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	v1 "k8s.io/api/core/v1"
)

const retryAfter = 10 * time.Second // a write that failed

// store is the directory. Methods are safe for concurrent use.
type store struct {
	dir     string
	seal    cipher.AEAD // nil: no key
	log     *slog.Logger
	metrics metrics
	fault   func(what, name string) error // nil but in tests: fails before something is done

	disk sync.Mutex // held while files are written or removed; taken before mu

	mu      sync.Mutex // guards the rest
	queue   map[string]body
	sums    map[string][sha256.Size]byte // of what a file holds
	files   map[string]bool              // that exist, as far as is known
	bell    chan struct{}
	trouble string // that was logged
}

// body is what is to be written.
type body struct {
	text   []byte
	sealed bool
}

func newStore(dir string, seal cipher.AEAD, log *slog.Logger, m metrics) *store {
	return &store{
		dir: dir, seal: seal, log: log, metrics: m, bell: make(chan struct{}, 1),
		queue: map[string]body{}, sums: map[string][sha256.Size]byte{}, files: map[string]bool{},
	}
}

// load reads the directory and answers the pods. Whatever is wrong is told and left out.
func (s *store) load() (pods []*v1.Pod) {
	s.disk.Lock()
	defer s.disk.Unlock()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		s.fails(fmt.Errorf("make the directory: %w", err))
		return nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.fails(fmt.Errorf("read the directory: %w", err))
		return nil
	}
	shut := map[error]int{}
	for _, e := range entries {
		name := e.Name()
		if temporary(name) {
			_ = os.Remove(filepath.Join(s.dir, name))
			continue
		}
		if _, ours := owner(name); !ours {
			continue
		}
		s.mu.Lock()
		s.files[name] = true
		s.mu.Unlock()
		if strings.HasSuffix(name, damagedSuffix) {
			continue
		}
		text, err := s.read(name)
		if errors.Is(err, errOtherKey) || errors.Is(err, errNoKey) {
			shut[err]++
		}
		if err != nil || !isPod(name) {
			continue
		}
		pod := new(v1.Pod)
		if err := json.Unmarshal(text, pod); err != nil || podFile(pod.UID) != name {
			s.setAside(name, fmt.Errorf("%w: it holds another thing than the pod it is named for", errDamaged))
			continue
		}
		if remembered(pod) {
			pods = append(pods, pod)
		}
	}
	for err, n := range shut {
		s.log.Error("Secrets and tokens that were kept cannot be used; pods that need them wait for the API server", "dir", s.dir, "files", n, "err", "each "+err.Error())
	}
	return pods
}

// temporary says that a file is what is left of a write that was cut.
func temporary(name string) bool {
	hidden, is := strings.CutPrefix(name, ".")
	return is && slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(hidden, kind+"-") })
}

// has says that something of that name is there, as far as is known without a look.
func (s *store) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, queued := s.queue[name]
	return queued || s.files[name]
}

// get reads what is kept into v. What is not kept is fs.ErrNotExist.
func (s *store) get(name string, v any) error {
	s.mu.Lock()
	b, queued := s.queue[name]
	s.mu.Unlock()
	text := b.text
	if !queued {
		s.disk.Lock()
		defer s.disk.Unlock()
		var err error
		if text, err = s.read(name); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("file %s: %w: %w", filepath.Join(s.dir, name), errDamaged, err)
	}
	return nil
}

// read is the body of a file. A damaged one is set aside. The disk is held.
func (s *store) read(name string) ([]byte, error) {
	path := filepath.Join(s.dir, name)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(b) > maxBytes {
		err = fmt.Errorf("%w: it has more than %d MiB", errDamaged, maxBytes>>20)
	}
	var text []byte
	if err == nil {
		text, err = decode(name, b, s.seal)
	}
	switch {
	case errors.Is(err, errOtherKey), errors.Is(err, errNoKey):
		return nil, err
	case err != nil:
		s.setAside(name, err)
		return nil, fmt.Errorf("file %s: %w", path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name], s.sums[name] = true, sha256.Sum256(text)
	return text, nil
}

// setAside takes a file out of the way and tells so. The disk is held.
func (s *store) setAside(name string, why error) {
	s.metrics.damaged.Record(1)
	path := filepath.Join(s.dir, name)
	s.log.Error("a remembered object cannot be used and is set aside; it is kept anew when the API server answers", "file", path+damagedSuffix, "err", why)
	err := s.failing("rename", name)
	if err == nil {
		err = os.Rename(path, path+damagedSuffix)
	}
	if err != nil {
		s.fails(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, name)
	delete(s.sums, name)
	s.files[name+damagedSuffix] = true
}

// put has something kept, soon. Nothing happens when that is what the file holds.
func (s *store) put(name string, v any, sealed bool) {
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxBytes/2 {
		err = errors.New("it is too large")
	}
	if err != nil {
		s.log.Error("an object cannot be remembered", "file", filepath.Join(s.dir, name), "err", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, queued := s.queue[name]; !queued && s.files[name] && s.sums[name] == sha256.Sum256(text) {
		return
	}
	s.queue[name] = body{text, sealed}
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// drop forgets one thing, on disk too.
func (s *store) drop(name string) {
	if s.has(name) {
		s.remove(func(n string) bool { return n == name })
	}
}

// sweep forgets all that is not to be kept, on disk too.
func (s *store) sweep(keep map[string]bool) {
	s.remove(func(name string) bool {
		of, _ := owner(name)
		return !keep[of]
	})
}

func (s *store) remove(which func(name string) bool) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	var gone []string
	for name := range s.files {
		if which(name) {
			gone = append(gone, name)
		}
	}
	maps.DeleteFunc(s.queue, func(name string, _ body) bool { return which(name) })
	s.mu.Unlock()
	slices.Sort(gone)
	slices.SortStableFunc(gone, func(a, b string) int { // pods first: that they are over matters most, should this be cut
		switch {
		case isPod(a) == isPod(b):
			return 0
		case isPod(a):
			return -1
		}
		return 1
	})
	for _, name := range gone {
		err := s.failing("remove", name)
		if err == nil {
			err = os.Remove(filepath.Join(s.dir, name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.fails(err) // it is tried again with the next set
			continue
		}
		s.mu.Lock()
		delete(s.files, name)
		delete(s.sums, name)
		s.mu.Unlock()
	}
	if len(gone) > 0 {
		s.flushDir()
	}
}

// run writes what is queued until ctx ends, then tries what is left once more.
func (s *store) run(ctx context.Context) {
	for {
		retry := s.write()
		if ctx.Err() != nil {
			return
		}
		bell, again := s.bell, (<-chan time.Time)(nil)
		if retry { // what comes meanwhile waits too: it would hardly fare better
			bell, again = nil, time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
		case <-bell:
		case <-again:
		}
	}
}

// write writes what is queued. It says whether some of it must be tried again.
func (s *store) write() (retry bool) {
	failed, tried := map[string]bool{}, 0
	for s.writeOne(failed) {
		tried++
	}
	if tried > 0 && len(failed) == 0 {
		s.works()
	}
	return len(failed) > 0
}

// writeOne writes one of what is queued and has not failed; false says that there is none.
func (s *store) writeOne(failed map[string]bool) bool {
	s.disk.Lock()
	defer s.disk.Unlock()
	name, b, ok := s.pick(failed)
	if !ok {
		return false
	}
	if err := s.writeFile(name, b); err != nil {
		failed[name] = true
		s.fails(err)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name], s.sums[name] = true, sha256.Sum256(b.text)
	if now := s.queue[name]; string(now.text) == string(b.text) { // else it is another one by now
		delete(s.queue, name)
	}
	return true
}

// pick is something to be written.
func (s *store) pick(but map[string]bool) (name string, b body, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, body := range s.queue {
		if !but[n] && (!ok || n < name) {
			name, b, ok = n, body, true
		}
	}
	return name, b, ok
}

func (s *store) writeFile(name string, b body) error {
	if err := s.failing("write", name); err != nil {
		return err
	}
	seal := s.seal
	if !b.sealed {
		seal = nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(s.dir, name)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(s.dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup() //nolint:errcheck // nothing is left after a success
	if _, err := f.Write(encode(name, b.text, seal)); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	s.flushDir()
	return nil
}

// flushDir makes new and removed names outlive a loss of power.
func (s *store) flushDir() {
	d, err := os.Open(s.dir)
	if err != nil {
		return
	}
	defer d.Close()
	_ = d.Sync() // some file systems have no way to
}

func (s *store) failing(what, name string) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(what, name)
}

// fails tells of trouble with the disk, once until it works again.
func (s *store) fails(err error) {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err // the same for every file
	}
	s.mu.Lock()
	news := s.trouble == ""
	s.trouble = err.Error()
	s.mu.Unlock()
	if news {
		s.log.Error("what this node does cannot be remembered; a reboot without an API server would find what was remembered before, see that the directory can be written", "dir", s.dir, "err", err)
	}
}

// works notes that all could be written.
func (s *store) works() {
	s.mu.Lock()
	before := s.trouble
	s.trouble = ""
	s.mu.Unlock()
	if before != "" {
		s.log.Info("what this node does is remembered again", "dir", s.dir)
	}
}
