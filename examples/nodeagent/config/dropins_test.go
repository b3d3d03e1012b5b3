package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDropIns(t *testing.T) {
	for _, c := range []struct {
		rule     string
		files    map[string]string
		warnings string
		err      string
		pods     int32
	}{
		{rule: "by name, folders too", pods: 4, files: map[string]string{
			"d/20.conf": head + "maxPods: 4", "d/10.conf": head + "maxPods: 1", "d/15/z.conf": head + "maxPods: 3", "d/15/a.conf": head + "maxPods: 2",
		}},
		{rule: "an empty folder", pods: 110, files: map[string]string{"d/README": "hello"}},
		{
			rule: "a name that is probably a mistake is a warning", pods: 110, files: map[string]string{"d/10.yaml": head + "maxPods: 1", "d/b.conf~": "x"},
			warnings: "d/10.yaml is not read: a drop-in's name ends in .conf",
		},
		{
			rule: "unknown fields are warnings with the drop-in's name", pods: 1, files: map[string]string{"d/10.conf": head + "maxPods: 1\nmaxPod: 2"},
			warnings: "d/10.conf: maxPod: is no field of KubeletConfiguration v1beta1; it has no effect. Is maxPods meant?",
		},
		{
			rule: "a path that is not absolute is a warning", pods: 110, files: map[string]string{"d/10.conf": head + "authentication: {x509: {clientCAFile: ca.crt}}"},
			warnings: "d/10.conf: authentication.x509.clientCAFile: is relative, and in a drop-in counts from the folder the agent is started in; write it from /",
		},
		{
			rule: "a wrong value names its drop-in", files: map[string]string{"d/10.conf": head + "maxPods: 1", "d/20.conf": head + "maxPods: many"},
			err: `read a drop-in: d/20.conf: maxPods: is "many"; it must be a whole number (int32), without quotes`,
		},
		{
			rule: "a drop-in says what it is", files: map[string]string{"d/10.conf": "maxPods: 1"},
			err: "read a drop-in: d/10.conf: kind: is missing; it must be KubeletConfiguration",
		},
		{
			rule: "a folder that is not there", files: map[string]string{"e/10.conf": "x"},
			err: "look for drop-ins in --config-dir: lstat d: no such file or directory",
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := write(t, c.files)
			cfg, warnings, err := Load(Options{Dir: filepath.Join(dir, "d")})
			if got := lines(dir, warnings); got != c.warnings {
				t.Errorf("warnings: got %s\nwant %s", got, c.warnings)
			}
			if got := message(dir, err); got != c.err {
				t.Errorf("error: got %s\nwant %s", got, c.err)
			}
			if err == nil && cfg.MaxPods != c.pods {
				t.Errorf("maxPods %d, want %d", cfg.MaxPods, c.pods)
			}
		})
	}
}

func message(dir string, err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), dir+"/", "")
}

func TestLinksAreFollowed(t *testing.T) { // volumes of ConfigMaps are made of them
	dir := write(t, map[string]string{"real/..v1/10.conf": head + "maxPods: 7", "real/config.yaml": head})
	for from, to := range map[string]string{"real/..data": "..v1", "real/10.conf": "..data/10.conf", "d": "real"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _, err := Load(Options{Dir: filepath.Join(dir, "d")})
	if err != nil || cfg.MaxPods != 7 {
		t.Fatal(err, cfg)
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "p.conf")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{File: pipe}, {Dir: dir}, {File: dir}} {
		if _, _, err := Load(o); err == nil || !strings.Contains(err.Error(), "is no regular file; put the configuration into one") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestAHugeFileIsRefused(t *testing.T) {
	dir := write(t, map[string]string{"k.yaml": head + strings.Repeat("# more\n", limit/7+1)})
	if _, _, err := Load(Options{File: filepath.Join(dir, "k.yaml")}); err == nil || !strings.Contains(err.Error(), "is larger than 4 MiB") {
		t.Error(err)
	}
}

func TestStrictMakesErrorsOfLostSettings(t *testing.T) {
	dir := write(t, map[string]string{
		"k.yaml": head + "maxPod: 1\nport: 1\nport: 2", "d/10.conf": head + "prot: 3", "d/x.yaml": "",
	})
	_, warnings, err := Load(Options{File: filepath.Join(dir, "k.yaml"), Dir: filepath.Join(dir, "d"), Strict: true})
	want := "k.yaml: port: is given twice, again in line 5; the last one counts\n" +
		"k.yaml: maxPod: is no field of KubeletConfiguration v1beta1; it has no effect. Is maxPods meant?\n" +
		"d/10.conf: prot: is no field of KubeletConfiguration v1beta1; it has no effect. Is port meant?"
	if got := message(dir, err); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(warnings) != 4 {
		t.Errorf("warnings are given beside the error: %v", warnings)
	}
}

// Nothing in a file, alone or together, lets strangers in who were not let in by name.
func TestCase_c124_NobodyIsLetInUnasked(t *testing.T) {
	for _, fields := range []string{"", "authentication: {}", "authentication: {anonymous: {}}", "authentication: {anonymous: {enabled: null}}", "authentication: null\nauthorization: null", "authorization: {mode: \"\"}"} {
		dir := write(t, map[string]string{"k.yaml": head + fields, "d/10.conf": head + fields})
		for _, o := range []Options{{File: filepath.Join(dir, "k.yaml")}, {Dir: filepath.Join(dir, "d")}, {File: filepath.Join(dir, "k.yaml"), Dir: filepath.Join(dir, "d")}} {
			c, _, err := Load(o)
			if err != nil {
				t.Fatal(err)
			}
			if *c.Authentication.Anonymous.Enabled || !*c.Authentication.Webhook.Enabled || c.Authorization.Mode != "Webhook" || c.ReadOnlyPort != 0 {
				t.Errorf("%q: %+v %+v %d", fields, c.Authentication, c.Authorization, c.ReadOnlyPort)
			}
		}
	}
}
