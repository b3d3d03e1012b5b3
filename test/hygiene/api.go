package hygiene

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// api compares what packages export with the last release, or where there is none, with the commit named in test/api-base.
// Once there was a release, each package with an incompatible change must be named by a [CHANGE] line of the changelog.
func api(ctx context.Context, r *Repo) (string, error) {
	base, err := r.base(ctx)
	if err != nil {
		return "", err
	}
	bin, err := r.Tools(ctx, "hygiene")
	if err != nil {
		return "", err
	}
	apidiff := filepath.Join(bin, "apidiff")
	old := filepath.Join(r.Cache, "hygiene", "api-base")
	err = r.once("api-base.commit", base+" "+runtime.Version(), func() error { return r.export(ctx, apidiff, base, old) })
	if err != nil {
		return "", err
	}
	out, err := r.run(ctx, command{dir: ".", env: []string{"GOOS=linux"}, args: []string{apidiff, "-m", old, Module}})
	if err != nil {
		return "", err
	}
	report := filepath.Join(r.Root, "bin", "api.txt")
	if err := errors.Join(os.MkdirAll(filepath.Dir(report), 0o755), os.WriteFile(report, []byte(out), 0o644)); err != nil {
		return "", err
	}
	log, err := os.ReadFile(filepath.Join(r.Root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	broken, added := changes(out)
	note := fmt.Sprintf("since %.12s: %d packages incompatible, %d with additions (bin/api.txt)", base, len(broken), len(added))
	return note, judgeChanges(broken, string(log))
}

// base is the last release, or the commit of test/api-base.
func (r *Repo) base(ctx context.Context) (string, error) {
	tags, err := r.run(ctx, command{dir: ".", args: []string{"git", "tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"}})
	if err != nil {
		return "", err
	}
	for tag := range strings.FieldsSeq(tags) {
		return tag, nil
	}
	text, err := os.ReadFile(filepath.Join(r.Root, "test", "api-base"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			return line, nil
		}
	}
	return "", errors.New("test/api-base names no commit")
}

// export writes what the packages of a commit export to file.
func (r *Repo) export(ctx context.Context, apidiff, commit, file string) error {
	dir, err := os.MkdirTemp("", "kubeletkit-api-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "base.tar")
	if _, err := r.run(ctx, command{dir: ".", args: []string{"git", "archive", "-o", archive, commit}}); err != nil {
		return fmt.Errorf("this clone has no commit %s, the base of the API report (git fetch --unshallow --tags brings it): %w", commit, err)
	}
	if _, err := r.run(ctx, command{dir: dir, args: []string{"tar", "-xf", archive}}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	_, err = r.run(ctx, command{dir: dir, env: []string{"GOOS=linux"}, args: []string{apidiff, "-m", "-w", file, Module}})
	return err
}

// changes names the packages that a report of apidiff lists under its two headings. The root package is the module's name.
func changes(report string) (broken, added []string) {
	list := &added
	for line := range strings.Lines(report) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "Incompatible changes"), strings.HasPrefix(line, "## incompatible changes"):
			list = &broken
		case strings.HasPrefix(line, "Compatible changes"), strings.HasPrefix(line, "## compatible changes"):
			list = &added
		case strings.HasPrefix(line, "- "):
			if pkg := packageOf(line[2:]); pkg != "" && !slices.Contains(*list, pkg) {
				*list = append(*list, pkg)
			}
		}
	}
	slices.Sort(broken)
	slices.Sort(added)
	return broken, added
}

// packageOf is the package that a line of a report is about: ./pleg.Diff: changed, or package …/pleg: removed.
func packageOf(line string) string {
	if rest, ok := strings.CutPrefix(line, "package "); ok {
		path, _, _ := strings.Cut(rest, ":")
		return strings.TrimPrefix(strings.TrimPrefix(path, Module), "/")
	}
	path, _, _ := strings.Cut(strings.TrimPrefix(line, "./"), ":")
	slash := strings.LastIndex(path, "/")
	name, _, found := strings.Cut(path[slash+1:], ".")
	if !found {
		return ""
	}
	return path[:slash+1] + name
}

// judgeChanges says which incompatible changes the changelog does not name.
func judgeChanges(broken []string, changelog string) error {
	_, unreleased, _ := strings.Cut(changelog, "\n## ")
	unreleased, _, released := strings.Cut(unreleased, "\n## ")
	if !released {
		return nil // nothing was promised yet
	}
	named := map[string]bool{}
	for line := range strings.Lines(unreleased) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "- [CHANGE] "); ok {
			packages, _, _ := strings.Cut(rest, ":")
			for pkg := range strings.SplitSeq(packages, ",") {
				named[strings.TrimSpace(pkg)] = true
			}
		}
	}
	var errs []error
	for _, pkg := range broken {
		if !named[pkg] && !strings.HasPrefix(pkg, "examples/") && !strings.Contains(pkg, "internal/") {
			errs = append(errs, fmt.Errorf("package %s changed in a way that can break importers; name it in CHANGELOG.md: - [CHANGE] %s: what to do (bin/api.txt has the changes)", pkg, pkg))
		}
	}
	return errors.Join(errs...)
}
