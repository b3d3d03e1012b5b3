package config

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestWhatIsPrintedIsReadBack(t *testing.T) {
	cases, err := filepath.Glob("testdata/cases/*/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range cases {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			c, _, err := Load(Options{File: path})
			if err != nil {
				return
			}
			var out bytes.Buffer
			if err := Print(&out, c); err != nil {
				t.Fatal(err)
			}
			dir := write(t, map[string]string{"k.yaml": out.String()})
			again, warnings, err := Load(Options{File: filepath.Join(dir, "k.yaml"), Strict: true})
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			compare(t, again, c)
		})
	}
}

// FuzzLoad reads anything as a file: it never panics, what passes the look at its fields has the right types, and what is printed
// says the same as what was read.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/cases/*/config.yaml", "testdata/cases/*/conf.d/*.conf"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	for line := range bytes.Lines([]byte(read(f, "testdata", "values.txt"))) {
		if parts := bytes.SplitN(line, []byte(" "), 3); len(parts) == 3 && parts[2][0] != '{' {
			f.Add(append([]byte(head), parts[2]...))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, _, err := parseDocument(data)
		if err != nil {
			return
		}
		c, err := typed(merge(object{"maxPods": int64(3)}, doc))
		if err != nil {
			t.Fatalf("the look at the fields found nothing: %v", err)
		}
		Default(c)
		defaultEviction(c)
		Unsupported(c, c)
		valid := Validate(c) == nil

		var out bytes.Buffer
		if err := Print(&out, c); err != nil {
			t.Fatal(err)
		}
		doc, warnings, err := parseDocument(out.Bytes())
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%v %v\n%s", err, warnings, out.Bytes())
		}
		again, err := typed(doc)
		if err != nil {
			t.Fatal(err)
		}
		Default(again)
		defaultEviction(again)
		compare(t, again, c)
		if valid != (Validate(again) == nil) {
			t.Fatalf("it was valid: %v, and is so no longer\n%s", valid, out.Bytes())
		}
	})
}
