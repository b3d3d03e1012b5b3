//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSmoke asks the cluster in the directory KUBELETKIT_CLUSTER, which must be up, for what a user does first (it is
// built only with -tags cluster, since the cluster's programs take an hour to build):
// a pod that runs, its log, a command in it, and names that resolve there.
func TestSmoke(t *testing.T) {
	dir := os.Getenv("KUBELETKIT_CLUSTER")
	if dir == "" {
		t.Fatal("KUBELETKIT_CLUSTER names no cluster; see make cluster")
	}
	c, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	name := fmt.Sprintf("smoke-%d", os.Getpid())
	run := func(args ...string) string {
		t.Helper()
		out, err := c.kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run("run", name, "--image=registry.k8s.io/e2e-test-images/busybox:1.37.0-2", "--image-pull-policy=Always",
		"--restart=Never", "--", "sh", "-c", "echo hello; exec sleep 600")
	t.Cleanup(func() {
		if _, err := c.kubectl(context.WithoutCancel(ctx), "delete", "pod", name, "--grace-period=1"); err != nil {
			t.Error(err)
		}
	})
	run("wait", "--for=condition=Ready", "--timeout=1m", "pod/"+name)
	if got := run("logs", name); got != "hello\n" {
		t.Errorf("log = %q", got)
	}
	if got := run("exec", name, "--", "cat", "/etc/resolv.conf"); !strings.Contains(got, "nameserver "+dnsServiceIP) {
		t.Errorf("resolv.conf = %q", got)
	}
	if got := run("exec", name, "--", "nslookup", "kubernetes.default.svc."+clusterDomain); !strings.Contains(got, apiServiceIP) {
		t.Errorf("nslookup = %q", got)
	}
	if got := run("get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy/healthz"); got != "ok" {
		t.Errorf("health of the node agent = %q", got)
	}
}
