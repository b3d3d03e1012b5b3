package hygiene

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Module is the path of the module that strangers import.
const Module = "github.com/kubeletkit/kubeletkit"

// Repo is a checkout to look at. Root and Cache are required, and absolute.
type Repo struct {
	Root  string                                                         // its folder
	Cache string                                                         // folder for what is worth keeping between two runs
	Tools func(ctx context.Context, name string) (dir string, err error) // builds a folder of test/tools, and says where the programs are
}

// Check is one thing to look at.
type Check struct {
	Name string // one word
	What string // what it holds, in a few words
	Do   func(ctx context.Context, r *Repo) (note string, err error)
}

// Checks are all there are, the quick ones first.
func Checks() []Check {
	return []Check{
		{"docs", "links lead somewhere, packages have documentation and an example, versions in it are those of go.mod", docs},
		{"tidy", "go.mod and go.sum of every module are what go mod tidy makes", tidy},
		{"licences", "the licences of all modules in our programs are known and allowed, and NOTICE names them", licences},
		{"unit", "make install puts all in place, and systemd takes the unit", install},
		{"closure", "a module that imports one package gets its closure and no other module's sums", closure},
		{"verify", "modules in the cache are what go.sum says", verify},
		{"linux", "everything builds for amd64, arm64 and arm", linux},
		{"portable", "portable packages vet on darwin and windows", portable},
		{"vulns", "no known vulnerability of a module is reached", vulns},
		{"api", "what changed for importers since the last release", api},
		{"build", "nodeagent, built twice in different places, is one and the same; its bill of materials", reproducible},
	}
}

// Run does the checks with these names, all without names, and writes a line for each. The error says which ones failed.
func Run(ctx context.Context, r *Repo, out io.Writer, names ...string) error {
	checks, err := pick(Checks(), names)
	if err != nil {
		return err
	}
	var failed []string
	for _, c := range checks {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		start := time.Now()
		note, err := c.Do(ctx, r)
		took := time.Since(start).Round(100 * time.Millisecond)
		if err != nil {
			failed = append(failed, c.Name)
			fmt.Fprintf(out, "FAIL  %-9s %6s  %s\n", c.Name, took, c.What)
			fmt.Fprintln(out, indent(err.Error()))
			continue
		}
		fmt.Fprintf(out, "ok    %-9s %6s  %s\n", c.Name, took, note)
	}
	if len(failed) > 0 {
		return fmt.Errorf("these checks failed: %s", strings.Join(failed, " "))
	}
	return nil
}

func pick(all []Check, names []string) ([]Check, error) {
	if len(names) == 0 {
		return all, nil
	}
	var picked []Check
	for _, name := range names {
		at := slices.IndexFunc(all, func(c Check) bool { return c.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no check %q", name)
		}
		picked = append(picked, all[at])
	}
	return picked, nil
}

func indent(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}

// modules are the folders of the modules of this repository, relative to its root: the one for strangers first, then the tests',
// then the tools'.
func (r *Repo) modules() ([]string, error) {
	tools, err := filepath.Glob(filepath.Join(r.Root, "test", "tools", "*", "go.mod"))
	if err != nil {
		return nil, err
	}
	dirs := []string{".", "test"}
	for _, file := range tools {
		dir, err := filepath.Rel(r.Root, filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// command is a program to run in a folder of the repository.
type command struct {
	dir  string   // relative to the root, or absolute
	env  []string // beside that of this process
	args []string
}

// run gives what a command prints. What it complains about is in the error.
func (r *Repo) run(ctx context.Context, c command) (string, error) {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir = c.dir
	if !filepath.IsAbs(cmd.Dir) {
		cmd.Dir = filepath.Join(r.Root, c.dir)
	}
	cmd.Env = append(os.Environ(), c.env...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		said := strings.TrimSpace(complaints.String() + string(out))
		return string(out), fmt.Errorf("%s in %s: %w\n%s", strings.Join(append(slices.Clone(c.env), c.args...), " "), cmd.Dir, err, shorten(said, 60))
	}
	return string(out), nil
}

// golang runs the go command in a module of the repository.
func (r *Repo) golang(ctx context.Context, dir string, args ...string) (string, error) {
	return r.run(ctx, command{dir: dir, args: append([]string{"go"}, args...)})
}

// shorten keeps the first lines of a text.
func shorten(text string, most int) string {
	lines := strings.Split(text, "\n")
	if len(lines) <= most {
		return text
	}
	return strings.Join(lines[:most], "\n") + fmt.Sprintf("\n(and %d lines more)", len(lines)-most)
}

// once does what is needed at most once for each key: a later call with the same key finds its mark in the cache.
func (r *Repo) once(name, key string, do func() error) error {
	mark := filepath.Join(r.Cache, "hygiene", name)
	if have, err := os.ReadFile(mark); err == nil && string(have) == key {
		return nil
	}
	if err := do(); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(mark), 0o755), os.WriteFile(mark, []byte(key), 0o644))
}
