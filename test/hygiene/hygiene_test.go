package hygiene

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	const bsd = "Redistribution and use in source and\n  binary forms, with or without modification"
	for _, c := range []struct{ rule, text, want string }{
		{"Apache by its title", "Apache License\n   Version 2.0, January 2004", "Apache-2.0"},
		{"Apache by its header", "Licensed under the Apache License, Version 2.0 (the \"License\")", "Apache-2.0"},
		{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy ... THE SOFTWARE IS PROVIDED “AS IS”", "MIT"},
		{"BSD with two conditions", bsd, "BSD-2-Clause"},
		{"BSD with three", bsd + "\nmay be used to endorse or promote products", "BSD-3-Clause"},
		{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose", "ISC"},
		{"two in one file", bsd + "\nApache License\nVersion 2.0", "Apache-2.0 BSD-2-Clause"},
		{"one that is not allowed beside one that is", "Apache License Version 2.0. Parts are under the Mozilla Public License", "Apache-2.0 MPL"},
		{"something else", "All rights reserved.", ""},
	} {
		if got := strings.Join(classify(c.text), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.rule, got, c.want)
		}
	}
}

func TestOnlyAllowedLicencesPass(t *testing.T) {
	errs := judgeLicences([]dependency{
		{path: "good", licences: []string{"MIT", "Apache-2.0"}}, {path: "bad", licences: []string{"MIT", "MPL"}}, {path: "none"},
	})
	got := errors.Join(errs...).Error()
	if len(errs) != 2 || !strings.Contains(got, "bad  is under MPL") || !strings.Contains(got, "none : no licence") {
		t.Error(got)
	}
}

func TestNoticePassesNoticesOn(t *testing.T) {
	got := notice([]dependency{{path: "a.b/c", licences: []string{"MIT"}}, {path: "d.e/f", licences: []string{"Apache-2.0"}, notice: "by F  \nand G"}})
	if !strings.HasSuffix(got, "\n---- d.e/f\n\nby F\nand G\n") || !strings.Contains(got, "a.b/c  ") {
		t.Error(got)
	}
}

const findings = `{"config":{}}
{"finding":{"osv":"GO-1","fixed_version":"v0.60.0","trace":[{"module":"x/net","version":"v0.58.0","package":"p"}]}}
{"finding":{"osv":"GO-1","fixed_version":"v0.60.0","trace":[{"module":"x/net","version":"v0.58.0","function":"F"},
  {"module":"github.com/kubeletkit/kubeletkit","function":"G","position":{"filename":"a/b.go","line":7}}]}}
{"finding":{"osv":"GO-2","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8","function":"F"}]}}
{"finding":{"osv":"GO-3","fixed_version":"v1.26.10","trace":[{"module":"stdlib","version":"v1.26.8","function":"F"}]}}
{"finding":{"osv":"GO-4","trace":[{"module":"x/text","version":"v0.1.0"}]}}`

