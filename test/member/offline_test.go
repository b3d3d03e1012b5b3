//go:build cluster

package member

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node that reboots without an API server starts its pods again, with all they need, and does what was asked for meanwhile
// once the server is back.
func TestOffline(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600))
	n := newNode(t, "--offline-cache="+filepath.Join(t.TempDir(), "cache"), "--offline-cache-key="+key)
	n.objects("c", "kept")
	n.create(sleeper("plain"), sleeper("deleted"), sleeper("config", withEnv("c"), withFiles("c")))
	n.running("plain", "deleted", "config")
	time.Sleep(2 * time.Second) // what is to be kept is written
	n.stop()
	n.reboot()
	n.proxy.Cut()
	if got := n.containers(); len(got) > 0 {
		t.Fatalf("containers run after a reboot: %v", got)
	}

	n.start()
	took := n.until("all pods run without an API server", func() error {
		if got := n.containers(); len(got) != 3 {
			return fmt.Errorf("running: %v", got)
		}
		return nil
	})
	t.Logf("all pods ran %v after the agent's start, without an API server", took.Round(time.Millisecond))
	before := n.containers()
	now := int64(0)
	check(t, n.api.CoreV1().Pods(n.ns).Delete(t.Context(), "deleted", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	n.create(sleeper("new"))
	n.proxy.Heal()
	n.until("what was asked for meanwhile is done", func() error {
		if got := n.containers(); got["deleted/main"] != "" || got["new/main"] == "" {
			return fmt.Errorf("running: %v", got)
		}
		return nil
	})
	n.ready()
	n.running("plain", "config", "new")
	n.until("the restarts are counted", func() error {
		if count := n.pod("plain").Status.ContainerStatuses[0].RestartCount; count != 1 {
			return fmt.Errorf("%d", count)
		}
		return nil
	})
	after := n.containers()
	delete(before, "deleted/main")
	delete(after, "new/main")
	if !maps.Equal(before, after) {
		t.Errorf("containers changed when the server was back: %v, then %v", before, after)
	}
}
