package logs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// writer is a runtime with one container that logs.
type writer struct {
	t    testing.TB
	path string

	mu     sync.Mutex // guards the rest
	file   *os.File
	looks  int
	opened int
	refuse error
	half   bool // refuse only after the new file was made
	idle   bool // does nothing, and says that it did
}

func newWriter(t testing.TB) *writer {
	t.Helper()
	w := &writer{t: t, path: filepath.Join(t.TempDir(), "0.log")}
	if err := w.ReopenLog(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.file.Close() })
	return w
}

func (w *writer) ListContainers(_ context.Context, f runtime.Filter) ([]runtime.Container, error) {
	if !f.OnlyAlive {
		w.t.Error("logs of dead containers do not grow")
	}
	return []runtime.Container{{ID: "c", Name: "app"}}, nil
}

func (w *writer) Container(context.Context, string) (runtime.Container, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	return runtime.Container{ID: "c", LogPath: w.path}, nil
}

func (w *writer) ReopenLog(context.Context, string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened++
	if w.idle || w.refuse != nil && !w.half {
		return w.refuse
	}
	f, err := os.OpenFile(w.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if w.file != nil {
		_ = w.file.Close()
	}
	w.file = f
	return w.refuse
}

func (w *writer) reopened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened
}

// full says that the log has so many bytes.
func (w *writer) full(size int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err := w.file.Stat()
	return err == nil && info.Size() >= size
}

func (w *writer) write(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.file.Write(b); err != nil {
		w.t.Error(err)
	}
}

func (w *writer) print(text string) { w.write([]byte(rec(0, "stdout", "F", text))) }

func (w *writer) rotator(change func(*RotatorConfig)) *Rotator {
	w.t.Helper()
	cfg := RotatorConfig{Containers: w, Reopen: w, MaxSize: 1}
	if change != nil {
		change(&cfg)
	}
	r, err := NewRotator(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *writer) rotate(r *Rotator) {
	w.t.Helper()
	if err := r.Rotate(w.t.Context()); err != nil {
		w.t.Error(err)
	}
}

// files are the names beside the log, its own left out, in order.
func (w *writer) files() []string {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(w.path))
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if e.Name() != "0.log" {
			out = append(out, e.Name())
		}
	}
	return out
}

// all is the text of the log and all its rotated files.
func (w *writer) all() string {
	w.t.Helper()
	var b strings.Builder
	for _, name := range append(w.files(), "0.log") {
		f, err := os.Open(filepath.Join(filepath.Dir(w.path), name))
		if err != nil {
			w.t.Fatal(err)
		}
		var in io.Reader = f
		if strings.HasSuffix(name, ".gz") {
			if in, err = gzip.NewReader(f); err != nil {
				w.t.Fatal(err)
			}
		}
		if _, err := io.Copy(&b, in); err != nil {
			w.t.Fatal(err)
		}
		_ = f.Close()
	}
	return b.String()
}

func TestSortOut(t *testing.T) {
	const a, b, c, d = "l.20260101-000000", "l.20260102-000000", "l.20260103-000000", "l.20260104-000000"
	for name, tt := range map[string]struct {
		names        []string
		keep         int
		remove, pack string
	}{
		"nothing":                       {nil, 3, "", ""},
		"what stays is compressed":      {[]string{b, a}, 3, "", a + " " + b},
		"the oldest go":                 {[]string{d, c, b + ".gz", a + ".gz"}, 2, a + ".gz " + b + ".gz", c + " " + d},
		"what was not finished goes":    {[]string{a, a + ".gz.tmp"}, 3, a + ".gz.tmp", a},
		"what is compressed goes plain": {[]string{a, a + ".gz", b}, 3, a, b},
		"none stay":                     {[]string{a, b + ".gz"}, 0, a + " " + b + ".gz", ""},
	} {
		t.Run(name, func(t *testing.T) {
			remove, pack := sortOut(tt.names, tt.keep)
			if got := strings.Join(remove, " "); got != tt.remove {
				t.Errorf("removes %s", got)
			}
			if got := strings.Join(pack, " "); got != tt.pack {
				t.Errorf("compresses %s", got)
			}
		})
	}
}

