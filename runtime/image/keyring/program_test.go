package keyring

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const protocol = groupProtocol + "v1"

// script is a provider made of shell commands.
func script(t *testing.T, commands string) *executable {
	t.Helper()
	path := filepath.Join(t.TempDir(), "provider")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+commands+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &executable{Provider: Provider{APIVersion: protocol}, path: path, environ: os.Environ}
}

func TestAProgramIsAsked(t *testing.T) {
	t.Setenv("FROM_AGENT", "agent")
	p := script(t, `cat > "$OUT/in"; echo "$FROM_AGENT $MINE $1 $2" > "$OUT/env"
echo '{"apiVersion":"`+protocol+`","kind":"CredentialProviderResponse","cacheKeyType":"Registry","cacheDuration":"5m0s","auth":{"a.io":{"username":"u","password":"p"}},"later":1}'`)
	out := filepath.Dir(p.path)
	p.Args, p.Env = []string{"one", "two words"}, []Variable{{"OUT", out}, {"MINE", "mine"}}
	r, err := p.ask(t.Context(), request{Image: "a.io/x", Token: "tok", Annotations: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.CacheKeyType != byRegistry || r.CacheDuration.Duration != 5*time.Minute || r.Auth["a.io"].Password != "p" {
		t.Errorf("%+v", r)
	}
	for file, want := range map[string]string{
		"in":  `{"kind":"CredentialProviderRequest","apiVersion":"` + protocol + `","image":"a.io/x","serviceAccountToken":"tok","serviceAccountAnnotations":{"k":"v"}}`,
		"env": "agent mine one two words",
	} {
		got, err := os.ReadFile(filepath.Join(out, file))
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %s, %v", file, got, err)
		}
	}
}

func TestProgramsThatFail(t *testing.T) {
	for _, tt := range []struct{ rule, commands, err string }{
		{"an exit code", "echo no network >&2; exit 3", "exit status 3: no network"},
		{"no answer", "true", "is not the JSON of a CredentialProviderResponse"},
		{"no JSON", "echo hunter2", "is not the JSON of a CredentialProviderResponse"},
		{"another version than was asked in", `echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1beta1","kind":"CredentialProviderResponse"}'`, `its answer has apiVersion "credentialprovider.kubelet.k8s.io/v1beta1"`},
		{"another kind", `echo '{"apiVersion":"` + protocol + `","kind":"Pod"}'`, `kind "Pod"`},
		{"too long an answer", "head -c 2000000 /dev/zero", "its answer has more than 1048576 bytes"},
		{"much to say", "head -c 9000 /dev/zero | tr '\\0' x >&2; exit 1", strings.Repeat("x", 1024)},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			_, err := script(t, tt.commands).ask(t.Context(), request{Image: "a.io/x"})
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 1300 {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAProgramThatHangsIsEndedWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p := script(t, "sleep 600 & wait") // what it started holds its output open
	if _, err := p.ask(ctx, request{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Whatever a program answers: an answer or an error that shows nothing of it.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"` + protocol + `","kind":"CredentialProviderResponse","cacheKeyType":"Image","auth":{"a":{"username":"u"}}}`))
	p := &executable{Provider: Provider{APIVersion: protocol}}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := p.read(b); (r == nil) == (err == nil) {
			t.Errorf("%v, %v", r, err)
		}
	})
}
