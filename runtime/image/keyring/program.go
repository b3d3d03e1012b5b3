package keyring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kinds of cacheKeyType in an answer.
const (
	byImage    = "Image"
	byRegistry = "Registry"
	forAll     = "Global"
)

// Bounds of one call of a program.
const (
	patience  = time.Minute
	lastWords = time.Second // how long what it started may keep its output open after it ended
	maxAnswer = 1 << 20     // bytes
	maxWords  = 1 << 10     // bytes of what it says on standard error that are shown
)

// request goes to the program's standard input.
type request struct {
	metav1.TypeMeta `json:",inline"`
	Image           string            `json:"image"`
	Token           string            `json:"serviceAccountToken,omitempty"`
	Annotations     map[string]string `json:"serviceAccountAnnotations,omitempty"`
}

// response comes from its standard output.
type response struct {
	metav1.TypeMeta `json:",inline"`
	CacheKeyType    string           `json:"cacheKeyType"`
	CacheDuration   *metav1.Duration `json:"cacheDuration,omitempty"`
	Auth            map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth,omitempty"`
}

// executable is the program of a provider.
type executable struct {
	Provider
	path    string
	environ func() []string
}

// ask runs it once. Errors show nothing of its standard output.
func (p *executable) ask(ctx context.Context, q request) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	q.APIVersion, q.Kind = p.APIVersion, "CredentialProviderRequest"
	in, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	out, words := &bounded{most: maxAnswer}, &bounded{most: maxWords}
	cmd := exec.CommandContext(ctx, p.path, p.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(append(in, '\n')), out, words, lastWords
	cmd.Env = p.environ()
	for _, v := range p.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	err = cmd.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("run %s: no answer after %s: %w%s", p.path, patience, ctx.Err(), words.said())
	case ctx.Err() != nil:
		return nil, fmt.Errorf("run %s: %w", p.path, ctx.Err())
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("run %s: %w%s", p.path, err, words.said())
	case out.over:
		return nil, fmt.Errorf("run %s: its answer has more than %d bytes", p.path, maxAnswer)
	}
	return p.read(out.kept)
}

// read understands an answer.
func (p *executable) read(b []byte) (*response, error) {
	r := &response{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, errors.New("its answer is not the JSON of a CredentialProviderResponse") // err may show what is secret
	}
	if r.APIVersion != p.APIVersion || r.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("its answer has apiVersion %q and kind %q, want %q and CredentialProviderResponse", r.APIVersion, r.Kind, p.APIVersion)
	}
	return r, nil
}

// bounded keeps the first bytes of what is written. It is no io.ReaderFrom, so that all comes by Write.
type bounded struct {
	kept []byte
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	fits := min(len(p), b.most-len(b.kept))
	b.over = b.over || fits < len(p)
	b.kept = append(b.kept, p[:fits]...)
	return len(p), nil
}

func (b *bounded) said() string {
	if s := strings.TrimSpace(string(b.kept)); s != "" {
		return ": " + s
	}
	return ""
}
