package offline

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestFilesAreForNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: filepath.Join(t.TempDir(), "cache"), key: key}
		l.keepsWeb(t, s)
		names := files(t, l.dir)
		if len(names) != 8 {
			t.Errorf("files %v", names)
		}
		for _, name := range append(names, "") {
			fi, err := os.Stat(filepath.Join(l.dir, name))
			if err != nil || fi.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: mode %v, error %v", name, fi.Mode(), err)
			}
			if name == "" {
				continue
			}
			b, err := os.ReadFile(filepath.Join(l.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{"eHl6en", "cGx1Z2", "xyzzy", "plugh", "token 1"} {
				if strings.Contains(string(b), secret) {
					t.Errorf("%s holds a secret in plain text", name)
				}
			}
		}
	})
}

func TestWithoutAKeySecretsAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: t.TempDir(), key: key}
		l.keepsWeb(t, s)

		l.key = nil // kept once with a key: said, and removed as soon as the source has told what it wants
		a := l.start(t, s)
		if n := a.Lines("no key is given"); len(n) != 1 || !strings.Contains(n[0], "files=3") {
			t.Errorf("logged %v", a.Lines(""))
		}
		s.delivers(true, web("u1"))
		a.needs(t.Context(), "u1")
		a.stop()
		for _, name := range files(t, l.dir) {
			if strings.HasPrefix(name, kindSecret) || strings.HasPrefix(name, kindToken) {
				t.Errorf("kept %s", name)
			}
		}
		s.goes(errDown)
		a = l.start(t, s)
		a.wants(t, false, "web:nginx")
		got := a.needs(t.Context(), "u1")
		if got[0] != "settings red" || !strings.Contains(got[1], "connection refused") || !strings.Contains(got[6], "connection refused") {
			t.Errorf("answered %q", got)
		}
	})
}

func TestAWrongKeyIsSaidAndPodsWithoutSecretsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: t.TempDir(), key: key}
		l.keepsWeb(t, s)

		s.goes(errDown)
		l.key = []byte(strings.Repeat("k", KeyBytes))
		a := l.start(t, s)
		a.wants(t, false, "web:nginx")
		got := a.needs(t.Context(), "u1")
		if got[0] != "settings red" || got[5] != "class kata" {
			t.Errorf("answered %q", got)
		}
		for _, i := range []int{1, 2, 6} {
			if !strings.Contains(got[i], "another key") || !strings.Contains(got[i], "connection refused") {
				t.Errorf("answered %q", got[i])
			}
		}
		if l := a.Lines("ERROR"); len(l) != 1 || !strings.Contains(l[0], "another key") || !strings.Contains(l[0], "files=3") {
			t.Errorf("logged %v", l)
		}
		a.stop()

		l.key = key // nothing was lost by it
		a = l.start(t, s)
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got[:6], allOfWeb) {
			t.Errorf("answered %q", got)
		}
		a.stop()

		l.key = []byte(strings.Repeat("k", KeyBytes)) // what the server answers anew is sealed with the new key
		s.goes(nil)
		a = l.start(t, s)
		s.delivers(true, web("u1"))
		a.needs(t.Context(), "u1")
		a.stop()
		s.goes(errDown)
		a = l.start(t, s)
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got[:6], allOfWeb) {
			t.Errorf("answered %q", got)
		}
	})
}

func TestWhatNobodyUsesAnyMoreIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: t.TempDir(), key: key}
		foreign := filepath.Join(l.dir, "README")
		if err := os.WriteFile(foreign, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		a := l.start(t, s)
		s.delivers(true, web("u1"), podOf("b", "u2", "x"))
		a.needs(t.Context(), "u1")
		s.delivers(true, podOf("b", "u2", "x"))
		a.stop()
		want := []string{"README", podFile("u2"), servicesFile("default"), servicesFile("shop")}
		slices.Sort(want)
		if got := files(t, l.dir); !slices.Equal(got, want) {
			t.Errorf("files %v, want %v", got, want)
		}
		a = l.start(t, s)
		a.needs(t.Context(), "u1") // for a pod that is not here: nothing is kept of it
		s.delivers(true)
		a.stop()
		if got := files(t, l.dir); !slices.Equal(got, []string{"README"}) {
			t.Errorf("files %v", got)
		}
	})
}

