package hygiene

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// reproducible builds nodeagent here and, with a build cache of its own that shares nothing with the usual one, from a copy
// elsewhere, and compares the two byte by byte. Beside the program it leaves its bill of materials, both in bin.
func reproducible(ctx context.Context, r *Repo) (string, error) {
	here := filepath.Join(r.Root, "bin", "nodeagent")
	if err := r.buildAgent(ctx, r.Root, here); err != nil {
		return "", err
	}
	elsewhere, err := os.MkdirTemp("", "kubeletkit-build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(elsewhere)
	source := filepath.Join(elsewhere, "a", "deeper", "folder")
	if err := r.copySources(ctx, source); err != nil {
		return "", err
	}
	there := filepath.Join(elsewhere, "nodeagent")
	if err := r.buildAgent(ctx, source, there, "GOCACHE="+filepath.Join(r.Cache, "hygiene", "second-build")); err != nil {
		return "", err
	}
	one, err := os.ReadFile(here)
	if err != nil {
		return "", err
	}
	two, err := os.ReadFile(there)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(one, two) {
		return "", fmt.Errorf("two builds differ: %d and %d bytes, first at %d; does something in them depend on the place, or on the state of the sources?", len(one), len(two), differ(one, two))
	}
	n, err := r.bill(ctx, here, here+".cdx.json")
	return fmt.Sprintf("%d MB, the same twice; %d modules in bin/nodeagent.cdx.json", len(one)>>20, n), err
}

// buildAgent makes the program as it is given to others.
func (r *Repo) buildAgent(ctx context.Context, source, to string, env ...string) error {
	env = append([]string{"CGO_ENABLED=0", "GOOS=linux"}, env...)
	_, err := r.run(ctx, command{dir: source, env: env, args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-o", to, "./examples/nodeagent"}})
	return err
}

// copySources copies what git knows, as it is now.
func (r *Repo) copySources(ctx context.Context, to string) error {
	out, err := r.run(ctx, command{dir: ".", args: []string{"git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"}})
	if err != nil {
		return err
	}
	for name := range bytes.SplitSeq([]byte(out), []byte{0}) {
		from, to := filepath.Join(r.Root, string(name)), filepath.Join(to, string(name))
		info, err := os.Lstat(from)
		if len(name) == 0 || errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // removed and not yet committed, or a link
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, info.Mode().Perm())); err != nil {
			return err
		}
	}
	return nil
}

// differ is the first place where two contents differ.
func differ(one, two []byte) int {
	for i := range min(len(one), len(two)) {
		if one[i] != two[i] {
			return i
		}
	}
	return min(len(one), len(two))
}
