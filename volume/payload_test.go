package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// text makes a payload of paths and contents.
func text(t *testing.T, pairs ...string) payload {
	t.Helper()
	p := payload{}
	for pair := range slices.Chunk(pairs, 2) {
		if err := p.add(pair[0], file{data: []byte(pair[1]), mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func put(t *testing.T, p payload, dir string) {
	t.Helper()
	if err := p.write(dir, nil, func() {}, false); err != nil {
		t.Fatal(err)
	}
}

// visible is what a user finds: every path that is not ours, and what it holds.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		at, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			out[filepath.Join(e.Name(), strings.TrimPrefix(path, at))] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestPayload(t *testing.T) {
	for _, c := range []struct {
		rule        string
		first, then []string
		switches    bool
	}{
		{"nothing at all", nil, nil, false},
		{"the same again", []string{"a", "1", "d/b", "2"}, []string{"a", "1", "d/b", "2"}, false},
		{"new content", []string{"a", "1"}, []string{"a", "2"}, true},
		{"content of the same length", []string{"a", "1", "b", "1"}, []string{"a", "1", "b", "2"}, true},
		{"a file more", []string{"a", "1"}, []string{"a", "1", "b", "2"}, true},
		{"a file less", []string{"a", "1", "b", "2"}, []string{"a", "1"}, true},
		{"one for another", []string{"a", "1"}, []string{"b", "1"}, true},
		{"a file in a directory more", []string{"d/a", "1"}, []string{"d/a", "1", "d/b", "2"}, true},
		{"a file becomes a directory", []string{"a", "1"}, []string{"a/b", "1"}, true},
		{"a directory becomes a file", []string{"a/b", "1"}, []string{"a", "1"}, true},
		{"all files go", []string{"a", "1", "d/e/f", "2"}, nil, true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := t.TempDir()
			put(t, text(t, c.first...), dir)
			before, _ := os.Readlink(dir + "/..data")
			want := text(t, c.then...)
			put(t, want, dir)
			after, _ := os.Readlink(dir + "/..data")
			if (before != after) != c.switches {
				t.Errorf("from %s to %s", before, after)
			}
			got := visible(t, dir)
			for name, f := range want {
				if got[name] != string(f.data) {
					t.Errorf("%s is %q", name, got[name])
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("too much is there: %v", got)
			}
			ours, _ := filepath.Glob(dir + "/..*")
			if diff := cmp.Diff([]string{dir + "/" + after, dir + "/..data"}, ours); diff != "" {
				t.Errorf("what is ours (-want +got)\n%s", diff)
			}
		})
	}
}

func TestAChangeOfModesAloneIsNone(t *testing.T) {
	dir := t.TempDir()
	p := text(t, "a", "1")
	put(t, p, dir)
	p["a"] = file{data: []byte("1"), mode: 0o600}
	put(t, p, dir)
	if info, _ := os.Stat(dir + "/a"); info.Mode() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestALinkThatWasRemovedComesBack(t *testing.T) {
	dir := t.TempDir()
	p := text(t, "a", "1")
	put(t, p, dir)
	_ = os.Remove(dir + "/a")
	put(t, p, dir)
	if diff := cmp.Diff(map[string]string{"a": "1"}, visible(t, dir)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWhatIsNotOursStays(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/mine", 0o755), os.Symlink("elsewhere", dir+"/link"), os.Mkdir(dir+"/..2026_01_01", 0o755)); err != nil {
		t.Fatal(err)
	}
	put(t, text(t, "a", "1"), dir)
	for _, name := range []string{"mine", "link", "..2026_01_01"} {
		if _, err := os.Lstat(dir + "/" + name); err != nil {
			t.Error(err)
		}
	}
}

// TestReadersSeeOldOrNewFilesNeverBoth changes two files together all the time.
func TestReadersSeeOldOrNewFilesNeverBoth(t *testing.T) {
	dir := t.TempDir()
	put(t, text(t, "a", "0", "b", "0"), dir)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			name, err := os.Readlink(dir + "/..data")
			if err != nil {
				t.Error("for a moment nothing was there:", err)
				return
			}
			a, errA := os.ReadFile(filepath.Join(dir, name, "a"))
			b, errB := os.ReadFile(filepath.Join(dir, name, "b"))
			if errA == nil && errB == nil && string(a) != string(b) { // it may be gone by now, but not half
				t.Errorf("a %q, b %q", a, b)
				return
			}
		}
	})
	for i := range 300 {
		s := string(rune('0' + i%10))
		put(t, text(t, "a", s, "b", s), dir)
	}
	close(stop)
	wg.Wait()
}

func TestCheckPath(t *testing.T) {
	for name, fine := range map[string]bool{
		"a": true, "a/b": true, "a..": true, "a/..b": true, "...": false, ".a": true, "a//b": true, "./a": true,
		"": false, ".": false, "/": false, "/a": false, "..": false, "../a": false, "a/../b": false, "..a": false, "./..a": false, "..data/x": false,
		"a\x00": false, strings.Repeat("x", 255): true, strings.Repeat("x", 256): false, strings.Repeat("x/", 2049): false,
	} {
		if err := checkPath(name); (err == nil) != fine {
			t.Errorf("%.30q: %v", name, err)
		}
	}
}

// FuzzPayload writes files under any names: those that are taken can be read back, nothing is written elsewhere.
func FuzzPayload(f *testing.F) {
	f.Add("a", "b/c", "x")
	f.Add("..data", "..data/a", "")
	f.Add("a", "a/b", "x")
	f.Add("./a", "a", "x")
	f.Add("..2026_01_01_00_00_00.1", "../x", "x")
	f.Fuzz(func(t *testing.T, one, two, content string) {
		root := t.TempDir()
		dir := root + "/volume"
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		p := payload{}
		for _, name := range []string{one, two} {
			_ = p.add(name, file{data: []byte(content), mode: 0o600})
		}
		if err := p.write(dir, nil, func() {}, false); err == nil {
			for name := range p {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
					t.Errorf("%q holds %q: %v", name, got, err)
				}
			}
			if err := p.write(dir, nil, func() {}, false); err != nil {
				t.Error(err)
			}
		}
		if entries, _ := os.ReadDir(root); len(entries) != 1 {
			t.Errorf("%q, %q: %v", one, two, entries)
		}
	})
}
