package hygiene

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// alone are the packages that a stranger's module imports, each by itself.
func alone() []string {
	return []string{"probe", "pleg", "imagegc", "observe", "runtime/plan", "status"}
}

// closure makes a module in a temporary folder that imports one package, builds it, and looks at what came along.
func closure(ctx context.Context, r *Repo) (string, error) {
	var notes []string
	var errs []error
	for _, pkg := range alone() {
		note, err := r.stranger(ctx, pkg)
		notes = append(notes, note)
		if err != nil {
			errs = append(errs, fmt.Errorf("import %s alone: %w", pkg, err))
		}
	}
	return "packages and sums: " + strings.Join(notes, ", "), errors.Join(errs...)
}

func (r *Repo) stranger(ctx context.Context, pkg string) (string, error) {
	dir, err := os.MkdirTemp("", "kubeletkit-stranger-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	gomod := fmt.Sprintf("module example.com/stranger\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %[1]s => %s\n", Module, r.Root)
	program := fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", Module+"/"+pkg)
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte(gomod), 0o644),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644))
	if err != nil {
		return "", err
	}
	if _, err := r.run(ctx, command{dir: dir, args: []string{"go", "build", "-mod=mod", "-o", os.DevNull, "."}}); err != nil {
		return "", err
	}
	const format = "{{.ImportPath}}{{if not .Standard}}{{with .Module}} {{.Path}}{{end}}{{end}}"
	theirs, err := r.run(ctx, command{dir: dir, args: []string{"go", "list", "-deps", "-f", format, Module + "/" + pkg}})
	if err != nil {
		return "", err
	}
	ours, err := r.golang(ctx, ".", "list", "-deps", "-f", format, "./"+pkg)
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	packages, modules := came(theirs)
	wanted, _ := came(ours)
	note := fmt.Sprintf("%s %d %d", pkg, len(packages), len(summed(string(sums))))
	return note, errors.Join(same("its closure", packages, wanted), same("the modules in go.sum", summed(string(sums)), modules))
}

// came reads lines of a package and its module: the packages, and the modules of others.
func came(listing string) (packages, modules []string) {
	seen := map[string]bool{}
	for line := range strings.Lines(listing) {
		f := strings.Fields(line)
		packages = append(packages, f[0])
		if len(f) == 2 && f[1] != Module {
			seen[f[1]] = true
		}
	}
	slices.Sort(packages)
	return packages, slices.Sorted(maps.Keys(seen))
}

// summed are the modules whose code, not only go.mod, has a line in go.sum.
func summed(gosum string) []string {
	seen := map[string]bool{}
	for line := range strings.Lines(gosum) {
		if f := strings.Fields(line); len(f) == 3 && !strings.HasSuffix(f[1], "/go.mod") {
			seen[f[0]] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func same(what string, have, want []string) error {
	var errs []error
	for _, s := range have {
		if !slices.Contains(want, s) {
			errs = append(errs, fmt.Errorf("%s: %s is more than is needed", what, s))
		}
	}
	for _, s := range want {
		if !slices.Contains(have, s) {
			errs = append(errs, fmt.Errorf("%s: %s is missing", what, s))
		}
	}
	return errors.Join(errs...)
}
