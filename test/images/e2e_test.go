package images

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// stubs is a directory of programs that only look like those of the images.
func stubs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"agnhost", "resource-consumer", "consume-cpu", "sample-apiserver", "sample-device-plugin", "etcd", "coredns"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBuildE2EIsRepeatable(t *testing.T) {
	needTools(t)
	for _, tool := range []string{"curl", "dig", "ip", "iperf", "nc", "perl", "socat"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("images contain what this machine has: ", err)
		}
	}
	bin := stubs(t)
	var digests [2]map[string]string
	for i := range digests {
		digests[i] = map[string]string{}
		err := BuildE2E(t.Context(), bin, func(a Archive) error {
			digests[i][a.Ref] = a.Digest
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for ref, digest := range digests[0] {
		if digests[1][ref] != digest {
			t.Errorf("%s is another image the second time", ref)
		}
	}
	if digests[0][e2e+"agnhost:2.66.1"] == "" {
		t.Errorf("there is no agnhost in %v", digests[0])
	}
}

func TestBuildE2EStopsAtTheFirstError(t *testing.T) {
	needTools(t)
	none := func(Archive) error { return nil }
	if err := BuildE2E(t.Context(), t.TempDir(), none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the programs: %v", err)
	}
}

func TestLibraries(t *testing.T) {
	got := libraries(`	linux-vdso.so.1 (0x00007ffd)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1a)
	/lib64/ld-linux-x86-64.so.2 (0x00007f1b)
`)
	if want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}; !slices.Equal(got, want) {
		t.Errorf("libraries = %v, want %v", got, want)
	}
	if got := libraries("\tnot a dynamic executable\n"); got != nil {
		t.Errorf("libraries of a static program = %v", got)
	}
}