func TestVulnerabilities(t *testing.T) {
	for _, c := range []struct{ rule, accepted, note, err string }{
		{
			"one that is called in a module fails, with the remedy; the standard library's name the release", "",
			"build with Go 1.26.10 or later", "GO-1 is reached in x/net v0.58.0, from a/b.go:7; go get x/net@v0.60.0",
		},
		{"an accepted one passes", "# why\nGO-1 we never do F", "1.26.10", ""},
		{"what is accepted and not found any more fails", "GO-1 x\nGO-9 gone", "1.26.10", "GO-9 is accepted in accepted.txt and found no more; take its line out"},
		{"an acceptance needs a reason", "GO-1", "1.26.10", "GO-1 is reached in x/net v0.58.0, from a/b.go:7; go get x/net@v0.60.0"},
	} {
		found, err := readFindings(strings.NewReader(findings))
		if err != nil {
			t.Fatal(err)
		}
		note, err := judgeFindings(found, c.accepted)
		if !strings.Contains(note, c.note) || message(err) != c.err {
			t.Errorf("%s: got %q, %q", c.rule, note, message(err))
		}
	}
	if note, err := judgeFindings(nil, ""); note != "none is reached" || err != nil {
		t.Error(note, err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

const report = `Incompatible changes:
- ./pleg.Diff: changed from func() to func(int)
- ./pleg.Event.Kind: removed
- package github.com/kubeletkit/kubeletkit/old/one: removed
- ./examples/nodeagent/config.Load: removed
Compatible changes:
- ./runtime/plan.Next: added
- package github.com/kubeletkit/kubeletkit/eviction: added
`

func TestChangesOfTheAPI(t *testing.T) {
	broken, added := changes(report)
	if got := strings.Join(broken, " "); got != "examples/nodeagent/config old/one pleg" {
		t.Error(got)
	}
	if got := strings.Join(added, " "); got != "eviction runtime/plan" {
		t.Error(got)
	}
	for _, c := range []struct{ rule, changelog, err string }{
		{"before the first release nothing was promised", "# Log\n\n## Unreleased\n\n- [FEATURE] pleg: x\n", ""},
		{
			"each broken package is named", "# Log\n\n## Unreleased\n\n- [CHANGE] pleg: give Diff a number\n\n## v0.1.0\n\n- [CHANGE] old/one: x\n",
			"package old/one changed in a way that can break importers; name it in CHANGELOG.md: - [CHANGE] old/one: what to do (bin/api.txt has the changes)",
		},
		{"one line may name several", "# Log\n\n## Unreleased\n\n- [CHANGE] pleg, old/one: x\n\n## v0.1.0\n", ""},
	} {
		if err := judgeChanges(broken, c.changelog); message(err) != c.err {
			t.Errorf("%s: %v", c.rule, err)
		}
	}
}

func TestBillOfMaterials(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Path: Module + "/examples/nodeagent", Main: debug.Module{Path: Module, Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "z.z/z", Version: "v1.0.0+incompatible", Sum: "h1:x"},
			{Path: "a.a/a", Version: "v2.0.0", Replace: &debug.Module{Path: "b.b/b", Version: "v3.0.0"}},
		},
		Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}},
	}
	text, err := json.Marshal(newBOM(info, sha256.Sum256(nil), map[string][]string{"z.z/z": {"MIT"}}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"bomFormat":"CycloneDX","specVersion":"1.6"`, `"name":"nodeagent","purl":"pkg:golang/github.com/kubeletkit/kubeletkit","hashes":[{"alg":"SHA-256","content":"e3b0c442`,
		`"purl":"pkg:golang/b.b/b@v3.0.0"`, `"purl":"pkg:golang/std@1.26.8"`, `"purl":"pkg:golang/z.z/z@v1.0.0%2Bincompatible","licenses":[{"license":{"id":"MIT"}}],"properties":[{"name":"go:sum","value":"h1:x"}]`,
		`"dependsOn":["pkg:golang/b.b/b@v3.0.0","pkg:golang/std@1.26.8","pkg:golang/z.z/z@v1.0.0%2Bincompatible"]`, `{"name":"go:build:-trimpath","value":"true"}`,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func TestTheUnitThatIsShipped(t *testing.T) {
	unit, err := os.ReadFile("../../packaging/nodeagent.service")
	if err != nil {
		t.Fatal(err)
	}
	if err := judgeUnit(string(unit)); err != nil {
		t.Error(err)
	}
	for old, changed := range map[string]string{
		"KillMode=process": "KillMode=mixed", "Restart=always": "Restart=on-failure", "Delegate=yes": "", "Type=notify": "Type=simple",
		"LockPersonality=yes": "PrivateTmp=yes", "RestrictRealtime=yes": "RestrictSUIDSGID=yes",
	} {
		if err := judgeUnit(strings.Replace(string(unit), old+"\n", changed+"\n", 1)); err == nil {
			t.Errorf("%q in place of %q passes", changed, old)
		}
	}
}

func TestWhatComesAlong(t *testing.T) {
	packages, modules := came("fmt\n" + Module + "/pleg " + Module + "\nk8s.io/x/y k8s.io/x\nk8s.io/x/z k8s.io/x\n")
	if len(packages) != 4 || strings.Join(modules, " ") != "k8s.io/x" {
		t.Error(packages, modules)
	}
	sums := summed("k8s.io/x v1 h1:a\nk8s.io/x v1/go.mod h1:b\nk8s.io/only v1/go.mod h1:c\n")
	if !slices.Equal(sums, modules) {
		t.Error(sums)
	}
	if got := message(same("sums", []string{"a", "b"}, []string{"b", "c"})); got != "sums: a is more than is needed\nsums: c is missing" {
		t.Error(got)
	}
}

func TestBudgetsAreThoseOfTheHouse(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	most, err := (&Repo{Root: root}).budgets()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range alone() {
		if most[pkg] == 0 {
			t.Errorf("%s has no budget", pkg)
		}
	}
}

func TestLimitsSplitPackages(t *testing.T) {
	all := readImports(strings.ReplaceAll("M/staticpod;fmt; \nM/pleg;fmt; \nM/probe;fmt;testing \nM/a;M/staticpod fmt; \nM/b;fmt;M/a \n", "M/", Module+"/"))
	vetted, built := split(all, "windows")
	if strings.Join(vetted, " ") != Module+"/probe" || strings.Join(built, " ") != Module+"/b "+Module+"/pleg" {
		t.Error(vetted, built)
	}
	if vetted, _ := split(all, "darwin"); len(vetted) != 5 {
		t.Error("a limit of one system holds on another", vetted)
	}
}

func TestNewer(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"v1.26.10", "v1.26.9", true}, {"v1.26.9", "v1.26.10", false}, {"v1.2.3", "v1.2.3", false}, {"go1.27", "v1.26.9", true}, {"v0.1.0", "", true}, {"", "v0.1.0", false}} {
		if newer(c.a, c.b) != c.want {
			t.Errorf("newer(%q, %q) is not %v", c.a, c.b, c.want)
		}
	}
}

func TestExamplesNeedOutput(t *testing.T) {
	for source, want := range map[string]bool{
		"func Example() {\n\tprintln()\n\t// Output: x\n}":                  true,
		"func ExampleA() {\n\tprintln()\n\t// Unordered output:\n\t// x\n}": true,
		"func Example() {\n\tprintln()\n}":                                  false,
		"func TestA() {\n\t// Output: x\n}":                                 false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "a_test.go", "package a\n\n"+source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if hasExample(f) != want {
			t.Errorf("%s: not %v", source, want)
		}
	}
}

func TestRequired(t *testing.T) {
	for gomod, want := range map[string]string{
		"require a.b/c v1.2.3\n": "v1.2.3", "require (\n\ta.b/c v1.0.0 // indirect\n)": "v1.0.0", "require (\n\ta.b/cd v1.0.0\n)": "",
	} {
		if got := required(gomod, "a.b/c"); got != want {
			t.Errorf("%q: %q", gomod, got)
		}
	}
}

func TestOnce(t *testing.T) {
	r, calls := &Repo{Cache: t.TempDir()}, 0
	do := func() error { calls++; return nil }
	if err := errors.Join(r.once("a", "1", do), r.once("a", "1", do), r.once("a", "2", do), r.once("b", "1", do)); err != nil || calls != 3 {
		t.Error(err, calls)
	}
	bad := errors.New("bad")
	if err := r.once("a", "3", func() error { return bad }); !errors.Is(err, bad) {
		t.Error(err)
	}
	if have, err := os.ReadFile(filepath.Join(r.Cache, "hygiene", "a")); err != nil || string(have) != "2" {
		t.Error("a failure left a mark")
	}
}

func TestRunNamesWhatFailed(t *testing.T) {
	if _, err := pick(Checks(), []string{"tidy", "tydy"}); message(err) != `there is no check "tydy"` {
		t.Error(err)
	}
	if got := day("v0.0.0-20261105234957-e22db6528018"); got != "2026-11-05" {
		t.Error(got)
	}
}