func TestDamagedFilesAreSetAsideAndTheOthersCount(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"cut":            func(b []byte) []byte { return b[:len(b)/2] },
		"empty":          func([]byte) []byte { return nil },
		"zeroes":         func(b []byte) []byte { return make([]byte, len(b)) },
		"one bit":        func(b []byte) []byte { b[len(b)-3] ^= 4; return b },
		"longer":         func(b []byte) []byte { return append(b, 'x') },
		"something else": func([]byte) []byte { return []byte("apiVersion: v1\nkind: Pod\n") },
		"huge":           func([]byte) []byte { return make([]byte, maxBytes+1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := stocked(), life{dir: t.TempDir(), key: key}
				a := l.start(t, s)
				s.delivers(true, web("u1"), podOf("b", "u2", "x"))
				a.needs(t.Context(), "u1")
				a.stop()
				for _, file := range []string{podFile("u2"), configMapFile("shop", "settings"), secretFile("shop", "tls")} {
					path := filepath.Join(l.dir, file)
					b, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, spoil(b), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				s.goes(errDown)
				a = l.start(t, s)
				a.wants(t, false, "web:nginx")
				got := a.needs(t.Context(), "u1")
				if got[1] != "pull xyzzy" || !strings.Contains(got[0], "refused") || !strings.Contains(got[2], "refused") {
					t.Errorf("answered %q", got)
				}
				if n := len(a.Lines("is set aside")); n != 3 {
					t.Errorf("logged %v", a.Lines(""))
				}
				aside := 0
				for _, name := range files(t, l.dir) {
					if strings.HasSuffix(name, damagedSuffix) {
						aside++
					}
				}
				if aside != 3 {
					t.Errorf("files %v", files(t, l.dir))
				}
				s.goes(nil)
				s.delivers(true, web("u1"))
				a.needs(t.Context(), "u1")
				a.stop()
				s.goes(errDown)
				a = l.start(t, s)
				a.wants(t, false, "web:nginx")
				if got := a.needs(t.Context(), "u1"); !slices.Equal(got[:6], allOfWeb) {
					t.Errorf("answered %q", got)
				}
				if slices.Contains(files(t, l.dir), podFile("u2")+damagedSuffix) {
					t.Error("what nobody uses is still there, set aside")
				}
			})
		})
	}
}

// A file put in the place of another one is not taken for it, sealed or not.
func TestOneFileCannotStandForAnother(t *testing.T) {
	for _, how := range []string{"plain", "sealed"} {
		seal, err := sealer(key)
		if err != nil {
			t.Fatal(err)
		}
		if how == "plain" {
			seal = nil
		}
		b := encode("secret-1", []byte("body"), seal)
		if got, err := decode("secret-1", b, seal); err != nil || string(got) != "body" {
			t.Errorf("%s: %q %v", how, got, err)
		}
		if got, err := decode("secret-2", b, seal); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %q %v", how, got, err)
		}
	}
}

func TestAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		s := stocked()
		l := life{dir: t.TempDir(), key: key, fault: func(what, _ string) error {
			if full.Load() && what == "write" {
				return &fs.PathError{Op: "write", Path: "somewhere", Err: syscall.ENOSPC}
			}
			return nil
		}}
		a := l.start(t, s)
		s.delivers(true, podOf("a", "u1", "one"), podOf("b", "u2", "x"))
		synctest.Wait()
		full.Store(true)
		s.delivers(true, podOf("a", "u1", "two"), web("u3")) // passed on, and what ends is forgotten all the same
		a.wants(t, true, "a:two", "web:nginx")
		a.needs(t.Context(), "u3")
		time.Sleep(time.Hour)
		if n := a.Lines("ERROR"); len(n) != 1 || !strings.Contains(n[0], "no space left") {
			t.Errorf("logged %v", a.Lines(""))
		}
		s.goes(errDown)
		if got := a.needs(t.Context(), "u3"); !slices.Equal(got[:6], allOfWeb) { // what waits to be written is at hand
			t.Errorf("answered %q", got)
		}
		other := life{dir: l.dir, key: key}.start(t, s)
		other.wants(t, false, "a:one")
		other.stop()
		full.Store(false)
		time.Sleep(retryAfter + time.Millisecond)
		synctest.Wait()
		if n := a.Lines("remembered again"); len(n) != 1 {
			t.Errorf("logged %v", a.Lines(""))
		}
		a.stop()
		a = l.start(t, s)
		a.wants(t, false, "a:two", "web:nginx")
		if got := a.needs(t.Context(), "u3"); !slices.Equal(got[:6], allOfWeb) {
			t.Errorf("answered %q", got)
		}
	})
}

func TestADirectoryThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := stocked()
		a := life{dir: dir}.start(t, s)
		s.delivers(true, podOf("a", "u1", "x"))
		a.wants(t, true, "a:x")
		time.Sleep(time.Hour)
		if n := a.Lines("ERROR"); len(n) != 1 || !strings.Contains(n[0], "not a directory") || !strings.Contains(n[0], dir) {
			t.Errorf("logged %v", n)
		}
	})
}

// What has not changed is not written again: a disk at the edge has a number of writes.
func TestUnchangedThingsAreNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int32
		s, l := stocked(), life{dir: t.TempDir(), key: key, fault: func(what, _ string) error {
			if what == "write" {
				writes.Add(1)
			}
			return nil
		}}
		for range 3 {
			a := l.start(t, s)
			for range 5 {
				s.delivers(true, web("u1"))
				a.needs(t.Context(), "u1")
				synctest.Wait()
			}
			a.stop()
		}
		if tokens := int32(3 * 5); writes.Load() != 7+tokens {
			t.Errorf("%d writes, want 7 and %d for tokens, which are others each time", writes.Load(), tokens)
		}
	})
}
