package offline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeletkit/kubeletkit/runtime"
)

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
					l.keepsWeb(t, s)
					a := l.start(t, s)
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
		l.keepsWeb(t, s)
		a := l.start(t, s)
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
