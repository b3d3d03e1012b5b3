package images

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The images that Build makes.
const (
	Pause   = "registry.k8s.io/pause:3.10.2"                     // holds a sandbox
	Busybox = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2" // a shell and the usual commands
	Demo    = "kubeletkit.dev/demo:1"                            // web server, job, crash, wait; see demo/main.go

)

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// An Archive is a built image.
type Archive struct {
	Ref    string // its name with a tag
	Digest string // of its manifest, "sha256:…"
	Data   []byte // an OCI image layout as tar, as ctr imports it
}

var (
	//go:embed pause/pause.c
	pauseSource []byte
	//go:embed sh/sh.c
	shellSource []byte
	//go:embed nmeter/nmeter.c
	nmeterSource []byte
)

// Build makes all images. testModule is the directory of the module this package is in; the demo
// program is compiled there.
func Build(ctx context.Context, testModule string) ([]Archive, error) {
	tmp, err := os.MkdirTemp("", "kubeletkit-images-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	pause, err := compileC(ctx, pauseSource, filepath.Join(tmp, "pause"))
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", Pause, err)
	}
	busybox, err := busyboxRoot(ctx)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", Busybox, err)
	}
	demo, err := compileDemo(ctx, testModule, filepath.Join(tmp, "demo"))
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", Demo, err)
	}
	demoRoot := rootFS{}
	demoRoot.addDir("tmp", 0o1777)
	demoRoot.addFile("demo", demo, 0o755)
	pauseRoot := rootFS{}
	pauseRoot.addFile("pause", pause, 0o755)

	var all []Archive
	for _, i := range []struct {
		ref  string
		root rootFS
		conf config
	}{
		{Pause, pauseRoot, config{User: "65535:65535", Env: []string{searchPath}, Entrypoint: []string{"/pause"}}},
		{Busybox, busybox, config{Env: []string{searchPath}, Cmd: []string{"sh"}}},
		{Demo, demoRoot, config{Env: []string{searchPath}, Entrypoint: []string{"/demo"}, Cmd: []string{"web"}}},
	} {
		data, digest, err := pack(i.ref, runtime.GOARCH, i.root, i.conf)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", i.ref, err)
		}
		all = append(all, Archive{Ref: i.ref, Digest: digest, Data: data})
	}
	return all, nil
}

// Random makes an image of one file of so many bytes that no other image shares anything with. Nothing in it can be run.
func Random(ref string, size int) (Archive, error) {
	content := make([]byte, size)
	_, _ = rand.Read(content) // never fails
	root := rootFS{}
	root.addFile("random", content, 0o644)
	data, digest, err := pack(ref, runtime.GOARCH, root, config{})
	if err != nil {
		return Archive{}, fmt.Errorf("build %s: %w", ref, err)
	}
	return Archive{Ref: ref, Digest: digest, Data: data}, nil
}

// compileC makes a static program of one file of C.
func compileC(ctx context.Context, source []byte, out string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-static", "-s", "-Wl,--build-id=none", "-x", "c", "-o", out, "-")
	cmd.Stdin = bytes.NewReader(source)
	return compile(cmd, out)
}

func compileDemo(ctx context.Context, testModule, out string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", out, "./images/demo")
	cmd.Dir = testModule
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	return compile(cmd, out)
}

// compile runs a compiler that writes to out, and returns what it wrote.
func compile(cmd *exec.Cmd, out string) ([]byte, error) {
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run %s: %w: %s", cmd.Args[0], err, bytes.TrimSpace(msg))
	}
	return os.ReadFile(out)
}

// busyboxRoot is a small system around the host's static busybox, with a link for each command it knows. Its
// shell is described in sh/sh.c. Upstream's specs want it to call itself Alpine Linux.
func busyboxRoot(ctx context.Context) (rootFS, error) {
	const program = "/bin/busybox"
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	bash, err := os.ReadFile("/bin/bash-static")
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "kubeletkit-images-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	shell, err := compileC(ctx, shellSource, filepath.Join(tmp, "sh"))
	if err != nil {
		return nil, err
	}
	nmeter, err := compileC(ctx, nmeterSource, filepath.Join(tmp, "nmeter"))
	if err != nil {
		return nil, err
	}
	list, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the commands of %s: %w", program, err)
	}
	root := rootFS{}
	for _, dir := range []string{"bin", "dev", "etc", "home", "proc", "sys", "usr", "var", "var/log", "var/run"} {
		root.addDir(dir, 0o755)
	}
	root.addDir("root", 0o700)
	root.addDir("tmp", 0o1777)
	for name := range strings.FieldsSeq(string(list)) {
		root.addLink("bin/"+name, "busybox")
	}
	root.addFile("bin/busybox", data, 0o755)
	root.addFile("bin/bash-static", bash, 0o755)
	root.addFile("bin/sh", shell, 0o755)
	root.addFile("bin/nmeter", nmeter, 0o755)
	root.addLink("sbin", "bin")
	root.addLink("usr/bin", "../bin")
	root.addLink("usr/sbin", "../bin")
	for name, text := range map[string]string{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n",
		"etc/group":         "root:x:0:\nnobody:x:65534:\n",
		"etc/nsswitch.conf": "hosts: files dns\n",
		"etc/os-release":    "NAME=\"Alpine Linux\"\nID=alpine\n",
	} {
		root.addFile(name, []byte(text), 0o644)
	}
	return root, nil
}
