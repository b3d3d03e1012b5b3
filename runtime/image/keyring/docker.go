package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// login is one entry of a docker configuration.
type login struct{ Username, Password, Email string }

// UnmarshalJSON reads an entry. What stands in auth counts before username and password.
func (l *login) UnmarshalJSON(b []byte) error {
	var raw struct{ Username, Password, Email, Auth string }
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*l = login{raw.Username, raw.Password, raw.Email}
	if raw.Auth == "" {
		return nil
	}
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(strings.TrimSpace(raw.Auth), "=") {
		encoding = base64.StdEncoding
	}
	plain, err := encoding.DecodeString(raw.Auth)
	if err != nil {
		return err
	}
	var ok bool
	if l.Username, l.Password, ok = strings.Cut(string(plain), ":"); !ok {
		return errors.New("no colon in auth")
	}
	return nil
}

// hash is the fingerprint the kubelet writes into its records of pulled images: of the JSON of the fields that are set.
func (l login) hash() string {
	b, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Email    string `json:"email,omitempty"`
	}(l))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// parse reads a docker configuration: the map of registries itself in the old format, below "auths" in the newer one. Errors
// show nothing of the content.
func parse(b []byte, old bool) (map[string]login, error) {
	var whole struct {
		Auths map[string]login `json:"auths"`
	}
	into := any(&whole)
	if old {
		into = &whole.Auths
	}
	err := json.Unmarshal(b, into)
	at, isSyntax := errors.AsType[*json.SyntaxError](err)
	switch {
	case err == nil:
		return whole.Auths, nil
	case isSyntax:
		return nil, fmt.Errorf("is not JSON (at byte %d)", at.Offset)
	case old:
		return nil, errors.New(`is not of the form {"REGISTRY": {"auth": "base64 of USER:PASSWORD"}}`)
	default:
		return nil, errors.New(`is not of the form {"auths": {"REGISTRY": {"auth": "base64 of USER:PASSWORD"}}}`)
	}
}

// ofSecret is what a pull secret says. Secrets of other types, and empty ones, say nothing.
func ofSecret(s *v1.Secret) (map[string]login, error) {
	key, old := v1.DockerConfigJsonKey, false
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
	case v1.SecretTypeDockercfg:
		key, old = v1.DockerConfigKey, true
	default:
		return nil, nil
	}
	if len(s.Data[key]) == 0 {
		return nil, nil
	}
	entries, err := parse(s.Data[key], old)
	if err != nil {
		return nil, fmt.Errorf("image pull secret %s/%s: key %s %w", s.Namespace, s.Name, key, err)
	}
	return entries, nil
}

// NodeFiles are the places where the kubelet looks for docker configuration of the node, for an agent whose state lies in root.
func NodeFiles(root string) []string {
	home, err := os.UserHomeDir()
	dirs := []string{root, "."}
	old := []string{root, "."}
	if err == nil {
		dirs, old = append(dirs, filepath.Join(home, ".docker")), append(old, home)
	}
	dirs, old = append(dirs, "/.docker"), append(old, "/")
	var out []string
	for _, d := range dirs {
		out = append(out, filepath.Join(d, "config.json"))
	}
	for _, d := range old {
		out = append(out, filepath.Join(d, ".dockercfg"))
	}
	return out
}

// fileAge is how long a docker configuration of the node is believed.
const fileAge = 5 * time.Minute

// files reads the first docker configuration there is.
type files struct {
	paths []string

	mu    sync.Mutex // guards the rest
	until time.Time
	found map[string]login
}

// read is the content of the first file that can be read. skipped says what is wrong with those before it, once each time
// they are looked at.
func (f *files) read(now time.Time) (found map[string]login, skipped error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Before(f.until) {
		return f.found, nil
	}
	f.found, f.until = nil, now.Add(fileAge)
	for _, path := range f.paths {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			f.found, err = parse(bytes.TrimSpace(b), filepath.Base(path) == ".dockercfg")
		}
		if err == nil {
			break
		}
		skipped = errors.Join(skipped, fmt.Errorf("docker configuration %s %w", path, err))
	}
	return f.found, skipped
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
