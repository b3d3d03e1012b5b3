package hygiene

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A dependency is a module whose code is in our programs.
type dependency struct {
	path, version, dir string
	licences           []string // SPDX names
	notice             string   // what its NOTICE file says
}

// mark is a sentence that a licence has and others have not, in lower case and with single spaces.
type mark struct {
	licence string
	has     []string
	not     string
}

// marks are the licences that can be told. A file may hold several.
func marks() []mark {
	return []mark{
		{"Apache-2.0", []string{"apache license version 2.0"}, ""},
		{"Apache-2.0", []string{"licensed under the apache license, version 2.0"}, ""},
		{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy", "the software is provided \"as is\""}, ""},
		{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "endorse or promote products"}, ""},
		{"BSD-2-Clause", []string{"redistribution and use in source and binary forms"}, "endorse or promote products"},
		{"ISC", []string{"permission to use, copy, modify, and/or distribute this software for any purpose"}, ""},
		{"ISC", []string{"permission to use, copy, modify, and distribute this software for any purpose"}, ""},
		{"MPL", []string{"mozilla public license"}, ""},
		{"GPL", []string{"gnu general public license"}, ""},
		{"LGPL", []string{"gnu lesser general public license"}, ""},
		{"AGPL", []string{"gnu affero general public license"}, ""},
		{"EPL", []string{"eclipse public license"}, ""},
		{"SSPL", []string{"server side public license"}, ""},
		{"BUSL", []string{"business source license"}, ""},
		{"CC-BY-SA", []string{"attribution-sharealike"}, ""},
	}
}

// allowed are the licences whose conditions LICENSE and NOTICE meet.
func allowed() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}
}

// classify names the licences in a text, sorted.
func classify(text string) []string {
	text = strings.ToLower(strings.NewReplacer("“", `"`, "”", `"`).Replace(text))
	text = strings.Join(strings.Fields(text), " ")
	found := map[string]bool{}
	for _, m := range marks() {
		fits := m.not == "" || !strings.Contains(text, m.not)
		for _, sentence := range m.has {
			fits = fits && strings.Contains(text, sentence)
		}
		if fits {
			found[m.licence] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// licences holds that what our programs contain may be in them, and that NOTICE says so.
func licences(ctx context.Context, r *Repo) (string, error) {
	deps, err := r.dependencies(ctx)
	if err != nil {
		return "", err
	}
	have, err := os.ReadFile(filepath.Join(r.Root, "NOTICE"))
	if err != nil {
		return "", err
	}
	errs := judgeLicences(deps)
	if string(have) != notice(deps) {
		errs = append(errs, errors.New("NOTICE is not what the modules say; make notice writes it"))
	}
	return fmt.Sprintf("%d modules: %s", len(deps), strings.Join(kinds(deps), ", ")), errors.Join(errs...)
}

func judgeLicences(deps []dependency) (errs []error) {
	for _, d := range deps {
		if len(d.licences) == 0 {
			errs = append(errs, fmt.Errorf("%s %s: no licence is found in its folder", d.path, d.version))
		}
		for _, l := range d.licences {
			if !slices.Contains(allowed(), l) {
				errs = append(errs, fmt.Errorf("%s %s is under %s; our programs may contain %s", d.path, d.version, l, strings.Join(allowed(), ", ")))
			}
		}
	}
	return errs
}

func kinds(deps []dependency) []string {
	found := map[string]bool{}
	for _, d := range deps {
		for _, l := range d.licences {
			found[l] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// dependencies are the modules behind all packages of the module for strangers, by path.
func (r *Repo) dependencies(ctx context.Context) ([]dependency, error) {
	const format = "{{if not .Standard}}{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}{{end}}"
	out, err := r.run(ctx, command{dir: ".", env: []string{"GOOS=linux"}, args: []string{"go", "list", "-deps", "-f", format, "./..."}})
	if err != nil {
		return nil, err
	}
	seen := map[string]dependency{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 {
			seen[f[0]] = dependency{path: f[0], version: f[1], dir: f[2]}
		}
	}
	deps := slices.SortedFunc(maps.Values(seen), func(a, b dependency) int { return cmp.Compare(a.path, b.path) })
	for i := range deps {
		if err := deps[i].read(); err != nil {
			return nil, err
		}
	}
	return deps, nil
}

// read looks for licences and notices in the module's folder.
func (d *dependency) read() error {
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		name := strings.ToUpper(f.Name())
		licence := strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "LICENCE") || strings.HasPrefix(name, "COPYING")
		isNotice := strings.TrimSuffix(strings.TrimSuffix(name, ".TXT"), ".MD") == "NOTICE"
		if f.IsDir() || !licence && !isNotice || strings.HasSuffix(name, ".DOCS") { // documentation is not in programs
			continue
		}
		text, err := os.ReadFile(filepath.Join(d.dir, f.Name()))
		if err != nil {
			return err
		}
		if isNotice {
			d.notice = string(bytes.TrimSpace(text))
			continue
		}
		d.licences = append(d.licences, classify(string(text))...)
	}
	slices.Sort(d.licences)
	d.licences = slices.Compact(d.licences)
	return nil
}

// notice is the text of the NOTICE file.
func notice(deps []dependency) string {
	var b strings.Builder
	b.WriteString("kubeletkit\nCopyright The kubeletkit Authors\n\n")
	b.WriteString("Programs built from this module contain the modules below, under the licences named.\nThe text of each licence is in the module.\n\n")
	for _, d := range deps {
		fmt.Fprintf(&b, "%-55s %s\n", d.path, strings.Join(d.licences, " "))
	}
	b.WriteString("\nSome of them ask for their own notice to be passed on.\n")
	for _, d := range deps {
		if d.notice == "" {
			continue
		}
		fmt.Fprintf(&b, "\n---- %s\n\n", d.path)
		for line := range strings.Lines(d.notice) {
			b.WriteString(strings.TrimRight(line, " \t\r\n") + "\n")
		}
	}
	return b.String()
}

// WriteNotice writes the NOTICE file anew.
func WriteNotice(ctx context.Context, r *Repo) error {
	deps, err := r.dependencies(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.Root, "NOTICE"), []byte(notice(deps)), 0o644)
}
