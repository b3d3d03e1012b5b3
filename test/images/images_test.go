package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
)

// A runtime that has an image keeps it through a rebuild only if the rebuild has the same digest.
func TestBuildIsRepeatable(t *testing.T) {
	needTools(t)
	first, err := Build(t.Context(), "..")
	if err != nil {
		t.Fatal(err)
	}
	second, err := Build(t.Context(), "..")
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range first {
		if a.Digest != second[i].Digest || !bytes.Equal(a.Data, second[i].Data) {
			t.Errorf("%s is another image the second time", a.Ref)
		}
	}
}

func TestBusyboxHasWhatScriptsNeed(t *testing.T) {
	needTools(t)
	root, err := busyboxRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin/sh", "bin/nmeter", "bin/wget", "bin/nslookup", "bin/sleep", "etc/passwd"} {
		if _, ok := root[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if root["tmp"].mode != 0o1777 {
		t.Errorf("mode of tmp = %o", root["tmp"].mode)
	}
}

func TestRandomImagesShareNothing(t *testing.T) {
	one, err := Random("kubeletkit.dev/one:1", 1000)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Random("kubeletkit.dev/one:1", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if one.Ref != two.Ref || one.Digest == two.Digest || len(one.Data) < 1000 {
		t.Errorf("%s %s of %d bytes, then %s %s", one.Ref, one.Digest, len(one.Data), two.Ref, two.Digest)
	}
}

func TestTarKeepsKindsAndModes(t *testing.T) {
	fs := rootFS{}
	fs.addFile("dir/file", []byte("text"), 0o755)
	fs.addDir("dir", 0o1777)
	fs.addLink("link", "dir/file")
	data, err := fs.tar()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 || h.Uid != 0 {
			t.Errorf("%s: time %v, owner %d", h.Name, h.ModTime, h.Uid)
		}
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name+" "+h.Linkname)
	}
	want := []string{"dtrwxrwxrwx dir/ ", "-rwxr-xr-x dir/file ", "Lrwxrwxrwx link dir/file"}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("entries = %q, want %q", got, want)
		}
	}
}

func needTools(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("images are compiled with gcc: ", err)
	}
	if _, err := os.Stat("/bin/busybox"); err != nil {
		t.Skip("images contain busybox-static: ", err)
	}
}