func TestRotateKeepsSoManyFilesAndTheNewestPlain(t *testing.T) {
	w := newWriter(t)
	r := w.rotator(func(c *RotatorConfig) { c.MaxFiles = 4 })
	if err := os.WriteFile(w.path+".bak", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		w.print(fmt.Sprint(i))
		w.rotate(r)
	}
	files := slices.DeleteFunc(w.files(), func(n string) bool { return n == "0.log.bak" })
	if len(files) != 3 || !strings.HasSuffix(files[0], ".gz") || !strings.HasSuffix(files[1], ".gz") || strings.HasSuffix(files[2], ".gz") {
		t.Error(files)
	}
	if len(w.files()) != 4 {
		t.Error("a file of somebody else is gone")
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(w.path), files[0]))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Error(info.Mode(), err)
	}
	if w.looks != 1 {
		t.Errorf("%d looks at a container that does not change", w.looks)
	}
	w.rotate(r) // nothing was written
	if w.opened != 8 {
		t.Errorf("opened %d times", w.opened)
	}
}

func TestFilesMovedWithinOneSecondKeepTheirOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	now := time.Date(2026, 2, 28, 23, 59, 59, 0, time.UTC)
	var got []string
	for _, at := range []time.Time{now, now, now.Add(-time.Hour), now.Add(time.Hour)} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		moved, err := move(path, at)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimPrefix(moved, path))
	}
	if diff := cmp.Diff([]string{".20260228-235959", ".20260301-000000", ".20260301-000001", ".20260301-005959"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestALogThatCannotBeReopenedIsPutBack(t *testing.T) {
	w := newWriter(t)
	w.print("one")
	w.refuse = errors.New("no answer")
	if err := w.rotator(nil).Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Error(err)
	}
	w.print("two")
	if got := len(w.files()); got != 0 {
		t.Error(w.files())
	}
	w.half = true // the answer is lost, but the log is new
	if err := w.rotator(nil).Rotate(t.Context()); err == nil {
		t.Error("no error")
	}
	w.print("three")
	if diff := cmp.Diff(rec(0, "stdout", "F", "one")+rec(0, "stdout", "F", "two")+rec(0, "stdout", "F", "three"), w.all()); diff != "" {
		t.Error(diff)
	}
	if got := len(w.files()); got != 1 {
		t.Error(w.files())
	}
}

func TestALogThatIsOnlySaidToBeReopenedIsPutBack(t *testing.T) {
	w := newWriter(t)
	w.print("one")
	w.idle = true
	if err := w.rotator(nil).Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no "+w.path) {
		t.Error(err)
	}
	w.print("two")
	if diff := cmp.Diff(rec(0, "stdout", "F", "one")+rec(0, "stdout", "F", "two"), w.all()); diff != "" || len(w.files()) != 0 {
		t.Error(diff, w.files())
	}
}

func TestAMissingLogIsMadeAnew(t *testing.T) {
	w := newWriter(t)
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	w.rotate(w.rotator(func(c *RotatorConfig) { c.MaxSize = 100 }))
	w.print("here")
	if got := w.all(); got != rec(0, "stdout", "F", "here") {
		t.Error(got)
	}
}

func TestRunRotatesAtEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		r := w.rotator(nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		for range 2 {
			w.print("line")
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		stop()
		if err := <-done; err != nil || len(w.files()) != 2 {
			t.Error(err, w.files())
		}
	})
}

func TestNegativeSizeRotatesNothing(t *testing.T) {
	w := newWriter(t)
	w.print("line")
	w.rotate(w.rotator(func(c *RotatorConfig) { c.MaxSize = -1 }))
	if len(w.files()) != 0 {
		t.Error(w.files())
	}
}

