package logs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// kubernetes/kubernetes#134324, #110630: while a file was compressed for minutes the log behind it, and those of others, grew
// without end.
func TestALogThatGrowsFasterThanItIsCompressedIsRotatedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		r := w.rotator(func(c *RotatorConfig) { c.MaxFiles = 4 })
		begun := 0
		r.packer.compress = func(ctx context.Context, _ string) error {
			begun++
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		for range 9 {
			w.print("line")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if w.full(1) {
				t.Fatal("the log was not moved away")
			}
		}
		if n := len(w.files()); n != 3 || begun != 1 {
			t.Errorf("%d files of so many lines, want the three newest; %d are compressed, want one at a time", n, begun)
		}
		stop()
		if err := <-done; err != nil || len(r.packer.busy) != 0 {
			t.Error(err, r.packer.busy)
		}
	})
}

// meddler does something when it is asked for the first time whether it has ended.
type meddler struct {
	context.Context
	does func()
}

func (m meddler) Err() error {
	m.does()
	return m.Context.Err()
}

func TestWhatCompressingLeavesWhenItIsCutShort(t *testing.T) {
	for name, c := range map[string]struct {
		does func(path string, stop func()) error
		want error
		left string
	}{
		"the agent ends":             {func(_ string, stop func()) error { stop(); return nil }, context.Canceled, "0.log.20260101-000000"},
		"the file goes":              {func(path string, _ func()) error { return os.Remove(path) }, fs.ErrNotExist, ""},
		"the file is written to":     {func(path string, _ func()) error { return os.WriteFile(path, []byte("more"), 0o600) }, nil, "0.log.20260101-000000"},
		"all files of its log go":    {func(path string, _ func()) error { return os.RemoveAll(filepath.Dir(path)) }, fs.ErrNotExist, ""},
		"nothing comes in between":   {func(string, func()) error { return nil }, nil, "0.log.20260101-000000.gz"},
		"somebody removes the other": {func(path string, _ func()) error { return os.Remove(path + packed + unfinished) }, fs.ErrNotExist, "0.log.20260101-000000"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "app")
			path := filepath.Join(dir, "0.log.20260101-000000")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, []byte("line\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			once := sync.OnceFunc(func() {
				if err := c.does(path, stop); err != nil {
					t.Error(err)
				}
			})
			err := compress(meddler{ctx, once}, path)
			if c.want != nil && !errors.Is(err, c.want) || (err == nil) != strings.HasSuffix(c.left, packed) {
				t.Errorf("%v, want %v", err, c.want)
			}
			var left []string
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("there is %q, want %q", got, c.left)
			}
		})
	}
}

func TestWhatIsJustCompressedIsNotTakenForALeftover(t *testing.T) {
	w := newWriter(t)
	r := w.rotator(nil)
	own, other := w.path+".20260101-000000", w.path+".20260101-000001"
	for _, f := range []string{own, own + packed + unfinished, other, other + packed + unfinished} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.packer.busy[own] = true
	plain, err := r.makeRoom(w.path, 3)
	if err != nil || len(plain) != 2 {
		t.Error(plain, err)
	}
	if got := strings.Join(w.files(), " "); got != "0.log.20260101-000000 0.log.20260101-000000.gz.tmp 0.log.20260101-000001" {
		t.Error(got)
	}
}

// kubernetes/kubernetes#102553: what was not compressed when a log was moved away stayed so until the log was full again.
func TestALogThatIsNotFullIsClearedUpWhenItIsSeenFirst(t *testing.T) {
	w := newWriter(t)
	for _, f := range []string{"20260101-000000", "20260101-000001.gz", "20260101-000002", "20260101-000002.gz.tmp", "20260101-000003", "20260101-000004"} {
		if err := os.WriteFile(w.path+"."+f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := w.rotator(func(c *RotatorConfig) { c.MaxSize = 100 })
	w.rotate(r)
	const want = "0.log.20260101-000001.gz 0.log.20260101-000002.gz 0.log.20260101-000003.gz 0.log.20260101-000004"
	if got := strings.Join(w.files(), " "); got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
	if err := os.WriteFile(w.path+".20260101-000005", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.rotate(r)
	if n := len(w.files()); n != 5 {
		t.Errorf("it is looked at again: %s", w.files())
	}
}
