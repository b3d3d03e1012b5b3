package config

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubelet/config/v1beta1"
)

// What kubelet v1.37.2 makes of the files in testdata is written beside them by testdata/upstream.

func TestLoadAgreesWithTheKubelet(t *testing.T) {
	root, err := filepath.Abs("testdata/cases")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := filepath.Glob(filepath.Join(root, "*"))
	if err != nil || len(cases) == 0 {
		t.Fatal(err, len(cases))
	}
	for _, dir := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var want *v1beta1.KubeletConfiguration
			text := strings.ReplaceAll(read(t, dir, "want.json"), `"/cases/`, `"`+root+`/`)
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			got, err := loadCase(t, dir)
			switch {
			case want == nil && err == nil:
				t.Fatal("accepted; the kubelet refuses it")
			case want == nil:
				return
			case err != nil:
				t.Fatalf("refused: %v", err)
			}
			got.TypeMeta = want.TypeMeta
			compare(t, got, want)
		})
	}
}

func loadCase(t *testing.T, dir string) (*v1beta1.KubeletConfiguration, error) {
	t.Helper()
	o := Options{File: filepath.Join(dir, "config.yaml")}
	if exists(filepath.Join(dir, "conf.d")) {
		o.Dir = filepath.Join(dir, "conf.d")
	}
	c, _, err := Load(o)
	if err != nil || !exists(filepath.Join(dir, "flags")) {
		return c, err
	}
	over := Bind(flag.NewFlagSet("", flag.ContinueOnError))
	if _, err := over.Parse(strings.Split(strings.TrimSpace(read(t, dir, "flags")), "\n")); err != nil {
		t.Fatal(err)
	}
	over.Kubeconfig = "/kubeconfig"
	return c, over.Apply(c)
}

// compare goes field by field; nothing and an empty list, false and no answer, are the same.
func compare(t *testing.T, got, want *v1beta1.KubeletConfiguration) {
	t.Helper()
	wanted := map[string]reflect.Value{}
	leaves("", reflect.ValueOf(*want), func(path string, v reflect.Value) { wanted[path] = v })
	leaves("", reflect.ValueOf(*got), func(path string, v reflect.Value) {
		if !same(v, wanted[path]) {
			t.Errorf("%s: %s, the kubelet has %s", path, text(v), text(wanted[path]))
		}
	})
}

func text(v reflect.Value) string {
	out, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func TestValidateAgreesWithTheKubelet(t *testing.T) {
	for line := range strings.Lines(read(t, "testdata", "values.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(strings.TrimSpace(line), " ", 3)
		t.Run(parts[2], func(t *testing.T) {
			fields := head + parts[2]
			if strings.HasPrefix(parts[2], "{") {
				fields = "{" + strings.ReplaceAll(strings.TrimSpace(head), "\n", ", ") + ", " + parts[2][1:]
			}
			dir := write(t, map[string]string{"k.yaml": fields})
			c, warnings, err := Load(Options{File: filepath.Join(dir, "k.yaml")})
			if err == nil {
				err = Validate(c)
			}
			if len(warnings) > 0 {
				t.Error(warnings)
			}
			if want := parts[1] == "ok"; (err == nil) != want {
				t.Errorf("%s: the kubelet says %s, we: %v", parts[2], parts[0], err)
			}
			if err == nil {
				return
			}
			for problem := range strings.Lines(err.Error()) {
				if !strings.Contains(problem, "must ") || !strings.Contains(problem, ": ") {
					t.Errorf("no path or remedy: %s", problem)
				}
			}
		})
	}
}

func TestEveryFlagOfTheKubeletIsAccepted(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	Bind(fs)
	for line := range strings.Lines(read(t, "testdata", "flags.txt")) {
		name, alone, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "version" {
			continue // the program's own
		}
		f := fs.Lookup(name)
		if f == nil {
			t.Errorf("--%s is not known", name)
			continue
		}
		b, ok := f.Value.(interface{ IsBoolFlag() bool })
		if got := ok && b.IsBoolFlag(); got != (alone != "") {
			t.Errorf("--%s may stand without a value: %v, with the kubelet: %v", name, got, alone != "")
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func read(t testing.TB, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestEveryFieldIsInOneTable(t *testing.T) {
	yes, no := honoured(), ignored()
	var all []string
	leaves("", reflect.ValueOf(v1beta1.KubeletConfiguration{}), func(path string, _ reflect.Value) {
		all = append(all, path)
		if _, ok := yes[path]; ok == (no[path] != "") {
			t.Errorf("%s is in both tables or in none", path)
		}
	})
	for _, f := range append(Supported(), Ignored()...) {
		if !slices.Contains(all, f.Path) {
			t.Errorf("%s is no field", f.Path)
		}
		if f.Note == "" {
			t.Errorf("nothing is said about %s", f.Path)
		}
	}
}
