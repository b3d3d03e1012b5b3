package certificate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// living is a Manager whose first certificate, as all others, has that life.
type living struct {
	*testing.T
	life time.Duration
	s    *server
	m    *Manager
}

func eachLife(t *testing.T, f func(c living), lives ...time.Duration) {
	t.Helper()
	for _, life := range lives {
		t.Run(life.String(), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				s.live(life)
				f(living{t, life, s, served(t, s, dir)})
			})
		})
	}
}

// served runs a Manager that has got its first certificate.
func served(t *testing.T, s *server, dir string) *Manager {
	t.Helper()
	m := client(t, ClientConfig{Dir: dir, Bootstrap: s, Requests: s})
	run(t, m)
	if err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// A life may be shorter than what is waited for elsewhere.
func TestCertificatesOfAShortLifeAreRenewedInTime(t *testing.T) {
	eachLife(t, func(c living) {
		begun := time.Now()
		for time.Since(begun) < 50*c.life {
			time.Sleep(100 * time.Millisecond)
			if c.m.Current() == nil {
				c.Fatalf("expired after %v", time.Since(begun))
			}
		}
		if n, _ := c.s.count(); n > 50*10/6 { // one in 0.7 of a life, and what it takes to be asked
			c.Errorf("%d requests in 50 lives", n)
		}
	}, 12*time.Second, 30*time.Second, 60*time.Second, 79*time.Second, 90*time.Second, 5*time.Minute)
}

// A server that comes back shortly before the end is asked before it.
func TestASignerThatIsAwayIsAskedMoreOftenTowardsTheEnd(t *testing.T) {
	eachLife(t, func(c living) {
		first := c.m.Current()
		c.s.set("", errors.New("it is away"))
		time.Sleep(time.Until(first.Leaf.NotAfter) - 4*time.Second)
		c.s.set("", nil)
		time.Sleep(4*time.Second - time.Millisecond)
		if now := c.m.Current(); now == nil || now == first {
			c.Errorf("it has not been renewed when it ends: %v", now)
		}
	}, 30*time.Second, 60*time.Second, 5*time.Minute, time.Hour)
}

// A signer that dates certificates back may issue one that is to be renewed at once.
func TestACertificateBornOldIsNoReasonToAskWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.live(time.Minute)
		s.backdate(time.Hour)
		m := served(t, s, dir)
		for range 600 {
			time.Sleep(time.Second)
			if m.Current() == nil {
				t.Fatal("expired")
			}
		}
		if n, _ := s.count(); n > 25 {
			t.Errorf("%d requests in ten minutes", n)
		}
	})
}

func TestACertificateWithAStrangeLifeIsNoStorm(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.live(2 * time.Second)
		run(t, client(t, ClientConfig{Dir: dir, Bootstrap: s}))
		time.Sleep(time.Hour)
		if made, _ := s.count(); made < 50 || made > 61 {
			t.Errorf("%d requests in an hour", made)
		}
	})
}
