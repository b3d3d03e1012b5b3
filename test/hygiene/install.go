package hygiene

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// install has make put everything below a temporary folder, and looks at it as systemd and the agent do.
func install(ctx context.Context, r *Repo) (string, error) {
	dest, err := os.MkdirTemp("", "kubeletkit-install-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dest)
	if _, err := r.run(ctx, command{dir: ".", args: []string{"make", "install", "DESTDIR=" + dest, "PREFIX=/usr"}}); err != nil {
		return "", err
	}
	errs := missing(dest, map[string]fs.FileMode{
		"usr/bin/nodeagent":                                  0o755,
		"usr/lib/systemd/system/nodeagent.service":           0o644,
		"usr/share/bash-completion/completions/nodeagent":    0o644,
		"usr/share/zsh/site-functions/_nodeagent":            0o644,
		"usr/share/fish/vendor_completions.d/nodeagent.fish": 0o644,
		"usr/share/doc/nodeagent/NOTICE":                     0o644,
		"usr/share/doc/nodeagent/LICENSE":                    0o644,
		"etc/nodeagent/config.yaml":                          0o644,
		"etc/nodeagent/nodeagent.env":                        0o600,
		"etc/nodeagent/manifests":                            0o700 | fs.ModeDir,
	})
	unit, err := os.ReadFile(filepath.Join(dest, "usr/lib/systemd/system/nodeagent.service"))
	if err != nil {
		return "", errors.Join(append(errs, err)...)
	}
	errs = append(errs, judgeUnit(string(unit)))
	config := filepath.Join(dest, "etc/nodeagent/config.yaml")
	if out, err := r.run(ctx, command{dir: dest, args: []string{filepath.Join(dest, "usr/bin/nodeagent"), "config", "--unsupported", "--config", config}}); err != nil || out != "" {
		errs = append(errs, fmt.Errorf("the agent does not do all that the first configuration says: %s %w", out, err))
	}
	note, err := r.askSystemd(ctx, dest)
	errs = append(errs, err, r.keepsFiles(ctx, dest, config))
	return note, errors.Join(errs...)
}

// missing says which files are not there, or have another mode.
func missing(dest string, want map[string]fs.FileMode) (errs []error) {
	for name, mode := range want {
		info, err := os.Lstat(filepath.Join(dest, name))
		switch {
		case err != nil:
			errs = append(errs, err)
		case info.Mode() != mode:
			errs = append(errs, fmt.Errorf("make install: /%s has mode %s, not %s", name, info.Mode(), mode))
		}
	}
	return errs
}

// keepsFiles installs once more over files that somebody has changed.
func (r *Repo) keepsFiles(ctx context.Context, dest, config string) error {
	mine := []byte("# mine\n")
	if err := os.WriteFile(config, mine, 0o644); err != nil {
		return err
	}
	if _, err := r.run(ctx, command{dir: ".", args: []string{"make", "install", "DESTDIR=" + dest, "PREFIX=/usr"}}); err != nil {
		return err
	}
	have, err := os.ReadFile(config)
	if err == nil && string(have) != string(mine) {
		err = errors.New("make install wrote over a configuration that was there")
	}
	return err
}

// askSystemd has systemd-analyze, if there is one, read the unit where it was installed.
func (r *Repo) askSystemd(ctx context.Context, dest string) (string, error) {
	program, _ := exec.LookPath("systemd-analyze")
	if program == "" {
		return "installed and read; there is no systemd-analyze here to ask", nil
	}
	// The targets and the manual are those of a whole system, which dest is not.
	unit := filepath.Join(dest, "usr/lib/systemd/system/nodeagent.service")
	text, err := os.ReadFile(unit)
	if err != nil {
		return "", err
	}
	local := strings.ReplaceAll(string(text), "ExecStart=/usr/bin/", "ExecStart="+dest+"/usr/bin/")
	copied := filepath.Join(dest, "nodeagent.service")
	if err := os.WriteFile(copied, []byte(local), 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, "verify", "--man=no", copied)
	said, err := cmd.CombinedOutput()
	if complaints := about(string(said), "nodeagent.service"); err != nil || complaints != "" {
		return "", fmt.Errorf("systemd-analyze verify: %w\n%s", err, said)
	}
	return "installed twice; systemd takes the unit", nil
}

// about are the lines of a text that speak of name.
func about(text, name string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, name) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// judgeUnit holds what pods depend on: that they outlive the agent, that the agent comes back, and that their mounts are
// seen by the runtime.
func judgeUnit(unit string) error {
	have := map[string]string{}
	for line := range strings.Lines(unit) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			have[key] = value
		}
	}
	var errs []error
	for key, c := range map[string]struct{ want, why string }{
		"Type":            {"notify", "what starts after the agent waits for READY"},
		"KillMode":        {"process", "pods outlive the agent"},
		"Restart":         {"always", "a node without its agent is lost"},
		"Delegate":        {"yes", "the agent makes cgroups of its own"},
		"TimeoutStartSec": {"infinity", "a first certificate is waited for until somebody approves it"},
	} {
		if have[key] != c.want {
			errs = append(errs, fmt.Errorf("unit: %s is %q, it must be %q: %s", key, have[key], c.want, c.why))
		}
	}
	for _, key := range ownMounts() {
		if v, ok := have[key]; ok && v != "no" && v != "false" {
			errs = append(errs, fmt.Errorf("unit: %s gives the agent mounts of its own, and the container runtime would not see those of volumes", key))
		}
	}
	if have["RestrictSUIDSGID"] == "yes" {
		errs = append(errs, errors.New("unit: RestrictSUIDSGID forbids the bit by which files of a volume keep its group"))
	}
	return errors.Join(errs...)
}

// ownMounts are settings that imply a mount namespace.
func ownMounts() []string {
	return []string{
		"PrivateTmp", "PrivateDevices", "PrivateMounts", "PrivateUsers", "ProtectSystem", "ProtectHome", "ProtectKernelTunables", "ProtectKernelModules",
		"ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "TemporaryFileSystem",
		"DynamicUser", "RootDirectory", "RootImage", "BindPaths", "BindReadOnlyPaths",
	}
}
