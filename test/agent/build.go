package agent

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kubeletkit/kubeletkit/test/bed"
)

// Program compiles the agent, once in a test process, and returns its path. It lies in the cache of the test tools, one for
// each checkout. GOFLAGS counts: with GOFLAGS=-race the agent looks for races too.
func Program(tb testing.TB) string {
	tb.Helper()
	path, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

//nolint:gochecknoglobals // a test process has one program
var build = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeletkit/kubeletkit/test").Output()
	if err != nil {
		return "", fmt.Errorf("find the agent's source: %w", err)
	}
	module := filepath.Dir(strings.TrimSpace(string(out))) // this module lies within the agent's
	dir := filepath.Join(filepath.Dir(bed.BinDir()), "agent", fmt.Sprintf("%.8x", sha256.Sum256([]byte(module))))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(tmp, "nodeagent"), "./examples/nodeagent")
	cmd.Dir = module
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the agent: %w: %s", err, msg)
	}
	path := filepath.Join(dir, "nodeagent")
	return path, os.Rename(filepath.Join(tmp, "nodeagent"), path) // one that runs is not disturbed
})
