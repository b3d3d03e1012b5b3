package below

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLeads(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "real")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		filepath.Join(top, "dir"):    "real",
		filepath.Join(dir, "root"):   filepath.Join(dir, "a"),
		filepath.Join(dir, "side"):   filepath.Join(top, "dir", "a", "b"),
		filepath.Join(dir, "up"):     "..",
		filepath.Join(dir, "out"):    "/",
		filepath.Join(dir, "circle"): "circle",
		filepath.Join(dir, "broken"): "nothing",
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"a/b": "a/b", ".": ".", "root/b": "a/b", "side": "a/b",
		"up": "", "up/real/a": "a", "out": "", "circle": "", "broken": "", "none": "", "..": "",
	} {
		for _, from := range []string{dir, filepath.Join(top, "dir")} {
			if got := Leads(from, name); got != want {
				t.Errorf("%s below %s leads to %q, want %q", name, from, got, want)
			}
		}
	}
	if got := Leads(filepath.Join(top, "none"), "a"); got != "" {
		t.Errorf("below a directory that is not there, a leads to %q", got)
	}
}