func TestRotatorConfigThatMakesNoSenseIsRefused(t *testing.T) {
	w := newWriter(t)
	for name, c := range map[string]RotatorConfig{
		"nothing": {}, "one file": {Containers: w, Reopen: w, MaxFiles: 1}, "negative workers": {Containers: w, Reopen: w, Workers: -1},
	} {
		if _, err := NewRotator(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAFollowerThatLagsReadsCompressedFiles(t *testing.T) {
	w := newWriter(t)
	r := w.rotator(func(c *RotatorConfig) { c.MaxFiles = 20 })
	w.print("0")
	rc, err := Open(t.Context(), w.path, Options{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	lines := bufio.NewReader(rc)
	next := func(i int) {
		t.Helper()
		if got, err := lines.ReadString('\n'); err != nil || strings.TrimLeft(got, "0") != strings.TrimLeft(fmt.Sprintln(i), "0") {
			t.Fatalf("got %q, %v, want %d", got, err, i)
		}
	}
	next(0)
	for i := range 9 {
		w.rotate(r)
		w.print(strings.Repeat("0", i) + fmt.Sprint(i+1)) // of different sizes: all this may be one tick of the clock
	}
	for i := range 9 {
		next(i + 1)
	}
	for range 2 { // the file it is in is compressed under its hands
		w.rotate(r)
		w.print("x")
	}
	for range 2 {
		if got, err := lines.ReadString('\n'); err != nil || got != "x\n" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func TestADamagedCompressedFileEndsNothing(t *testing.T) {
	w := newWriter(t)
	w.print("0")
	rc, err := Open(t.Context(), w.path, Options{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	r := w.rotator(nil)
	for i := range 3 {
		w.rotate(r)
		w.print(fmt.Sprint(i + 1))
	}
	for _, name := range w.files() {
		if strings.HasSuffix(name, ".gz") {
			file := filepath.Join(filepath.Dir(w.path), name)
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			copy(b, "damaged\n")
			if err := errors.Join(os.WriteFile(file, b, 0o600), os.Chtimes(file, info.ModTime(), info.ModTime())); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := bufio.NewReader(rc)
	var last string
	for last != "3\n" {
		if last, err = lines.ReadString('\n'); err != nil {
			t.Fatal(last, err)
		}
	}
}

func TestNoLineIsLostOrDoubledByRotation(t *testing.T) { rotateUnderLoad(t, 256<<10) }

// BenchmarkRotate200MB is the same with the size a log has by default.
func BenchmarkRotate200MB(b *testing.B) {
	for b.Loop() {
		rotateUnderLoad(b, 10<<20)
	}
}

// rotateUnderLoad takes a log through twenty rotations with compression, while two read along. It is written at full speed, but
// not to more than twice the size: a rotation takes longer than that when the machine is busy.
func rotateUnderLoad(t testing.TB, size int64) {
	t.Helper()
	const rotations = 20
	w := newWriter(t)
	r := w.rotator(func(c *RotatorConfig) { c.MaxSize, c.MaxFiles = size, rotations+5 })
	var ended atomic.Bool
	var all sync.WaitGroup
	read := make([]heard, 2)
	for i := range read {
		rc, err := Open(t.Context(), w.path, Options{Follow: true, Done: ended.Load})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { read[i] = countLines(t, rc) })
	}
	written, said := 0, sha256.New()
	all.Go(func() { // the container
		defer ended.Store(true)
		for !ended.Load() {
			if w.full(2 * size) {
				time.Sleep(time.Millisecond)
				continue
			}
			var b []byte
			for range 200 {
				text := fmt.Appendf(nil, "%d %s\n", written, pad)
				said.Write(text)
				b = append(append(b, "2026-01-02T03:04:05.000000000Z stdout F "...), text...)
				written++
			}
			w.write(b)
		}
	})
	for w.reopened() <= rotations {
		w.rotate(r)
	}
	ended.Store(true)
	all.Wait()
	for i, h := range read {
		if h.lines != written || !bytes.Equal(h.sum, said.Sum(nil)) {
			t.Errorf("reader %d got %d of %d lines, or others", i, h.lines, written)
		}
	}
	i := 0
	for line := range strings.Lines(w.all()) {
		if line != fmt.Sprintf("2026-01-02T03:04:05.000000000Z stdout F %d %s\n", i, pad) {
			t.Fatalf("line %d on the disk is %.60s", i, line)
		}
		i++
	}
	t.Logf("%d MB in %d rotations", written*len(pad)>>20, w.opened-1)
	if i != written {
		t.Errorf("%d of %d lines are on the disk", i, written)
	}
}

const pad = "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz"

// heard is what a reader got.
type heard struct {
	lines int // that came in order
	sum   []byte
}

// countLines reads to the end.
func countLines(t testing.TB, rc io.ReadCloser) heard {
	t.Helper()
	defer rc.Close()
	h, sum := heard{}, sha256.New()
	lines := bufio.NewScanner(io.TeeReader(rc, sum))
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), fmt.Appendf(nil, "%d ", h.lines)) {
			t.Errorf("after line %d came %.20q", h.lines-1, lines.Text())
			return h
		}
		h.lines++
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	h.sum = sum.Sum(nil)
	return h
}
