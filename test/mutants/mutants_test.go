package mutants

import (
	"os"
	"path/filepath"
	"testing"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T) []Mutant {
	t.Helper()
	all, err := Read(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("%d mutants", len(all))
	}
	return all
}

func TestEveryMutantFitsTheCode(t *testing.T) {
	for _, m := range read(t) {
		b, err := os.ReadFile(filepath.Join(root(t), m.File))
		if err != nil {
			t.Error(err)
			continue
		}
		if changed, err := m.Apply(string(b)); err != nil || changed == string(b) {
			t.Errorf("%s changes nothing: %v", m.Name, err)
		}
	}
}

func TestHunksAreFoundByTheirLines(t *testing.T) {
	m, err := parse("What is wrong.\n\n--- a/x.go\n+++ b/x.go\n@@ -7,3 +7,3 @@\n a\n-b\n+B\n c\n")
	if err != nil || m.File != "x.go" || m.Fault != "What is wrong." {
		t.Fatal(m, err)
	}
	for file, want := range map[string]string{"0\na\nb\nc\n": "0\na\nB\nc\n", "a\nc\n": "", "a\nb\nc\na\nb\nc\n": ""} {
		if got, err := m.Apply(file); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", file, got, err)
		}
	}
	for _, patch := range []string{"", "words\n", "words\n--- a/x.go\n+++ b/x.go\n", "words\n--- a/x.go\nstray\n"} {
		if _, err := parse(patch); err == nil {
			t.Errorf("%q is taken for a mutant", patch)
		}
	}
}
