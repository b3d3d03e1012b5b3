package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestServiceLivesUntilItIsEnded(t *testing.T) {
	c := testCluster(t)
	ctx := t.Context()
	s := service{name: "sleeper", file: "/bin/sh", args: []string{"-c", "sleep 600; : " + c.path("x")}}
	if err := c.start(ctx, s); err != nil {
		t.Fatal(err)
	}
	pid := c.pid("sleeper")
	if pid == 0 {
		t.Fatal("it does not run")
	}
	if err := c.start(ctx, s); err != nil || c.pid("sleeper") != pid {
		t.Errorf("a second start: process %d became %d, %v", pid, c.pid("sleeper"), err)
	}
	if err := c.end(ctx, "sleeper"); err != nil || c.pid("sleeper") != 0 {
		t.Errorf("end: %v, process %d", err, c.pid("sleeper"))
	}
	if err := c.end(ctx, "sleeper"); err != nil {
		t.Errorf("end of what has ended: %v", err)
	}
}

func TestStartTellsOfAnEarlyEnd(t *testing.T) {
	c := testCluster(t)
	s := service{
		name:  "quitter",
		file:  "/bin/sh",
		args:  []string{"-c", "exit 1; : " + c.path("x")},
		ready: func(context.Context) error { return errors.New("not ready") },
	}
	begun := time.Now()
	err := c.start(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "it has ended") || time.Since(begun) > 30*time.Second {
		t.Errorf("start = %v", err)
	}
}

func TestStartRefusesAStrangerInItsPlace(t *testing.T) {
	c := testCluster(t)
	answers := func(context.Context) error { return nil }
	err := c.start(t.Context(), service{name: "taken", file: "/bin/false", args: []string{c.path("x")}, ready: answers})
	if err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("start = %v", err)
	}
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		err := retry(t.Context(), time.Second, func() error {
			if n++; n < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if err != nil || n != 3 {
			t.Errorf("retry = %v after %d tries", err, n)
		}
		never := errors.New("never")
		if err := retry(t.Context(), time.Second, func() error { return stop{never} }); !errors.Is(err, never) {
			t.Errorf("retry of what cannot work = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := retry(ctx, time.Second, func() error { return never }); !errors.Is(err, never) {
			t.Errorf("retry until the end = %v", err)
		}
	})
}

func TestCanJoin(t *testing.T) {
	agent := func(help string) string {
		file := filepath.Join(t.TempDir(), "agent")
		if err := os.WriteFile(file, []byte("#!/bin/sh\necho '"+help+"'\nexit 2\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("the agents of this test are shell scripts: ", err)
	}
	if err := CanJoin(t.Context(), NodeAgent, agent("  -root-dir")); !errors.Is(err, ErrCannotJoin) {
		t.Errorf("without a flag for a kubeconfig: %v", err)
	}
	if err := CanJoin(t.Context(), NodeAgent, agent("  -kubeconfig file")); err != nil {
		t.Errorf("with one: %v", err)
	}
	if err := CanJoin(t.Context(), NodeAgent, "/nowhere"); err == nil || errors.Is(err, ErrCannotJoin) {
		t.Errorf("no agent at all: %v", err)
	}
	if err := CanJoin(t.Context(), Kubelet, ""); err != nil {
		t.Errorf("the kubelet: %v", err)
	}
}

func TestRemoveCgroupsSparesWhatIsInUse(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"gone/a/b", "gone/c", "kept/a", "kept/b"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kept/a/file"), nil, 0o644); err != nil { // as a process in it
		t.Fatal(err)
	}
	if err := removeCgroups(filepath.Join(dir, "gone")); err != nil {
		t.Error(err)
	}
	if err := removeCgroups(filepath.Join(dir, "kept")); err == nil {
		t.Error("no error although a file was in the way")
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*/*"))
	if len(left) != 1 || filepath.Base(left[0]) != "a" {
		t.Errorf("left: %v", left)
	}
}

func TestRemoveLinksSparesOthers(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{"ours": "/bed/logs/x", "theirs": "/bed2/logs/x"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeLinks(dir, "/bed"); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 1 || filepath.Base(left[0]) != "theirs" {
		t.Errorf("left: %v", left)
	}
}
