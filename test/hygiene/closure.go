package hygiene

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// alone are the packages that a stranger's module imports, each by itself.
func alone() []string {
	return []string{"probe", "pleg", "imagegc", "eviction", "observe", "runtime/plan", "status"}
}

// closure makes a module in a temporary folder that imports one package, builds it, and looks at what came along.
func closure(ctx context.Context, r *Repo) (string, error) {
	most, err := r.budgets()
	if err != nil {
		return "", err
	}
	var notes []string
	var errs []error
	for _, pkg := range alone() {
		note, err := r.stranger(ctx, pkg, most[pkg])
		notes = append(notes, note)
		if err != nil {
			errs = append(errs, fmt.Errorf("import %s alone: %w", pkg, err))
		}
	}
	return "packages and sums: " + strings.Join(notes, ", "), errors.Join(errs...)
}

func (r *Repo) stranger(ctx context.Context, pkg string, most int) (string, error) {
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
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // nothing but the standard library
	}
	if err != nil {
		return "", err
	}
	packages, modules := came(theirs)
	wanted, _ := came(ours)
	note := fmt.Sprintf("%s %d %d", pkg, len(packages), len(summed(string(sums))))
	if len(packages) > most {
		err = fmt.Errorf("%d packages come along, the budget in deps_test.go is %d", len(packages), most)
	}
	return note, errors.Join(err, same("its closure", packages, wanted), same("the modules in go.sum", summed(string(sums)), modules))
}

// budgets reads how many packages each package may bring, the last number of its row in deps_test.go.
func (r *Repo) budgets() (map[string]int, error) {
	file := filepath.Join(r.Root, "deps_test.go")
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return nil, err
	}
	most := map[string]int{}
	ast.Inspect(f, func(n ast.Node) bool {
		row, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isKey := row.Key.(*ast.BasicLit)
		rule, isRule := row.Value.(*ast.CompositeLit)
		if !isKey || !isRule || len(rule.Elts) != 3 {
			return true
		}
		number, isNumber := rule.Elts[2].(*ast.BasicLit)
		if !isNumber {
			return true
		}
		name, nameErr := strconv.Unquote(key.Value)
		budget, numberErr := strconv.Atoi(number.Value)
		err = errors.Join(err, nameErr, numberErr)
		most[name] = budget
		return false
	})
	if len(most) == 0 {
		err = errors.Join(err, fmt.Errorf("%s has no rows of rules any more", file))
	}
	return most, err
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
