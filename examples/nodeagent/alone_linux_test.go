package main

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An agent must start where there is no room for one more file: it is there to make some.
func TestAFullDiskKeepsNoAgentFromStarting(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "nr_inodes=1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, 0) })
	var said bytes.Buffer
	release, err := alone(t.Context(), root, 0, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil || !strings.Contains(said.String(), "cannot be locked") {
		t.Fatal(err, said.String())
	}
	release()
}
