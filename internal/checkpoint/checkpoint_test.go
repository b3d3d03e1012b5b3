package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	for name, write := range map[string]func(string, []byte) error{"for good": Write, "until a reboot": WriteUntilReboot} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "new", "state")
			var got map[string]int
			if err := Read(path, &got); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("before the first: %v", err)
			}
			for text, want := range map[string]map[string]int{`{"a":1,"ü<":2}`: {"a": 1, "ü<": 2}, `{}`: {}} {
				if err := write(path, []byte(text)); err != nil {
					t.Fatal(err)
				}
				got = nil
				if err := Read(path, &got); err != nil || !cmp.Equal(got, want) {
					t.Errorf("%v, %v, want %v", got, err, want)
				}
			}
			if names, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(names) != 1 {
				t.Errorf("left over: %v", names)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if err := write(filepath.Join(path, "below", "a file"), nil); err == nil {
				t.Error("written where no directory can be")
			}
			if err := os.Mkdir(path+"s", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := write(path+"s", []byte("{}")); err == nil {
				t.Error("written in the place of a directory")
			}
			if names, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(names) != 2 {
				t.Errorf("left over by one that failed: %v", names)
			}
		})
	}
}

func TestFormatIsTheKubelets(t *testing.T) {
	const theirs = `{"data":"{\"entries\":{\"u-1\":{\"ContainerResources\":{\"app\":{\"requests\":{\"cpu\":\"20m\"}}},\"PodLevelResources\":null}}}","checksum":1852169567}`
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	var v json.RawMessage
	if err := Read(path, &v); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, v); err != nil {
		t.Fatal(err)
	}
	if ours, err := os.ReadFile(path); err != nil || string(ours) != theirs {
		t.Errorf("%s, want %s (%v)", ours, theirs, err)
	}
}

func TestDamageIsSeenAndSetAside(t *testing.T) {
	for name, content := range map[string]string{
		"nothing":              "",
		"no JSON":              "{",
		"a bit turned":         `{"data":"{\"a\":2}","checksum":1}`,
		"cut":                  `{"data":"{\"a\":`,
		"of another kind":      fmt.Sprintf(`{"data":"[1]","checksum":%d}`, sum("[1]")),
		"the sum of all zeros": "\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			var v map[string]int
			if err := Read(path, &v); !errors.Is(err, ErrDamaged) {
				t.Errorf("%v", err)
			}
			if b, err := os.ReadFile(path + Aside); err != nil || string(b) != content {
				t.Errorf("set aside: %q, %v", b, err)
			}
			if err := Read(path, &v); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"data":"{\"a\":2}","checksum":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var v map[string]int
		if err := Read(path, &v); err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}
