package process

import (
	"encoding/binary"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	const rest = " S 7 42 42 0 -1 4194304 100 200 0 0 11 22 33 44 20 0 1 0 98765 5000000 321 18446744073709551615"
	want := stat{pid: 42, parent: 7, state: 'S', start: 98765, cpu: 110, pages: 321}
	for _, name := range []string{"sh", "a b", ") S 1 (", "x\ny", "))"} {
		got, err := parseStat([]byte("42 (" + name + ")" + rest))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(stat{})); diff != "" || err != nil {
			t.Errorf("%q: %v %s", name, err, diff)
		}
	}
	for _, bad := range []string{"", "42", "42 (sh)", "42 (sh) S 7", "x (sh)" + rest, "42 )(" + rest} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 7 42 42 0 -1 4194304 100 200 0 0 11 22 33 44 20 0 1 0 98765 5000000 321 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := parseStat(b); err == nil && len(b) < 24 {
			t.Errorf("%q is no status of a process", b)
		}
	})
}

func TestMembers(t *testing.T) {
	all := []stat{
		{pid: 1, state: 'S'},
		{pid: 10, parent: 1, state: 'S'}, // the shim
		{pid: 11, parent: 10, state: 'S'},
		{pid: 12, parent: 11, state: 'R'},
		{pid: 13, parent: 11, state: 'Z'},
		{pid: 20, parent: 1, state: 'S'}, // carries the mark
		{pid: 30, parent: 31, state: 'S'},
		{pid: 31, parent: 30, state: 'S'}, // a circle
	}
	marked := func(pid int) bool { return pid == 20 || pid == 12 }
	for _, c := range []struct {
		rule string
		shim int
		want []int
	}{
		{"descendants of the shim and those with the mark, the dead and the shim not", 10, []int{11, 12, 20}},
		{"without a shim those with the mark", 0, []int{12, 20}},
	} {
		var got []int
		for _, s := range members(all, c.shim, marked) {
			got = append(got, s.pid)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.rule, got, c.want)
		}
	}
}

func TestSignalNamed(t *testing.T) {
	for name, want := range map[string]syscall.Signal{
		"": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "quit": syscall.SIGQUIT, "9": syscall.SIGKILL,
		"SIGRTMIN": 34, "SIGRTMIN+3": 37, "RTMAX-1": 63,
	} {
		if got, err := signalNamed(name); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"SIGWHAT", "0", "65", "-1", "SIGRTMIN+31", "SIGRTMINx"} {
		if got, err := signalNamed(name); err == nil {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestChanges(t *testing.T) {
	event := func(mask uint32, name string) []byte {
		b := make([]byte, 16)
		binary.NativeEndian.PutUint32(b[4:], mask)
		padded := append([]byte(name), make([]byte, 16-len(name))...)
		binary.NativeEndian.PutUint32(b[12:], uint32(len(padded)))
		return append(b, padded...)
	}
	got, err := changes(append(event(8, "one"), event(8, "two")...))
	if err != nil || !slices.Equal(got, []string{"one", "two"}) {
		t.Error(got, err)
	}
	if _, err := changes(event(0x4000, "")); err == nil {
		t.Error("an overflow is no error")
	}
	if _, err := changes(event(8, "cut")[:20]); err == nil {
		t.Error("a cut event is no error")
	}
}

func FuzzChanges(f *testing.F) {
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = changes(b) })
}
