package volume_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func hostPath(name, path string, t v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &t}}}
}

func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "")
	_ = os.Mkdir(dir+"/dir", 0o755)
	_ = os.Symlink("dir", dir+"/link")
	_ = os.Symlink("/", dir+"/rootlink")
	_ = os.Symlink("missing", dir+"/dangling")
	_ = syscall.Mkfifo(dir+"/pipe", 0o600)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: dir + "/sock"})
		defer syscall.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule, path string
		kind       v1.HostPathType
		want       string // in the error; empty: none
	}{
		{"without a type nothing is checked", "missing", v1.HostPathUnset, ""},
		{"a directory", "dir", v1.HostPathDirectory, ""},
		{"a link to a directory is one", "link", v1.HostPathDirectory, ""},
		{"a link to the root of the host is a directory, too (c139)", "rootlink", v1.HostPathDirectory, ""},
		{"a link to the root of the host is no file (c139)", "rootlink", v1.HostPathFile, "must be a file, but is a directory"},
		{"a link to the root of the host is no socket (c139)", "rootlink", v1.HostPathSocket, "must be a socket, but is a directory"},
		{"a link to the root of the host is no device (c139)", "rootlink", v1.HostPathCharDev, "must be a character device, but is a directory"},
		{"a directory that is missing", "missing", v1.HostPathDirectory, "must be a directory, but does not exist"},
		{"a directory that is a file", "file", v1.HostPathDirectory, "must be a directory, but is a file"},
		{"a directory that is made with its parents", "new/er", v1.HostPathDirectoryOrCreate, ""},
		{"a directory to be made that is a file", "file", v1.HostPathDirectoryOrCreate, "must be a directory, but is a file"},
		{"a file", "file", v1.HostPathFile, ""},
		{"a file that is a pipe", "pipe", v1.HostPathFile, "must be a file, but is a named pipe"},
		{"a file that is missing", "missing", v1.HostPathFile, "must be a file, but does not exist"},
		{"a file that is made", "newfile", v1.HostPathFileOrCreate, ""},
		{"a file is not made with its parents", "nowhere/file", v1.HostPathFileOrCreate, "no such file or directory"},
		{"a file to be made that is a directory", "dir", v1.HostPathFileOrCreate, "must be a file, but is a directory"},
		{"a file to be made at a link that leads nowhere", "dangling", v1.HostPathFileOrCreate, "no such file or directory"},
		{"a socket", "sock", v1.HostPathSocket, ""},
		{"a socket that is a file", "file", v1.HostPathSocket, "must be a socket, but is a file"},
		{"a character device", "/dev/null", v1.HostPathCharDev, ""},
		{"a block device that is a character device", "/dev/null", v1.HostPathBlockDev, "must be a block device, but is a character device"},
		{"below a file", "file/x", v1.HostPathDirectory, "cannot be looked at"},
		{"a way up", "dir/../dir", v1.HostPathUnset, "must not go up by .. anywhere"},
		{"two dots in a name are no way up", "dir/..x", v1.HostPathUnset, ""},
		{"an unknown type", "dir", "Pipe", `type "Pipe" is not known`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			h := newHouse(t)
			path := c.path
			if !filepath.IsAbs(path) {
				path = dir + "/" + path
			}
			places, err := h.Mount(t.Context(), podWith("u1", hostPath("host", path, c.kind)))
			got := places["host"]
			checked := got.Check != nil
			got.Check = nil
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && (!cmp.Equal(got, runtime.Volume{Path: path}) || checked != (c.kind != v1.HostPathUnset)):
				t.Errorf("%+v, checked later: %v", got, checked)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `volume "host"`)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			h.unmount(t, "u1")
		})
	}
	if info, err := os.Stat(dir + "/newfile"); err != nil || info.Mode() != 0o644 {
		t.Errorf("the file that was made: %v %v", info, err)
	}
	if info, err := os.Stat(dir + "/new/er"); err != nil || info.Mode() != fs.ModeDir|0o755 {
		t.Errorf("the directory that was made: %v %v", info, err)
	}
}

// What goes away while a pod runs keeps containers from being made with it, and nothing else: neither the rest of the pod nor a
// look at it waits for it.
func TestAHostPathMayGoAwayOnceItIsInPlace(t *testing.T) {
	h := newHouse(t)
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "")
	p := podWith("u1", hostPath("host", path, v1.HostPathFile), hostPath("made", path+"s", v1.HostPathDirectoryOrCreate))
	if _, err := h.Mount(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{path, path + "s"} {
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
	}
	places, err := h.Mount(t.Context(), p)
	if err != nil || places["host"].Path != path {
		t.Fatalf("%+v, %v", places, err)
	}
	if err := places["host"].Check(); err == nil || !strings.Contains(err.Error(), "must be a file, but does not exist") {
		t.Errorf("a container may be made with it: %v", err)
	}
	if err := places["made"].Check(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path + "s"); err != nil || !info.IsDir() {
		t.Errorf("it is not made again: %v", err)
	}
	write(t, path, "")
	if err := places["host"].Check(); err != nil {
		t.Error(err)
	}
	h.unmount(t, "u1")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Mount(t.Context(), p); err == nil {
		t.Error("in place for a pod that was taken away meanwhile")
	}
}

func TestARelativeHostPathIsRefused(t *testing.T) {
	h := newHouse(t)
	if _, err := h.Mount(t.Context(), podWith("u1", hostPath("host", "etc", v1.HostPathUnset))); err == nil {
		t.Error("no error")
	}
}
