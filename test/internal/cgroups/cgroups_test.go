package cgroups

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestMakeAndRemove(t *testing.T) {
	above := Of(fmt.Sprintf("unix:///test-%d.sock", os.Getpid()))
	own := above + "/1"
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if err := Make(own); err != nil {
		t.Skip("no cgroup can be made here:", err)
	}
	if err := Make(own); err != nil {
		t.Error("again:", err)
	}
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, file := range Files(own, "cgroup.procs") {
		if err := os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Error(err)
		}
	}
	if err := Remove(t.Context(), above); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("what ran there ended well")
	}
	if left, _ := filepath.Glob(Mount + "/*" + above); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := Remove(t.Context(), above); err != nil {
		t.Error("again:", err)
	}
	if Remove(t.Context(), "/") == nil {
		t.Error("the root of all was removed")
	}
}
