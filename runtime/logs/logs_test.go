package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// stamp is the time of the second-th record.
func stamp(second int) string {
	return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC).Format(time.RFC3339Nano)
}

// rec is one record as a runtime writes it.
func rec(second int, stream, tag, text string) string {
	return fmt.Sprintf("%s %s %s %s\n", stamp(second), stream, tag, text)
}

func write(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t testing.TB, path string, o Options) string {
	t.Helper()
	r, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestOpen(t *testing.T) {
	plain := rec(1, "stdout", "F", "one") + rec(2, "stderr", "F", "two") + rec(3, "stdout", "F", "three")
	split := rec(1, "stdout", "P", "a") + rec(2, "stderr", "F", "x") + rec(3, "stdout", "P", "b") + rec(4, "stdout", "F", "c") + rec(5, "stdout", "F", "end")
	for _, tt := range []struct {
		name, file string
		o          Options
		want       string
	}{
		{"the zero Options are everything", plain, Options{}, "one\ntwo\nthree\n"},
		{"an empty file is empty", "", Options{}, ""},
		{"one stream", plain, Options{Stream: Stderr}, "two\n"},
		{"timestamps have nine digits", plain, Options{Timestamps: true, Tail: 1}, "2026-01-02T03:04:03.000000000Z three\n"},
		{"since keeps what is not older", plain, Options{Since: time.Date(2026, 1, 2, 3, 4, 2, 0, time.UTC)}, "two\nthree\n"},
		{"tail counts from the end", plain, Options{Tail: 2}, "two\nthree\n"},
		{"tail of more than there is", plain, Options{Tail: 9}, "one\ntwo\nthree\n"},
		{"a negative tail is nothing", plain, Options{Tail: -1}, ""},
		{"tail counts lines of the stream asked for", plain, Options{Tail: 2, Stream: Stdout}, "one\nthree\n"},
		{"a limit cuts within a line", plain, Options{Limit: 6}, "one\ntw"},
		{"a limit of all changes nothing", plain, Options{Limit: 14}, "one\ntwo\nthree\n"},
		{"a limit counts timestamps", plain, Options{Limit: 4, Timestamps: true}, "2026"},
		{"pieces are joined within their stream", split, Options{}, "x\nabc\nend\n"},
		{"tail counts whole lines", split, Options{Tail: 2}, "abc\nend\n"},
		{"tail finds pieces before other lines", split, Options{Tail: 3}, "x\nabc\nend\n"},
		{"a joined line has the time of its first piece", split, Options{Tail: 2, Timestamps: true, Limit: 30}, "2026-01-02T03:04:01.000000000Z"},
		{"since looks at the first piece", split, Options{Since: time.Date(2026, 1, 2, 3, 4, 2, 0, time.UTC)}, "x\nend\n"},
		{"a line without end is given without newline", rec(1, "stdout", "P", "prompt> "), Options{}, "prompt> "},
		{"a line without end counts as one", plain + rec(4, "stdout", "P", "prompt> "), Options{Tail: 2}, "three\nprompt> "},
		{"a torn last record gives what it has", plain + strings.TrimSuffix(rec(4, "stdout", "F", "to"), "\n"), Options{Tail: 1}, "to"},
		{"a torn head is passed over", plain + stamp(4), Options{Tail: 1}, "three\n"},
		{"garbage is passed over", "\x00\x00garbage\n\n" + plain + "{}\n", Options{}, "one\ntwo\nthree\n"},
		{"garbage does not count", plain + "{}\n\n\n", Options{Tail: 1}, "three\n"},
		{"only garbage is empty", "\n\n\nx\n", Options{Tail: 5}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := read(t, write(t, tt.file), tt.o); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// kubernetes/kubernetes#59902, #11046: who asked for the last lines just after a rotation got next to none.
func TestTailGoesBackIntoTheFileThatWasMovedAwayLast(t *testing.T) {
	older := rec(1, "stdout", "F", "zero")
	moved := rec(1, "stdout", "F", "one") + rec(2, "stderr", "F", "two") + rec(3, "stdout", "F", "three")
	live := rec(4, "stdout", "F", "four") + rec(5, "stderr", "F", "five")
	begun := rec(1, "stdout", "F", "one") + rec(2, "stdout", "P", "be") + rec(3, "stderr", "F", "x")
	ended := rec(4, "stdout", "F", "gun") + rec(5, "stdout", "F", "end")
	for _, tt := range []struct {
		name, moved, live string
		o                 Options
		want              string
	}{
		{"what the log has is enough", moved, live, Options{Tail: 2}, "four\nfive\n"},
		{"what it lacks was before", moved, live, Options{Tail: 4}, "two\nthree\nfour\nfive\n"},
		{"no further back than one file", moved, live, Options{Tail: 9}, "one\ntwo\nthree\nfour\nfive\n"},
		{"a log that has just begun", moved, "", Options{Tail: 1}, "three\n"},
		{"of one stream", moved, live, Options{Tail: 2, Stream: Stderr}, "two\nfive\n"},
		{"not older than", moved, live, Options{Tail: 9, Since: time.Date(2026, 1, 2, 3, 4, 3, 0, time.UTC)}, "three\nfour\nfive\n"},
		{"within the limit", moved, live, Options{Tail: 3, Limit: 8}, "three\nfo"},
		{"a line that goes on in the next file", begun, ended, Options{Tail: 4}, "x\nbegun\nend\n"},
		{"a line that was torn", moved + stamp(4) + " stdout F to", live, Options{Tail: 4}, "three\nto\nfour\nfive\n"},
		{"a moved file without lines", "", live, Options{Tail: 4}, "four\nfive\n"},
		{"without a number it is the log alone", moved, live, Options{}, "four\nfive\n"},
		{"nor with none", moved, live, Options{Tail: -1}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := write(t, tt.live)
			for name, text := range map[string]string{".20260102-030401": older, ".20260102-030403": tt.moved, ".backup": older, ".20260102-030400.gz.tmp": "x"} {
				if err := os.WriteFile(path+name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := read(t, path, tt.o); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("what is compressed is not looked into", func(t *testing.T) {
		path := write(t, live)
		if err := os.WriteFile(path+".20260102-030403.gz", []byte(moved), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path, Options{Tail: 4}); got != "four\nfive\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("a reader that is closed on the way", func(t *testing.T) {
		path := write(t, live)
		if err := os.WriteFile(path+".20260102-030403", []byte(moved), 0o600); err != nil {
			t.Fatal(err)
		}
		rc, err := Open(t.Context(), path, Options{Tail: 4})
		if err := errors.Join(err, rc.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := rc.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestCase_c111_oddRecordsAreJoinedCountedAndSurvived(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	file := rec(1, "stdout", "P", "part1") + rec(1, "stderr", "F", "err") + rec(2, "stdout", "F", "end") +
		"no-time stdout F bad\n" + rec(3, "stdout", "F:x", "tagged") + rec(4, "stdout", "F", "a\x00b") +
		rec(5, "stderr", "F", long) + stamp(6) + " stdout F torn"
	path := write(t, file)
	if got, want := read(t, path, Options{}), "err\npart1end\ntagged\na\x00b\n"+long+"\ntorn"; got != want {
		t.Errorf("whole: got %.80q, want %.80q", got, want)
	}
	if got, want := read(t, path, Options{Tail: 5, Timestamps: true, Stream: Stdout}), stamped(1, "part1end")+stamped(3, "tagged")+stamped(4, "a\x00b")+strings.TrimSuffix(stamped(6, "torn"), "\n"); got != want {
		t.Errorf("tail: got %q, want %q", got, want)
	}
}

func stamped(second int, text string) string {
	return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC).Format(layout) + text + "\n"
}

func TestLongLinesNeedLittleMemory(t *testing.T) {
	path := write(t, "")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	piece := strings.Repeat("y", 1<<20)
	for i := range 16 {
		tag := "P"
		if i == 15 {
			tag = "F"
		}
		if _, err := f.WriteString(rec(i, "stdout", tag, piece)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	rc, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	n, err := io.Copy(io.Discard, rc)
	if err != nil || n != 16<<20+1 {
		t.Errorf("got %d bytes, %v", n, err)
	}
	if held := cap(rc.(*reader).lines.out) + cap(rc.(*reader).lines.lines[stdout].text); held > 4*lineMax {
		t.Errorf("%d bytes held", held)
	}
}

func TestTailFindsEarlierPiecesAcrossBlocks(t *testing.T) {
	piece := strings.Repeat("z", 10<<10)
	var file, want strings.Builder
	for i := range 40 {
		file.WriteString(rec(i, "stdout", "P", piece))
		file.WriteString(rec(i, "stderr", "F", "noise"))
		want.WriteString(piece)
	}
	file.WriteString(rec(50, "stdout", "F", "."))
	if got := read(t, write(t, file.String()), Options{Tail: 1}); got != want.String()+".\n" {
		t.Errorf("got %d bytes, want %d", len(got), want.Len()+2)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "none"), Options{}); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "none"), Options{Follow: true}); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("a missing file followed: %v", err)
	}
	for _, path := range []string{pipe, dir} {
		if _, err := Open(t.Context(), path, Options{Follow: true}); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
	if _, err := Open(t.Context(), write(t, ""), Options{Stream: "stdin"}); err == nil {
		t.Error("an unknown stream was accepted")
	}
}

func TestOpenReadsTheMovedFileInTheMomentOfRotation(t *testing.T) {
	path := write(t, rec(1, "stdout", "F", "one"))
	if err := os.Rename(path, path+".20260102-030405"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path, Options{}); got != "one\n" {
		t.Errorf("got %q", got)
	}
}

func TestReadReportsWhyTheContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := Open(ctx, write(t, rec(1, "stdout", "F", "one")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	why := errors.New("why")
	cancel(why)
	if _, err := io.ReadAll(r); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestLastLines(t *testing.T) {
	var file strings.Builder
	for i := range 100 {
		file.WriteString(rec(i%60, []string{"stdout", "stderr"}[i%2], "F", fmt.Sprintf("line %02d", i)))
	}
	path := write(t, file.String())
	for _, tt := range []struct {
		name         string
		lines, bytes int
		want         string
	}{
		{"lines bind", 2, 2048, "line 98\nline 99\n"},
		{"bytes bind and keep the end", 80, 10, "8\nline 99\n"},
		{"no lines", 0, 10, ""},
		{"no bytes", 10, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := LastLines(path, tt.lines, tt.bytes)
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	if got, _ := LastLines(write(t, rec(1, "stdout", "F", "ü")), 1, 2); got != "\n" {
		t.Errorf("half a character was kept: %q", got)
	}
	if _, err := LastLines(path+"x", 1, 1); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("a missing file: %v", err)
	}
}

// naive is tail written plainly: all lines in the order of their last records, those without end last.
func naive(file string, n int, only string) string {
	type line struct {
		text string
		last int
		open bool
		s    stream
	}
	var lines []line
	open := [streams]int{-1, -1}
	for i, l := range strings.SplitAfter(file, "\n") {
		r, ok := parse([]byte(strings.TrimSuffix(l, "\n")))
		if !ok || (only != "" && only != r.stream.String()) {
			continue
		}
		at := open[r.stream]
		if at < 0 {
			at = len(lines)
			lines = append(lines, line{s: r.stream, open: true})
			open[r.stream] = at
		}
		lines[at].text += string(r.text)
		lines[at].last = i
		if !r.partial && strings.HasSuffix(l, "\n") {
			lines[at].text += "\n"
			lines[at].open = false
			open[r.stream] = -1
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return a.last - b.last })
	lines = lines[max(0, len(lines)-n):]
	slices.SortStableFunc(lines, func(a, b line) int {
		switch {
		case a.open && b.open:
			return int(a.s) - int(b.s)
		case a.open:
			return 1
		case b.open:
			return -1
		}
		return 0
	})
	var out strings.Builder
	for _, l := range lines {
		out.WriteString(l.text)
	}
	return out.String()
}

func FuzzOpen(f *testing.F) {
	f.Add(rec(1, "stdout", "P", "a")+rec(2, "stderr", "F", "x")+rec(3, "stdout", "F", "b"), 1, 0)
	f.Add(rec(1, "stdout", "F", "a")+"garbage\n"+rec(2, "stderr", "P", "x"), 2, 1)
	f.Add(rec(1, "stderr", "P", "a")+rec(1, "stdout", "P", "a")+rec(2, "stderr", "P", "x"), 1, 2)
	f.Add("\n\n"+stamp(1)+" stdout F:x", 3, 0)
	path := filepath.Join(f.TempDir(), "0.log")
	f.Fuzz(func(t *testing.T, file string, n, which int) {
		if n <= 0 || n > 1000 {
			return
		}
		o := Options{Tail: int64(n), Stream: []string{"", Stdout, Stderr}[uint(which)%3]}
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, path, o), naive(file, n, o.Stream); got != want {
			t.Errorf("tail %d of %q: got %q, want %q", n, file, got, want)
		}
		if got, want := read(t, path, Options{Stream: o.Stream}), naive(file, len(file)+1, o.Stream); got != want {
			t.Errorf("all of %q: got %q, want %q", file, got, want)
		}
	})
}
