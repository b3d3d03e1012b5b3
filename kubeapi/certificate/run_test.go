package certificate

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// run starts a Manager in a bubble; the test ends once it has.
func run(t *testing.T, m *Manager) (failed func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	return func() error {
		select {
		case err := <-done:
			done <- err
			return err
		default:
			return nil
		}
	}
}

func TestAFirstCertificate(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var told []*tls.Certificate
		m, err := NewClient(ClientConfig{Node: "n1", Dir: dir, Bootstrap: s, Changed: func(c *tls.Certificate) { told = append(told, c) }})
		if err != nil {
			t.Fatal(err)
		}
		if shown, err := m.GetClientCertificate(nil); err != nil || len(shown.Certificate) > 0 {
			t.Errorf("without one it shows %v, %v", shown, err)
		}
		run(t, m)
		if err := m.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := m.Current().Leaf.Subject; s.CommonName != "system:node:n1" || s.Organization[0] != "system:nodes" {
			t.Errorf("it is for %v", s)
		}
		if len(told) != 1 || told[0] != m.Current() {
			t.Errorf("told of %d", len(told))
		}
		if _, err := os.Stat(filepath.Join(dir, "kubelet-client.key.tmp")); !os.IsNotExist(err) {
			t.Errorf("the key waits on: %v", err)
		}
		if again, err := NewClient(ClientConfig{Node: "n1", Dir: dir, Requests: s}); err != nil || again.Current() == nil {
			t.Errorf("a second start: %v", err)
		}
		time.Sleep(69 * time.Hour)
		if n, _ := s.count(); n != 1 {
			t.Errorf("%d requests before it is time", n)
		}
		time.Sleep(22 * time.Hour)
		if n, _ := s.count(); n != 2 || len(told) != 2 || told[1] != m.Current() {
			t.Errorf("%d requests, told of %d", n, len(told))
		}
	})
}
