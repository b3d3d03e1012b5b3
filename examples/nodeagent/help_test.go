package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHelpNamesEachFlagOnce(t *testing.T) {
	f, _, _ := agentFlags()
	var out bytes.Buffer
	if err := help(&out, f); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(out.String())
	f.VisitAll(func(fl *flag.Flag) {
		n := 0
		for _, w := range words {
			if w == "--"+fl.Name {
				n++
			}
		}
		if heard := !strings.HasPrefix(fl.Usage, noEffect); n == 0 || heard && !strings.Contains(out.String(), "\n  --"+fl.Name) {
			t.Errorf("--%s is named %d times", fl.Name, n)
		}
	})
	for line := range strings.Lines(out.String()) {
		if len(line) > 120 {
			t.Errorf("a long line: %s", line)
		}
	}
}

func TestEachFlagHasASubsystem(t *testing.T) {
	f, _, _ := agentFlags()
	for _, fl := range ungrouped(f) {
		if !strings.HasPrefix(fl.Usage, noEffect) {
			t.Errorf("--%s: put it into a section of subsystems", fl.Name)
		}
	}
	seen := map[string]bool{}
	for _, s := range subsystems() {
		for name := range strings.FieldsSeq(s.flags) {
			if seen[name] || f.Lookup(name) == nil {
				t.Errorf("--%s is in two sections, or no flag", name)
			}
			seen[name] = true
		}
	}
}

func TestHelpIsPrintedToStandardOutput(t *testing.T) {
	for _, word := range []string{"help", "--help", "-h"} {
		var out, errOut bytes.Buffer
		if err := command(t.Context(), []string{word}, &out, &errOut); err != nil || errOut.Len() > 0 || !strings.Contains(out.String(), "\nCluster\n  --kubeconfig file\n") {
			t.Errorf("%s: %v %s%s", word, err, &errOut, &out)
		}
	}
}

func TestBashCompletes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "kubernetes"), 0o700); err != nil {
		t.Fatal(err)
	}
	var script bytes.Buffer
	if err := completionCommand([]string{"bash"}, &script); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule, typed, want string
	}{
		{"the first word is a command", "p", "pods"},
		{"or a flag of the agent", "--bootstrap-k", "--bootstrap-kubeconfig"},
		{"a flag without effect is not offered", "--lock-f", ""},
		{"after --kubeconfig stands a file", "--kubeconfig ku", "kubeconfig kubernetes"},
		{"after --config-dir stands a folder", "--config-dir ku", "kubernetes"},
		{"after a flag with another value nothing is known", "--port k", ""},
		{"pods has flags of its own", "pods --i", "--interval"},
		{"so has gc", "gc --", "--all --dry-run --port --root-dir --server"},
		{"config has those of the agent and its own", "config --unsup", "--unsupported"},
		{"check has those of the agent", "check --pod-man", "--pod-manifest-path"},
		{"completion wants a shell", "completion z", "zsh"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			words := strings.Split(c.typed, " ")
			cmd := exec.Command("bash", append([]string{"-c", script.String() +
				`COMP_WORDS=(nodeagent "$@"); COMP_CWORD=$#; _nodeagent; printf '%s\n' "${COMPREPLY[@]}"`, "bash"}, words...)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			got := strings.Fields(string(out))
			slices.Sort(got)
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("%s: got %q, want %q (%v)", c.typed, got, c.want, err)
			}
		})
	}
}

func TestCompletionOfAnotherShellIsRefused(t *testing.T) {
	if err := completionCommand([]string{"csh"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "bash, zsh or fish") {
		t.Error(err)
	}
}
