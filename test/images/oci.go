package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// file is one entry of a root file system. Its owner is root and its time is 1970, so that equal content
// makes an equal image.
type file struct {
	data []byte
	link string // target, when this is a symbolic link
	mode int64  // permission bits with sticky and set-uid bits; a directory when dir is set
	dir  bool
}

// rootFS is a root file system by slash-separated path without a leading slash.
type rootFS map[string]file

func (fs rootFS) addDir(name string, mode int64) { fs[name] = file{dir: true, mode: mode} }

func (fs rootFS) addLink(name, target string)               { fs[name] = file{link: target, mode: 0o777} }
func (fs rootFS) addFile(name string, data []byte, m int64) { fs[name] = file{data: data, mode: m} }

// tar packs the file system in the order of its names, parents before children.
func (fs rootFS) tar() ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(fs)) {
		f := fs[name]
		h := &tar.Header{Name: name, Mode: f.mode, Typeflag: tar.TypeReg, Size: int64(len(f.data)), Format: tar.FormatPAX}
		switch {
		case f.dir:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// config is the part of an image's configuration that says how to run it.
type config struct {
	User       string   `json:"User,omitempty"`
	Env        []string `json:"Env,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	Cmd        []string `json:"Cmd,omitempty"`

	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// describe is the descriptor of data, and the place of data in an OCI image layout.
func describe(mediaType string, data []byte) (d descriptor, blob string) {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}, path.Join("blobs/sha256", sum)
}

const ociType = "application/vnd.oci.image."

// pack makes an OCI image layout of one image with one uncompressed layer, and returns it as a tar
// archive together with the digest of the image's manifest.
func pack(ref, arch string, root rootFS, c config) (archive []byte, digest string, err error) {
	layer, err := root.tar()
	if err != nil {
		return nil, "", err
	}
	layerDesc, layerBlob := describe(ociType+"layer.v1.tar", layer)
	image, err := json.Marshal(map[string]any{
		"architecture": arch,
		"os":           "linux",
		"config":       c,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{layerDesc.Digest}},
	})
	if err != nil {
		return nil, "", err
	}
	imageDesc, imageBlob := describe(ociType+"config.v1+json", image)
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2,
		"mediaType":     ociType + "manifest.v1+json",
		"config":        imageDesc,
		"layers":        []descriptor{layerDesc},
	})
	if err != nil {
		return nil, "", err
	}
	manifestDesc, manifestBlob := describe(ociType+"manifest.v1+json", manifest)
	named := manifestDesc
	named.Annotations = map[string]string{"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": tag(ref)}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{named}})
	if err != nil {
		return nil, "", err
	}
	layout := rootFS{}
	layout.addFile("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)
	layout.addFile("index.json", index, 0o644)
	layout.addFile(layerBlob, layer, 0o644)
	layout.addFile(imageBlob, image, 0o644)
	layout.addFile(manifestBlob, manifest, 0o644)
	archive, err = layout.tar()
	return archive, manifestDesc.Digest, err
}

func tag(ref string) string { return ref[strings.LastIndexByte(ref, ':')+1:] }
