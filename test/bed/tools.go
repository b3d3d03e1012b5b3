package bed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// RuntimeTools are the tool modules a running bed needs.
func RuntimeTools() []string { return []string{"containerd", "runc", "crictl"} }

// BinDir is where built tools lie: kubeletkit/bin in the user's cache.
func BinDir() string { return filepath.Join(cacheDir(), "bin") }

func cacheDir() string {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(base, "kubeletkit")
}

// EnsureTools builds tool modules (folders of test/tools) whose programs are missing or older than the
// module, and returns the directory of the programs. log may be nil.
func EnsureTools(ctx context.Context, log io.Writer, names ...string) (bin string, err error) {
	root, err := testModule()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(BinDir(), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(cacheDir(), "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	for _, name := range names {
		if err := ensureTool(ctx, log, filepath.Join(root, "tools", name)); err != nil {
			return "", fmt.Errorf("build tools of %s: %w", name, err)
		}
	}
	return BinDir(), nil
}

func ensureTool(ctx context.Context, log io.Writer, module string) error {
	name := filepath.Base(module)
	stamp := filepath.Join(cacheDir(), name+".stamp")
	want, err := toolStamp(module)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want && exist(strings.Fields(want)[1:]) {
		return nil
	}
	if log != nil {
		fmt.Fprintf(log, "bed: building the tools of %s, which takes minutes the first time\n", name)
	}
	tmp, err := os.MkdirTemp(cacheDir(), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	args, env := buildFlags(name)
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", tmp + "/"}, args...), "tool")...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), env...)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(msg))
	}
	built, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, f := range built { // by renaming: a program that runs is not disturbed
		if err := os.Rename(filepath.Join(tmp, f.Name()), filepath.Join(BinDir(), f.Name())); err != nil {
			return err
		}
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// buildFlags are the flags and environment a tool is built with. They are part of its stamp.
func buildFlags(name string) (args, env []string) {
	args, env = []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w"}, []string{"CGO_ENABLED=0"}
	if name == "runc" { // seccomp profiles need libseccomp
		args, env = append(args, "-tags=seccomp"), []string{"CGO_ENABLED=1"}
	}
	return args, env
}

// toolStamp says what the programs of a module are built from, and after that which programs those are.
func toolStamp(module string) (string, error) {
	args, env := buildFlags(filepath.Base(module))
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, args, env)
	var programs []string
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, file))
		if err != nil {
			return "", err
		}
		h.Write(data)
		if file == "go.mod" {
			programs = toolNames(string(data))
		}
	}
	return fmt.Sprintf("%x %s\n", h.Sum(nil), strings.Join(programs, " ")), nil
}

// toolNames are the names of the programs that the tool lines of a go.mod file ask for.
func toolNames(gomod string) []string {
	var names []string
	inBlock := false
	for line := range strings.Lines(gomod) {
		switch f := strings.Fields(line); {
		case len(f) == 0:
		case f[0] == "tool" && len(f) == 2 && f[1] == "(":
			inBlock = true
		case f[0] == "tool" && len(f) == 2:
			names = append(names, filepath.Base(f[1]))
		case inBlock && f[0] == ")":
			inBlock = false
		case inBlock:
			names = append(names, filepath.Base(f[0]))
		}
	}
	return names
}

// exist tells whether all these programs lie in BinDir.
func exist(programs []string) bool {
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(BinDir(), p)); err != nil {
			return false
		}
	}
	return true
}

// testModule finds the directory of this module from anywhere inside the checkout.
func testModule() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "tools", "containerd", "go.mod")); err == nil {
			return filepath.Join(dir, "test"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find test/tools: run this inside the checkout")
		}
		dir = filepath.Dir(dir)
	}
}
