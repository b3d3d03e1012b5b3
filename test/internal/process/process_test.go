package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// sleeper starts a process that only a signal ends, and that never forks.
func sleeper(t *testing.T) (pid int, match Match) {
	t.Helper()
	mark := t.Name() + "-" + strconv.Itoa(os.Getpid())
	cmd := exec.Command("sh", "-c", "echo; read forever", mark)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil { // it is past its beginning
		t.Fatal(err)
	}
	return cmd.Process.Pid, func(args []string) bool { return slices.Contains(args, mark) }
}

func TestFindAndEnd(t *testing.T) {
	pid, match := sleeper(t)
	if got := Find(match); !slices.Equal(got, []int{pid}) {
		t.Fatalf("Find = %v, want %d", got, pid)
	}
	if err := End(t.Context(), pid, match, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := Find(match); len(got) > 0 {
		t.Errorf("a process that has ended but was not waited for is found: %v", got)
	}
	if err := End(t.Context(), pid, match, syscall.SIGTERM); err != nil {
		t.Errorf("End of one that has ended: %v", err)
	}
}

func TestEndLeavesOthersAlone(t *testing.T) {
	pid, match := sleeper(t)
	never := func([]string) bool { return false }
	if err := End(t.Context(), pid, never, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !match(Arguments(pid)) {
		t.Error("a process was ended that is not what was looked for")
	}
}

func TestFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	own := func(args []string) bool { return slices.Equal(args, os.Args) }
	for text, want := range map[string]int{
		strconv.Itoa(os.Getpid()) + "\n": os.Getpid(),
		"1\n":                            0, // another process has the number
		"x":                              0,
		"":                               0,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := FromFile(path, own); got != want {
			t.Errorf("FromFile(%q) = %d, want %d", text, got, want)
		}
	}
	if got := FromFile(path+"-missing", own); got != 0 {
		t.Errorf("FromFile of a missing file = %d", got)
	}
}
