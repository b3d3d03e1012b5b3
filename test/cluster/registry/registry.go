// Package registry serves container images to a runtime that pulls them: the reading half of the OCI
// distribution protocol over a directory of blobs.
//
// [Add] puts an image into the directory, [Handler] serves what is there at the time of each request. Several
// processes may read the directory while one adds to it. There is no pushing, deleting or listing over HTTP.
package registry

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Add puts the image of an OCI archive into dir under the repository and tag of ref, such as
// "registry.k8s.io/pause:3.10"; the host is left out. The tag appears last, and at once.
func Add(dir, ref string, archive []byte) error {
	_, name, ok := strings.Cut(ref, "/")
	i := strings.LastIndexByte(name, ':')
	if !ok || i < 0 {
		return fmt.Errorf("add image %s: the reference has no host or no tag", ref)
	}
	files, err := unpack(archive)
	if err != nil {
		return fmt.Errorf("add image %s: %w", ref, err)
	}
	var index struct {
		Manifests []struct{ Digest string }
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		return fmt.Errorf("add image %s: the archive has not exactly one image: %w", ref, err)
	}
	for file, data := range files {
		if hash, ok := strings.CutPrefix(file, "blobs/sha256/"); ok {
			if err := write(filepath.Join(dir, "blobs", hash), data); err != nil {
				return fmt.Errorf("add image %s: %w", ref, err)
			}
		}
	}
	return write(filepath.Join(dir, "tags", name[:i], name[i+1:]), []byte(index.Manifests[0].Digest))
}

func unpack(archive []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

// write makes a file appear with all its content.
func write(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(data)) && filepath.Base(filepath.Dir(path)) == "blobs" {
		return nil // its name says what is in it
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Handler serves the images in dir. login is "user:password", asked for by basic authentication; empty: anybody
// may pull. It may be called by many goroutines at once.
func Handler(dir, login string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/{path...}", func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, dir, r.PathValue("path"))
	})
	if login == "" {
		return mux
	}
	want := sha256.Sum256([]byte(login))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		got := sha256.Sum256([]byte(user + ":" + password))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "log in first")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// What paths are made of; no component of one can lead out of the directory.
var (
	request = regexp.MustCompile(`^([a-z0-9]+(?:[._/-]+[a-z0-9]+)*)/(manifests|blobs)/([A-Za-z0-9_][A-Za-z0-9._:-]*)$`)
	digest  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// serve answers for "NAME/manifests/TAG-OR-DIGEST" and "NAME/blobs/DIGEST".
func serve(w http.ResponseWriter, r *http.Request, dir, path string) {
	m := request.FindStringSubmatch(path)
	if m == nil || strings.Contains(path, "..") {
		refuse(w, http.StatusNotFound, "NAME_INVALID", path)
		return
	}
	name, kind, ref := m[1], m[2], m[3]
	if kind == "manifests" && !digest.MatchString(ref) {
		data, err := os.ReadFile(filepath.Join(dir, "tags", name, ref))
		if err != nil {
			refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", path)
			return
		}
		ref = string(data)
	}
	if !digest.MatchString(ref) {
		refuse(w, http.StatusNotFound, "DIGEST_INVALID", path)
		return
	}
	f, err := os.Open(filepath.Join(dir, "blobs", strings.TrimPrefix(ref, "sha256:")))
	if errors.Is(err, fs.ErrNotExist) {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", path)
		return
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	w.Header().Set("Docker-Content-Digest", ref)
	w.Header().Set("Content-Type", "application/octet-stream")
	if kind == "manifests" {
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	}
	http.ServeContent(w, r, "", info.ModTime(), f)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}
