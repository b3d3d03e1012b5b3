package hygiene

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// accepted are vulnerabilities that do not count, one a line: its name, and why it does not.
//
//go:embed accepted.txt
var accepted string

const stdlib = "stdlib"

// A finding is a vulnerability in a module that is used, as govulncheck tells it.
type finding struct {
	OSV   string `json:"osv"`
	Fixed string `json:"fixed_version"`
	Trace []struct {
		Module   string `json:"module"`
		Version  string `json:"version"`
		Function string `json:"function"` // empty: not known to be called
		Position *struct {
			Filename string `json:"filename"`
			Line     int    `json:"line"`
		} `json:"position"`
	} `json:"trace"` // from the vulnerable place to ours
}

// vulns looks for calls that reach a vulnerability, in a database made from golang.org/x/vulndb.
func vulns(ctx context.Context, r *Repo) (string, error) {
	bin, err := r.Tools(ctx, "hygiene")
	if err != nil {
		return "", err
	}
	db, version, err := r.database(ctx, bin)
	if err != nil {
		return "", err
	}
	source := url.URL{Scheme: "file", Path: db}
	out, err := r.run(ctx, command{dir: ".", env: []string{"GOOS=linux"}, args: []string{filepath.Join(bin, "govulncheck"), "-db", source.String(), "-format", "json", "./..."}})
	if err != nil {
		return "", err
	}
	found, err := readFindings(strings.NewReader(out))
	if err != nil {
		return "", err
	}
	note, err := judgeFindings(found, accepted)
	return fmt.Sprintf("%s; database of %s", note, version), err
}

// database makes a vulnerability database from the module that test/tools/hygiene names, once for each version.
func (r *Repo) database(ctx context.Context, bin string) (dir, version string, err error) {
	module := filepath.Join("test", "tools", "hygiene")
	if _, err := r.golang(ctx, module, "mod", "download", "golang.org/x/vulndb"); err != nil {
		return "", "", err
	}
	out, err := r.golang(ctx, module, "list", "-m", "-f", "{{.Version}} {{.Dir}}", "golang.org/x/vulndb")
	if err != nil {
		return "", "", err
	}
	version, source, _ := strings.Cut(strings.TrimSpace(out), " ")
	dir = filepath.Join(r.Cache, "hygiene", "vulndb")
	err = r.once("vulndb.version", version, func() error {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return err
		}
		_, err := r.run(ctx, command{dir: dir, args: []string{filepath.Join(bin, "indexdb"), "-out", dir, "-vulns", filepath.Join(source, "data", "osv")}})
		return err
	})
	return dir, day(version), err
}

// day is the date in a pseudo-version.
func day(version string) string {
	parts := strings.Split(version, "-")
	if len(parts) < 3 || len(parts[1]) < 8 {
		return version
	}
	d := parts[1]
	return d[:4] + "-" + d[4:6] + "-" + d[6:8]
}

func readFindings(r io.Reader) ([]finding, error) {
	var found []finding
	for d := json.NewDecoder(r); ; {
		var message struct {
			Finding *finding `json:"finding"`
		}
		switch err := d.Decode(&message); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("read govulncheck's findings: %w", err)
		}
		if message.Finding != nil && len(message.Finding.Trace) > 0 {
			found = append(found, *message.Finding)
		}
	}
}

// judgeFindings says which vulnerabilities must be mended here: those that are called, in modules that go.mod chooses. The standard
// library is chosen by whoever builds: its findings name the release to build with.
func judgeFindings(found []finding, accepted string) (note string, err error) {
	why := map[string]string{}
	for line := range strings.Lines(accepted) {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
			why[name] = reason
		}
	}
	calls, seen, release := map[string]string{}, map[string]bool{}, ""
	for _, f := range found {
		at := f.Trace[0]
		seen[f.OSV] = true
		switch {
		case at.Function == "":
		case at.Module == stdlib:
			if newer(f.Fixed, release) {
				release = f.Fixed
			}
		case why[f.OSV] == "" && calls[f.OSV] == "":
			calls[f.OSV] = fmt.Sprintf("%s is reached in %s %s, from %s; go get %s@%s", f.OSV, at.Module, at.Version, origin(f), at.Module, f.Fixed)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		errs = append(errs, errors.New(calls[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(why)) {
		if !seen[name] {
			errs = append(errs, fmt.Errorf("%s is accepted in accepted.txt and found no more; take its line out", name))
		}
	}
	note = "none is reached"
	if release != "" {
		note = fmt.Sprintf("none is reached but in the standard library: build with Go %s or later", strings.TrimPrefix(release, "v"))
	}
	return note, errors.Join(errs...)
}

// origin is the place in our code from where a vulnerable place is reached.
func origin(f finding) string {
	for _, at := range f.Trace {
		if at.Position != nil && (at.Module == Module) {
			return fmt.Sprintf("%s:%d", at.Position.Filename, at.Position.Line)
		}
	}
	return "nowhere in particular"
}
