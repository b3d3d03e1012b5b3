package registry

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

const text = `{"schemaVersion": 2}`

func digestOf(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }

// archive is an OCI archive whose one image has text as its manifest.
func archive(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, data := range map[string]string{
		"index.json": `{"manifests": [{"digest": "` + digestOf(text) + `"}]}`,
		"blobs/sha256/" + digestOf(text)[len("sha256:"):]: text,
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestPull(t *testing.T) {
	dir := t.TempDir()
	if err := Add(filepath.Join(dir, "images"), "registry.k8s.io/e2e/app:1.0-2", archive(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(Handler(filepath.Join(dir, "images"), ""))
	defer server.Close()
	for _, c := range []struct {
		rule, method, path string
		status             int
	}{
		{"the protocol is spoken here", "GET", "/v2/", 200},
		{"a tag is found", "HEAD", "/v2/e2e/app/manifests/1.0-2", 200},
		{"and read", "GET", "/v2/e2e/app/manifests/1.0-2", 200},
		{"a digest too", "GET", "/v2/e2e/app/manifests/" + digestOf(text), 200},
		{"as a blob", "GET", "/v2/e2e/app/blobs/" + digestOf(text), 200},
		{"an unknown tag is not", "GET", "/v2/e2e/app/manifests/2", 404},
		{"nor an unknown image", "GET", "/v2/e2e/other/manifests/1.0-2", 404},
		{"nor an unknown blob", "GET", "/v2/e2e/app/blobs/" + digestOf("x"), 404},
		{"a blob has no tag", "GET", "/v2/e2e/app/blobs/1.0-2", 404},
		{"no way leads out", "GET", "/v2/..%2f..%2fsecret/manifests/x", 404},
		{"not by the tag either", "GET", "/v2/e2e/manifests/..%2f..%2f..%2fsecret", 404},
		{"nothing can be pushed", "PUT", "/v2/e2e/app/manifests/1.0-2", 405},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: %s", c.rule, resp.Status)
		}
		if c.status != 200 || c.path == "/v2/" {
			continue
		}
		if got := resp.Header.Get("Docker-Content-Digest"); got != digestOf(text) {
			t.Errorf("%s: digest %q", c.rule, got)
		}
		if c.method == "GET" && string(body) != text {
			t.Errorf("%s: %q", c.rule, body)
		}
	}
}

func TestLogin(t *testing.T) {
	handler := Handler(t.TempDir(), "user:word")
	for password, want := range map[string]int{"": 401, "other": 401, "word": 200} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v2/", http.NoBody)
		if password != "" {
			r.SetBasicAuth("user", password)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("password %q: %d, want %d", password, w.Code, want)
		}
		if w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("password %q: the runtime is not told how to log in", password)
		}
	}
}

func TestAddRefusesWhatIsNoImage(t *testing.T) {
	dir := t.TempDir()
	for rule, err := range map[string]error{
		"no tag":     Add(dir, "registry.k8s.io/app", archive(t)),
		"no host":    Add(dir, "app:1", archive(t)),
		"no archive": Add(dir, "registry.k8s.io/app:1", []byte("x")),
	} {
		if err == nil {
			t.Errorf("%s: no error", rule)
		}
	}
}
