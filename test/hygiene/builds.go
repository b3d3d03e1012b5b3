package hygiene

import (
	"context"
	"errors"
	"fmt"
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
	pkg    string // below the module
	tests  bool   // the package itself builds, only its tests do not
	why    string
}

// limits are all there are. What is not listed builds, with its tests, on darwin and windows. What a package cannot do there
// answers errors.ErrUnsupported.
func limits() []limit {
	const (
		files   = "pods from files are told apart by device and inode"
		reads   = "imports staticpod"
		pipe    = "its tests make a named pipe"
		measure = "its tests ask for CPU time by getrusage"
	)
	return []limit{
		{"windows", "staticpod", false, files},
		{"windows", "examples/edge", false, reads},
		{"windows", "examples/nodeagent", false, reads},
		{"windows", "examples/provider", false, reads},
		{"windows", "examples/standalone", false, reads},
		{"windows", "examples/nodeagent/config", true, pipe},
		{"windows", "runtime/logs", true, pipe},
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
	out, err := r.run(ctx, command{dir: ".", env: env, args: []string{"go", "list", "./..."}})
	if err != nil {
		return 0, err
	}
	vetted, built := split(strings.Fields(out), system)
	_, vetErr := r.run(ctx, command{dir: ".", env: env, args: append([]string{"go", "vet"}, vetted...)})
	errs := []error{vetErr}
	if len(built) > 0 {
		_, err := r.run(ctx, command{dir: ".", env: env, args: append([]string{"go", "build"}, built...)})
		errs = append(errs, err)
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

// split sorts packages into those that are vetted with their tests and those that are only built.
func split(packages []string, system string) (vetted, built []string) {
	for _, p := range packages {
		at := slices.IndexFunc(limits(), func(l limit) bool { return l.system == system && Module+"/"+l.pkg == p })
		switch {
		case at < 0:
			vetted = append(vetted, p)
		case limits()[at].tests:
			built = append(built, p)
		}
	}
	return vetted, built
}
