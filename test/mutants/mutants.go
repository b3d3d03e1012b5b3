package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Mutant is one deliberate fault.
type Mutant struct {
	Name  string // of its file, without .patch
	Fault string // what is wrong with it in
	File  string // that it changes, from the root of the module
	Hunks []Hunk
}

// Hunk is lines of a file and what stands there in their place.
type Hunk struct{ Old, New string }

// Read reads all mutants of a directory, in the order of their names.
func Read(dir string) ([]Mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []Mutant
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parse(string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m.Name = strings.TrimSuffix(filepath.Base(path), ".patch")
		all = append(all, m)
	}
	return all, nil
}

func parse(patch string) (m Mutant, err error) {
	head, diff, _ := strings.Cut(patch, "--- a/")
	m.Fault, _, _ = strings.Cut(head, "\n")
	for i, line := range strings.SplitAfter("--- a/"+diff, "\n") {
		switch {
		case i == 0 || line == "":
		case strings.HasPrefix(line, "+++ b/"):
			m.File = strings.TrimSpace(strings.TrimPrefix(line, "+++ b/"))
		case strings.HasPrefix(line, "@@"):
			m.Hunks = append(m.Hunks, Hunk{})
		case len(m.Hunks) == 0:
			return m, fmt.Errorf("line %q comes before the first hunk", line)
		default:
			h := &m.Hunks[len(m.Hunks)-1]
			if line[0] != '+' {
				h.Old += line[1:]
			}
			if line[0] != '-' {
				h.New += line[1:]
			}
		}
	}
	if m.Fault == "" || m.File == "" || len(m.Hunks) == 0 {
		return m, errors.New("want a line that says what is wrong, then a unified diff of one file")
	}
	return m, nil
}

// Apply is the file with the fault in it.
func (m Mutant) Apply(file string) (string, error) {
	for i, h := range m.Hunks {
		if n := strings.Count(file, h.Old); n != 1 {
			return "", fmt.Errorf("%s: hunk %d fits %s in %d places, not in one; draw it anew", m.Name, i+1, m.File, n)
		}
		file = strings.Replace(file, h.Old, h.New, 1)
	}
	return file, nil
}

// Verdict is what the tests say of a mutant.
type Verdict struct {
	Caught bool
	By     []string // tests that failed
	Output string   // of the run
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// Try runs the tests of the package a mutant is in, in the module at root. A mutant that does not compile is an error.
func (m Mutant) Try(ctx context.Context, root string) (Verdict, error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return Verdict{}, err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return Verdict{}, err
	}
	pkg := "./" + filepath.Dir(m.File)
	if out, err := run(ctx, root, "build", "-overlay", overlay, pkg); err != nil {
		return Verdict{}, fmt.Errorf("%s does not compile: %w\n%s", m.Name, err, out)
	}
	out, err := run(ctx, root, "test", "-overlay", overlay, "-count=1", "-failfast", "-timeout", "15m", pkg)
	if ctx.Err() != nil {
		return Verdict{}, ctx.Err()
	}
	v := Verdict{Caught: err != nil, Output: out}
	for _, match := range failed.FindAllStringSubmatch(out, -1) {
		v.By = append(v.By, match[1])
	}
	return v, nil
}

// overlay writes the changed file and the list that has the compiler read it.
func (m Mutant) overlay(root, dir string) (path string, err error) {
	original := filepath.Join(root, m.File)
	b, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	text, err := m.Apply(string(b))
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "changed.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(path, list, 0o600))
}

func run(ctx context.Context, dir string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	err := cmd.Run()
	return out.String(), err
}
