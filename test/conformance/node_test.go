package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestNodeSuiteArguments(t *testing.T) {
	n := &NodeSuite{Host: "https://h", Token: "t", Name: "n", Runtime: "unix:///r"}
	args := n.arguments(Config{Bin: "/bin", Dir: "/d", Focus: "F", Skip: "S"})
	end := slices.Index(args, "--")
	for _, want := range []string{"--focus=F", "--skip=S", "--focus-file=/e2e_node/", "--output-dir=/d"} {
		if i := slices.Index(args, want); i < 0 || i > end {
			t.Errorf("ginkgo does not get %s: %v", want, args)
		}
	}
	for _, want := range []string{"--conformance", "--start-services=false", "--bearer-token=t", "--host=https://h", "--node-name=n"} {
		if i := slices.Index(args, want); i < end {
			t.Errorf("the specs do not get %s: %v", want, args)
		}
	}
}

// The stand-ins name the agent's unit, and start the agent again as it was started.
func TestStandIns(t *testing.T) {
	for _, tool := range []string{"bash", "setsid"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("the stand-ins are scripts: ", err)
		}
	}
	dir := t.TempDir()
	n := &NodeSuite{PIDFile: filepath.Join(dir, "pid"), Log: filepath.Join(dir, "log")}
	undo, err := n.prepare(dir)
	if err != nil {
		if os.IsPermission(err) {
			t.Skip("/rootfs cannot be made: ", err)
		}
		t.Fatal(err)
	}
	defer undo()
	agent := exec.Command("sleep", "1000")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	writePID(t, n.PIDFile, agent.Process.Pid)
	run := func(args ...string) string {
		cmd := exec.Command(filepath.Join(dir, "bin", "sudo"), append([]string{"systemctl"}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	if out := run("list-units", "*kubelet*", "--state=running"); !strings.Contains(out, "kubelet-bed") {
		t.Errorf("units: %s", out)
	}
	run("reset-failed", "kubelet-bed")
	run("restart", "kubelet-bed")
	<-ended
	pid := readPID(t, n.PIDFile)
	p, err := os.FindProcess(pid)
	if err != nil || pid == agent.Process.Pid {
		t.Fatalf("process %d, %v", pid, err)
	}
	defer func() { _ = p.Kill() }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if string(line) == "sleep\x001000\x00" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("started again as %q", line)
		}
	}
	run("stop", "kubelet-bed")
	if line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); len(line) > 0 {
		t.Errorf("still there: %q", line)
	}
}

func writePID(t *testing.T, file string, pid int) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readPID(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
