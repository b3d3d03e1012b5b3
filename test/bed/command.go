package bed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// environ is the environment for containerd and its tools: their directory comes first, which also
// decides which runc the shims take.
func environ() []string {
	return append(os.Environ(), "PATH="+BinDir()+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
}

// Env is what a shell or a test needs to reach this bed, as NAME=value: the address of the CRI, a
// configuration for crictl, and a PATH with the built tools.
func (b *Bed) Env() []string {
	return []string{
		"CONTAINER_RUNTIME_ENDPOINT=" + b.Endpoint(),
		"CRI_CONFIG_FILE=" + b.path("crictl.yaml"),
		"PATH=" + BinDir() + ":" + os.Getenv("PATH"),
	}
}

// output runs a command and returns what it printed; an error carries what it complained about.
func output(ctx context.Context, stdin []byte, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environ()
	if path := lookPath(name); path != "" {
		cmd.Path, cmd.Err = path, nil
	}
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// lookPath finds a tool of ours, or one of the system that is outside the PATH of plain users.
func lookPath(name string) string {
	for _, dir := range []string{BinDir(), "/usr/sbin", "/sbin"} {
		if info, err := os.Stat(dir + "/" + name); err == nil && info.Mode().IsRegular() {
			return dir + "/" + name
		}
	}
	return ""
}

func (b *Bed) crictl(ctx context.Context, args ...string) (string, error) {
	// The endpoints are flags too: a CONTAINER_RUNTIME_ENDPOINT of another bed would beat the configuration.
	global := []string{"--config", b.path("crictl.yaml"), "--runtime-endpoint", b.Endpoint(), "--image-endpoint", b.Endpoint()}
	return output(ctx, nil, "crictl", append(global, args...)...)
}

func (b *Bed) ctr(ctx context.Context, stdin []byte, args ...string) (string, error) {
	global := []string{"--address", b.path("containerd.sock"), "--namespace", "k8s.io"}
	return output(ctx, stdin, "ctr", append(global, args...)...)
}
