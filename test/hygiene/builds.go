package hygiene

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// linux builds everything for the machines nodes are made of.
func linux(ctx context.Context, r *Repo) (string, error) {
	machines := []string{"amd64", "arm64", "arm"}
	var errs []error
	for _, arch := range machines {
		_, err := r.run(ctx, command{dir: ".", env: []string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0"}, args: []string{"go", "build", "-trimpath", "./..."}})
		errs = append(errs, err)
	}
	return strings.Join(machines, ", "), errors.Join(errs...)
}

// A limit says what does not work on a system.
type limit struct {
	system string
	pkg    string // below the module; what imports it does not work either
	tests  bool   // the package itself builds, only its tests do not
	why    string
}

// limits are all there are. What is not listed, and imports nothing listed, builds with its tests on darwin and windows. What it
// cannot do there answers errors.ErrUnsupported.
func limits() []limit {
	const (
		files   = "files are told apart by device and inode"
		whole   = "files are replaced whole by renameio, which leaves windows out"
		pipe    = "its tests make a named pipe"
		measure = "its tests ask for CPU time by getrusage"
	)
	return []limit{
		{"windows", "staticpod", false, files},
		{"windows", "runtime/logs", false, files},
		{"windows", "internal/checkpoint", false, whole},
		{"windows", "syncloop/offline", false, whole},
		{"windows", "examples/nodeagent/config", true, pipe},
		{"windows", "pleg", true, measure},
		{"windows", "probe/manager", true, measure},
	}
}

// portable vets all packages for other systems, and makes sure that limits are real.
func portable(ctx context.Context, r *Repo) (string, error) {
	var notes []string
	var errs []error
	for _, system := range []string{"darwin", "windows"} {
		n, err := r.vetFor(ctx, system)
		notes, errs = append(notes, fmt.Sprintf("%d packages on %s", n, system)), append(errs, err)
	}
	return strings.Join(notes, ", "), errors.Join(errs...)
}

func (r *Repo) vetFor(ctx context.Context, system string) (packages int, err error) {
	env := []string{"GOOS=" + system, "CGO_ENABLED=0"}
	const format = `{{.ImportPath}};{{join .Deps " "}};{{join .TestImports " "}} {{join .XTestImports " "}}`
	out, err := r.run(ctx, command{dir: ".", env: env, args: []string{"go", "list", "-e", "-f", format, "./..."}})
	if err != nil {
		return 0, err
	}
	vetted, built := split(readImports(out), system)
	var errs []error
	for verb, list := range map[string][]string{"vet": vetted, "build": built} {
		if len(list) > 0 {
			_, err := r.run(ctx, command{dir: ".", env: env, args: append([]string{"go", verb}, list...)})
			errs = append(errs, err)
		}
	}
	for _, l := range limits() {
		if l.system != system {
			continue
		}
		if _, err := r.run(ctx, command{dir: ".", env: env, args: []string{"go", "vet", "./" + l.pkg}}); err == nil {
			errs = append(errs, fmt.Errorf("%s works on %s by now; take its limit (%s) out of builds.go", l.pkg, system, l.why))
		}
	}
	return len(vetted) + len(built), errors.Join(errs...)
}

// imports are the packages that a package needs, and those that its tests import beside them.
type imports struct{ deps, tests []string }

func readImports(listing string) map[string]imports {
	all := map[string]imports{}
	for line := range strings.Lines(listing) {
		if f := strings.Split(strings.TrimSpace(line), ";"); len(f) == 3 {
			all[f[0]] = imports{strings.Fields(f[1]), strings.Fields(f[2])}
		}
	}
	return all
}

// split sorts packages into those that are vetted with their tests and those that are only built.
func split(all map[string]imports, system string) (vetted, built []string) {
	works := func(pkg string, tests bool) bool {
		return !slices.ContainsFunc(limits(), func(l limit) bool {
			own := Module+"/"+l.pkg == pkg
			return l.system == system && (own && l.tests == tests || !l.tests && (own || slices.Contains(all[pkg].deps, Module+"/"+l.pkg)))
		})
	}
	for _, pkg := range slices.Sorted(maps.Keys(all)) {
		broken := func(imported string) bool { return all[imported].deps != nil && !works(imported, false) }
		switch {
		case !works(pkg, false):
		case works(pkg, true) && !slices.ContainsFunc(all[pkg].tests, broken):
			vetted = append(vetted, pkg)
		default:
			built = append(built, pkg)
		}
	}
	return vetted, built
}
