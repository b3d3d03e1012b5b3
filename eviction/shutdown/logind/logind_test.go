package logind

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a bus with a logind that reads its configuration a while after it was told to.
type fake struct {
	grants, after time.Duration // what it grants, and after a reload
	late          time.Duration
	begun         bool
	deaf          error // why it reads nothing
	reloaded      time.Time
	news          chan bool
	log           []string
}

func (f *fake) Close() error { f.log = append(f.log, "close"); return nil }

func (f *fake) delay(context.Context) (time.Duration, error) {
	if !f.reloaded.IsZero() && time.Since(f.reloaded) >= f.late {
		return f.after, nil
	}
	return f.grants, nil
}

func (f *fake) reload(context.Context) error {
	f.reloaded = time.Now()
	return f.deaf
}

func (f *fake) inhibit(context.Context) (io.Closer, error) {
	f.log = append(f.log, "take")
	return freed{f}, nil
}

type freed struct{ f *fake }

func (l freed) Close() error { l.f.log = append(l.f.log, "free"); return nil }

func (f *fake) shutdowns(context.Context) (<-chan bool, error) { return f.news, nil }

func (f *fake) preparing(context.Context) (bool, error) { return f.begun, nil }

func ignore(bool) <-chan struct{} { return nil }

func (f *fake) notice(t *testing.T) Notice {
	t.Helper()
	return Notice{ConfigDir: filepath.Join(t.TempDir(), "conf.d"), connect: func(context.Context) (bus, error) { return f, nil }}
}

func TestTheLockIsGivenBackWhenPodsHaveEndedAndTakenAnewWhenItIsCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{grants: time.Minute, news: make(chan bool)}
		ctx, stop := context.WithCancel(t.Context())
		done, ready := make(chan error), make(chan struct{})
		n := f.notice(t)
		go func() {
			done <- n.Watch(ctx, time.Minute, func(down bool) <-chan struct{} {
				f.log = append(f.log, map[bool]string{true: "down", false: "stay"}[down])
				return ready
			})
		}()
		f.news <- true
		synctest.Wait()
		close(ready)
		synctest.Wait()
		f.news <- false
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"take", "stay", "down", "free", "stay", "take", "free", "close"}, f.log); diff != "" {
			t.Error(diff)
		}
	})
}

// Field report kubernetes/kubernetes#122674: a kubelet that was restarted while the machine went down started pods.
func TestAShutdownThatHasBegunIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{begun: true, news: make(chan bool)} // a lock is not granted any more
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		n := f.notice(t)
		go func() {
			done <- n.Watch(ctx, time.Minute, func(down bool) <-chan struct{} {
				f.log = append(f.log, map[bool]string{true: "down", false: "stay"}[down])
				return nil
			})
		}()
		synctest.Wait()
		f.news <- false
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"down", "stay", "take", "free", "close"}, f.log); diff != "" {
			t.Error(diff)
		}
	})
}

func TestALostConnectionIsAnError(t *testing.T) {
	f := &fake{grants: time.Minute, news: make(chan bool)}
	close(f.news)
	if err := f.notice(t).Watch(t.Context(), time.Second, ignore); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Error(err)
	}
	away := errors.New("no bus")
	n := Notice{connect: func(context.Context) (bus, error) { return nil, away }}
	if err := n.Watch(t.Context(), time.Second, nil); !errors.Is(err, away) {
		t.Error(err)
	}
}

func TestLogindIsToldToHoldUpLongEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{grants: 5 * time.Second, after: 91 * time.Second, late: 300 * time.Millisecond, news: make(chan bool)}
		close(f.news)
		n := f.notice(t)
		_ = n.Watch(t.Context(), 90*time.Second+1, ignore)
		b, err := os.ReadFile(filepath.Join(n.ConfigDir, "99-kubelet.conf"))
		if err != nil || !strings.HasSuffix(string(b), "\n[Login]\nInhibitDelayMaxSec=91\n") {
			t.Errorf("%s, %v", b, err)
		}
		if f.log[0] != "take" {
			t.Error(f.log)
		}
	})
}

// Images of systems whose /etc is read-only, and files of others that count more.
func TestALogindThatHoldsUpForLessIsTakenAsItIs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fake, *Notice)
		says   string
	}{
		"another file counts more": {func(*fake, *Notice) {}, "up for 6s, 1m30s are needed: another file of its configuration overrides "},
		"it cannot be written":     {func(_ *fake, n *Notice) { n.ConfigDir = "/proc/logind.conf.d" }, "up for 5s, 1m30s are needed: mkdir /proc/logind.conf.d: "},
		"it is not read":           {func(f *fake, _ *Notice) { f.deaf = errors.New("no job") }, "up for 5s, 1m30s are needed: have it read "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{grants: 5 * time.Second, after: 6 * time.Second, news: make(chan bool, 1)}
				n := f.notice(t)
				c.change(f, &n)
				said := ""
				n.Short = func(err error) { said += err.Error() }
				f.news <- true
				close(f.news)
				err := n.Watch(t.Context(), 90*time.Second, func(down bool) <-chan struct{} {
					f.log = append(f.log, map[bool]string{true: "down", false: "up"}[down])
					return nil
				})
				if !strings.Contains(said, c.says) || !strings.Contains(err.Error(), "lost") {
					t.Errorf("it says %q, %v", said, err)
				}
				if diff := cmp.Diff([]string{"take", "up", "down", "free", "close"}, f.log); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestSignals(t *testing.T) {
	for _, c := range []struct {
		s        dbus.Signal
		down, ok bool
	}{
		{dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown", Body: []any{true}}, true, true},
		{dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown", Body: []any{false}}, false, true},
		{dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown", Body: []any{"yes"}}, false, false},
		{dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown"}, false, false},
		{dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForSleep", Body: []any{true}}, false, false},
	} {
		if down, ok := about(&c.s); down != c.down || ok != c.ok {
			t.Errorf("%+v: %v, %v", c.s, down, ok)
		}
	}
}
