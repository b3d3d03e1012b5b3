package offline

import (
	"context"
	"errors"
	"fmt"
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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// A machine reboots without an API server: pods and all they need are there, as they were.
func TestARebootWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: filepath.Join(t.TempDir(), "a", "b"), key: key}
		a := l.start(t, s)
		a.wants(t, false)
		s.delivers(true, web("u1"), podOf("db", "u2", "pg"))
		a.wants(t, true, "db:pg", "web:nginx")
		want := append(slices.Clone(allOfWeb), "token token 1 of u1 for vault")
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got, want) {
			t.Fatalf("answered %q", got)
		}
		a.stop()

		s.goes(errDown)
		a = l.start(t, s)
		a.wants(t, false, "db:pg", "web:nginx")
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got, want) {
			t.Errorf("answered %q, want %q", got, want)
		}
		for _, p := range a.pods {
			was := podOf("db", "u2", "pg")
			if p.Name == "web" {
				was = web("u1")
			}
			was.ManagedFields = nil
			if !equality.Semantic.DeepEqual(p, was) {
				t.Errorf("remembered %+v, was %+v", p, was)
			}
		}

		s.goes(nil) // the server is back: it counts
		s.keep("configmap/shop/settings", &v1.ConfigMap{Data: map[string]string{"colour": "blue"}})
		s.delivers(true, web("u1"), podOf("new", "u3", "x"))
		a.wants(t, true, "new:x", "web:nginx")
		want[0], want[6] = "settings blue", "token token 2 of u1 for vault"
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got, want) {
			t.Errorf("answered %q, want %q", got, want)
		}
		a.stop()
		s.goes(errDown)
		a = l.start(t, s)
		a.wants(t, false, "new:x", "web:nginx")
		if got := a.needs(t.Context(), "u1"); !slices.Equal(got, want) {
			t.Errorf("answered %q, want %q", got, want)
		}
	})
}

func TestFilesAreForNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: filepath.Join(t.TempDir(), "cache"), key: key}
		a := l.start(t, s)
		s.delivers(true, web("u1"))
		a.needs(t.Context(), "u1")
		a.stop()
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
		a := l.start(t, s)
		s.delivers(true, web("u1"))
		a.needs(t.Context(), "u1")
		a.stop()

		l.key = nil // kept once with a key: said, and removed as soon as the source has told what it wants
		a = l.start(t, s)
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
		a := l.start(t, s)
		s.delivers(true, web("u1"))
		a.needs(t.Context(), "u1")
		a.stop()

		s.goes(errDown)
		l.key = []byte(strings.Repeat("k", KeyBytes))
		a = l.start(t, s)
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

func TestWhatIsKnownToBeDeletedDoesNotStartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: t.TempDir(), key: key}
		a := l.start(t, s)
		ends := podOf("b", "u2", "x")
		ends.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		s.delivers(true, podOf("a", "u1", "x"), podOf("b", "u2", "x"), podOf("c", "u3", "x"))
		s.delivers(true, podOf("a", "u1", "x"), ends)
		a.stop()
		s.goes(errDown)
		a = l.start(t, s)
		a.wants(t, false, "a:x")
		s.delivers(false, podOf("a", "u1", "x"), podOf("d", "u4", "x")) // not complete: takes nothing away and adds nothing
		a.wants(t, false, "a:x", "d:x")
		a.stop()
		a = l.start(t, s)
		a.wants(t, false, "a:x")
		ends = podOf("a", "u1", "x")
		ends.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		s.delivers(false, ends) // but an end is an end
		a.stop()
		a = l.start(t, s)
		a.wants(t, false)
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

func TestATokenThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: t.TempDir(), key: key}
		a := l.start(t, s)
		s.delivers(true, web("u1"))
		if _, end, err := a.Token(t.Context(), web("u1"), "", 3600); err != nil || !end.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("ends at %v, error %v", end, err)
		}
		if len(a.Events()) > 0 {
			t.Errorf("events %v", a.Events())
		}
		a.stop()
		s.goes(errDown)
		time.Sleep(2 * time.Hour)
		a = l.start(t, s)
		for range 3 {
			token, end, err := a.Token(t.Context(), web("u1"), "", 3600)
			if token != "token 1 of u1 for " || err != nil || end.Before(time.Now().Add(5*time.Minute)) || end.After(time.Now().Add(10*time.Minute)) {
				t.Errorf("token %q to be renewed before %v, error %v", token, end, err)
			}
		}
		if len(a.Events()) != 1 || !a.Events()[0].Warning || a.Events()[0].Reason != "TokenNotRenewed" || a.Events()[0].About.UID != "u1" ||
			!strings.Contains(a.Events()[0].Message, "which ended at 2000-01-01T01:00:00Z") || strings.Contains(a.Events()[0].Message, "token 1") {
			t.Errorf("events %+v", a.Events())
		}
		if _, _, err := a.Token(t.Context(), web("u1"), "another audience", 3600); !errors.Is(err, errDown) {
			t.Errorf("error %v", err)
		}
		s.goes(nil)
		if token, _, err := a.Token(t.Context(), web("u1"), "", 3600); token != "token 2 of u1 for " || err != nil {
			t.Errorf("token %q, error %v", token, err)
		}
		s.goes(errDown)
		if _, _, err := a.Token(t.Context(), web("u1"), "", 3600); err != nil || len(a.Events()) != 2 {
			t.Errorf("error %v, events %v", err, a.Events())
		}
	})
}

// When the kept one is the answer, and when it is not.
func TestWhichErrorsTheKeptOneStandsFor(t *testing.T) {
	pods := schema.GroupResource{Resource: "configmaps"}
	for name, c := range map[string]struct {
		err           error
		before, after bool // the source was complete: the kept one is the answer
	}{
		"nobody there":   {errDown, true, true},
		"overloaded":     {apierrors.NewTooManyRequests("later", 1), true, true},
		"broken":         {apierrors.NewInternalError(errors.New("etcd")), true, true},
		"unavailable":    {apierrors.NewServiceUnavailable("starting"), true, true},
		"known nowhere":  {runtime.ErrUnavailable, true, true},
		"on its way":     {runtime.ErrInProgress, true, false},
		"forbidden":      {apierrors.NewForbidden(pods, "settings", errors.New("no")), true, false},
		"signed out":     {apierrors.NewUnauthorized("who are you"), true, false},
		"does not exist": {runtime.ErrNotFound, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, complete := range []bool{false, true} {
					s, l := stocked(), life{dir: t.TempDir()}
					a := l.start(t, s)
					s.delivers(true, web("u1"))
					a.needs(t.Context(), "u1")
					a.stop()
					a = l.start(t, s)
					want := c.before
					if complete {
						s.delivers(true, web("u1"))
						want = c.after
					}
					s.goes(c.err)
					cm, err := a.ConfigMap(t.Context(), "shop", "settings")
					if got := err == nil && cm.Data["colour"] == "red"; got != want || err != nil && !errors.Is(err, c.err) {
						t.Errorf("complete %v: answered %v, error %v; want %v", complete, cm, err, want)
					}
					a.stop()
				}
			})
		})
	}
}

func TestAnObjectThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: t.TempDir(), key: key}
		a := l.start(t, s)
		s.delivers(true, web("u1"))
		a.needs(t.Context(), "u1")
		synctest.Wait()
		s.keep("secret/shop/tls", nil)
		if _, err := a.Secret(t.Context(), "shop", "tls"); !errors.Is(err, runtime.ErrNotFound) {
			t.Errorf("error %v", err)
		}
		a.stop()
		s.goes(errDown)
		a = l.start(t, s)
		if _, err := a.Secret(t.Context(), "shop", "tls"); !errors.Is(err, errDown) {
			t.Errorf("error %v", err)
		}
	})
}

func TestAServerThatHangsHoldsUpNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := stocked(), life{dir: t.TempDir()}
		a := l.start(t, s)
		s.delivers(true, web("u1"))
		a.needs(t.Context(), "u1")
		a.stop()
		a = l.start(t, s)
		synctest.Wait() // what is kept is read
		s.hangs = true
		began := time.Now()
		if cm, err := a.ConfigMap(t.Context(), "shop", "settings"); err != nil || cm.Data["colour"] != "red" || time.Since(began) > patience {
			t.Errorf("answered %v, %v after %v", cm, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.Secret(ctx, "shop", "tls"); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("nothing is kept: error %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err := a.ConfigMap(ctx, "shop", "settings"); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller has gone: error %v", err)
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

func TestFollowIsPassedOn(t *testing.T) {
	s := stocked()
	c, err := New(Config{Dir: t.TempDir(), Source: s, Objects: s})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	stop := c.Follow("ConfigMap", "shop", "settings", func() { told++ })
	stop()
	if told != 1 || s.objects["stopped"] != "ConfigMap/shop/settings" {
		t.Errorf("told %d times, stopped %v", told, s.objects["stopped"])
	}
}

// A source that fails is started again by its caller; what was remembered is not delivered a second time.
func TestASourceThatReturns(t *testing.T) {
	s := stocked()
	broken := errors.New("broken")
	runs := 0
	c, err := New(Config{Dir: t.TempDir(), Objects: s, Source: sourceFunc(func(_ context.Context, set func([]*v1.Pod, bool)) error {
		runs++
		set(nil, true)
		return broken
	})})
	if err != nil {
		t.Fatal(err)
	}
	var sets []string
	for range 2 {
		if err := c.Run(t.Context(), func(pods []*v1.Pod, complete bool) { sets = append(sets, fmt.Sprint(len(pods), complete)) }); !errors.Is(err, broken) {
			t.Errorf("error %v", err)
		}
	}
	if !slices.Equal(sets, []string{"0 false", "0 true", "0 true"}) {
		t.Errorf("sets %v", sets)
	}
}

type sourceFunc func(ctx context.Context, set func([]*v1.Pod, bool)) error

func (f sourceFunc) Run(ctx context.Context, set func([]*v1.Pod, bool)) error { return f(ctx, set) }

// A source that refers to nothing needs no objects behind it.
func TestPodsAlone(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	for _, want := range []int{0, 1} { // pods that are remembered
		c, err := New(Config{Dir: dir, Source: sourceFunc(func(_ context.Context, set func([]*v1.Pod, bool)) error {
			set([]*v1.Pod{podOf("till", "u1", "x")}, true)
			return nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		var sets [][]*v1.Pod
		if err := c.Run(ctx, func(pods []*v1.Pod, _ bool) { sets = append(sets, pods) }); err != nil {
			t.Fatal(err)
		}
		if len(sets) != 2 || len(sets[0]) != want || len(sets[1]) != 1 {
			t.Errorf("delivered %v, want %d and 1 pods", sets, want)
		}
		defer c.Follow("ConfigMap", "shop", "settings", func() {})()
		_, noMap := c.ConfigMap(ctx, "shop", "settings")
		_, noSecret := c.Secret(ctx, "shop", "settings")
		_, _, noToken := c.Token(ctx, podOf("till", "u1", "x"), "", 600)
		_, noClass := c.Class("micro")
		for what, err := range map[string]error{"map": noMap, "secret": noSecret, "token": noToken, "class": noClass} {
			if !errors.Is(err, runtime.ErrNotFound) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if services, err := c.Services(ctx, "shop"); len(services) > 0 || err != nil {
			t.Errorf("services %v, %v", services, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	s := stocked()
	for _, c := range []Config{
		{},
		{Dir: "x", Objects: s},
		{Source: s, Objects: s},
		{Dir: "x", Source: s, Objects: s, Key: []byte("short secret")},
		{Dir: "x", Source: s, Objects: s, Key: []byte{}},
	} {
		if _, err := New(c); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
