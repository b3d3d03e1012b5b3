package hygiene

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// docs looks at the documentation: links in Markdown lead to files, packages say what they are and show it in an example that is
// run, and versions.md names the versions of go.mod.
func docs(ctx context.Context, r *Repo) (string, error) {
	links, errs := r.links()
	packages, more := r.documented(ctx)
	errs = append(append(errs, more...), r.versions()...)
	return fmt.Sprintf("%d links, %d packages", links, packages), errors.Join(errs...)
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// links follows the relative links of the Markdown files.
func (r *Repo) links() (n int, errs []error) {
	err := filepath.WalkDir(r.Root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != r.Root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(file) != ".md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], ":") {
				continue // elsewhere
			}
			n++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				errs = append(errs, fmt.Errorf("%s links to %s, which is not there", file, m[1]))
			}
		}
		return nil
	})
	if err != nil {
		errs = append(errs, err)
	}
	return n, errs
}

// documented looks for a package comment and an example with output in each package that strangers can import.
func (r *Repo) documented(ctx context.Context) (n int, errs []error) {
	out, err := r.golang(ctx, ".", "list", "-f", "{{.Name}} {{.ImportPath}} {{.Dir}}", "./...")
	if err != nil {
		return 0, []error{err}
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		example := f[1] == Module+"/examples/probetest" // is one itself
		if f[0] == "main" || f[1] == Module || example || strings.Contains(f[1], "/internal/") {
			continue
		}
		n++
		comment, shown, err := described(f[2])
		switch {
		case err != nil:
			errs = append(errs, err)
		case !comment:
			errs = append(errs, fmt.Errorf("%s has no package comment", f[1]))
		case !shown:
			errs = append(errs, fmt.Errorf("%s has no example whose output is compared", f[1]))
		}
	}
	return n, errs
}

// described reads the Go files of a folder.
func described(dir string) (comment, example bool, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false, false, err
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return false, false, err
		}
		if !strings.HasSuffix(file, "_test.go") {
			comment = comment || f.Doc != nil
			continue
		}
		example = example || hasExample(f)
	}
	return comment, example, nil
}

// hasExample finds an example that go test runs, or that only a test can show.
func hasExample(f *ast.File) bool {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(fn.Name.Name, "Example") {
			continue
		}
		for _, c := range f.Comments {
			text := strings.ToLower(strings.TrimSpace(c.Text()))
			if c.Pos() > fn.Pos() && c.End() < fn.End() && (strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")) {
				return true
			}
		}
	}
	return false
}

// versions holds docs/versions.md to the versions that are built and tested with.
func (r *Repo) versions() (errs []error) {
	text, err := os.ReadFile(filepath.Join(r.Root, "docs", "versions.md"))
	if err != nil {
		return []error{err}
	}
	for _, want := range []struct{ gomod, module, name string }{
		{"go.mod", "k8s.io/api", "k8s.io/api "},
		{"go.mod", "k8s.io/cri-api", "k8s.io/cri-api "},
		{"test/tools/kubernetes/go.mod", "k8s.io/kubernetes", "Kubernetes "},
		{"test/tools/containerd/go.mod", "github.com/containerd/containerd/v2", "containerd "},
		{"test/tools/runc/go.mod", "github.com/opencontainers/runc", "runc "},
		{"test/tools/etcd/go.mod", "go.etcd.io/etcd/server/v3", "etcd "},
		{"test/tools/coredns/go.mod", "github.com/coredns/coredns", "CoreDNS "},
	} {
		gomod, err := os.ReadFile(filepath.Join(r.Root, want.gomod))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		version := strings.TrimPrefix(required(string(gomod), want.module), "v")
		if version == "" || !strings.Contains(string(text), want.name+version) {
			errs = append(errs, fmt.Errorf("docs/versions.md does not say %q, which %s has", want.name+version, want.gomod))
		}
	}
	return errs
}

// required is the version of a module in a go.mod file.
func required(gomod, module string) string {
	for line := range strings.Lines(gomod) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == module {
			return f[1]
		}
	}
	return ""
}
