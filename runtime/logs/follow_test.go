package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// following is a log that is being written and read.
type following struct {
	t     *testing.T
	path  string
	file  *os.File
	lines *bufio.Reader
	rc    io.ReadCloser
	ended atomic.Bool
}

// follow opens a new log with the given content.
func follow(t *testing.T, content string, o Options) *following {
	t.Helper()
	f := &following{t: t, path: write(t, content)}
	f.reopen()
	o.Follow, o.Done = true, f.ended.Load
	rc, err := Open(t.Context(), f.path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rc.Close() })
	f.rc, f.lines = rc, bufio.NewReader(rc)
	return f
}

// reopen does what a runtime does after a rotation.
func (f *following) reopen() {
	f.t.Helper()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Error(err)
		return
	}
	if f.file != nil {
		_ = f.file.Close()
	} else {
		f.t.Cleanup(func() { _ = f.file.Close() })
	}
	f.file = file
}

func (f *following) print(s string) {
	f.t.Helper()
	if _, err := f.file.WriteString(s); err != nil {
		f.t.Error(err)
	}
}

func (f *following) rename(suffix string) {
	f.t.Helper()
	if err := os.Rename(f.path, f.path+suffix); err != nil {
		f.t.Error(err)
	}
}

func (f *following) want(line string) {
	f.t.Helper()
	got, err := f.lines.ReadString('\n')
	if err != nil || got != line+"\n" {
		f.t.Fatalf("got %q, %v, want %q", got, err, line)
	}
}

func (f *following) wantEnd() {
	f.t.Helper()
	if got, err := io.ReadAll(f.lines); err != nil || len(got) > 0 {
		f.t.Errorf("after the last line: %q, %v", got, err)
	}
}

func TestFollowGivesWhatIsWritten(t *testing.T) {
	f := follow(t, rec(1, "stdout", "F", "old"), Options{})
	f.want("old")
	f.print(rec(2, "stdout", "F", "new"))
	f.want("new")
	f.print(rec(3, "stdout", "F", "last"))
	f.ended.Store(true)
	f.want("last")
	f.wantEnd()
}

func TestFollowWithNoTailGivesOnlyWhatIsNew(t *testing.T) {
	f := follow(t, rec(1, "stdout", "F", "old"), Options{Tail: -1})
	f.print(rec(2, "stdout", "F", "new"))
	f.want("new")
}

func TestFollowBeginsInTheFileThatWasMovedAwayLast(t *testing.T) {
	path := write(t, rec(3, "stdout", "F", "three"))
	if err := os.WriteFile(path+".20260102-030403", []byte(rec(1, "stdout", "F", "one")+rec(2, "stdout", "F", "two")), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &following{t: t, path: path}
	f.reopen()
	rc, err := Open(t.Context(), path, Options{Tail: 2, Follow: true, Done: f.ended.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rc.Close() })
	f.rc, f.lines = rc, bufio.NewReader(rc)
	f.want("two")
	f.want("three")
	f.print(rec(4, "stdout", "F", "four"))
	f.want("four")
	f.rename(".20260102-030405")
	f.reopen()
	f.print(rec(5, "stdout", "F", "five"))
	f.want("five")
	f.ended.Store(true)
	f.wantEnd()
}

func TestFollowOfAnEndedContainerEnds(t *testing.T) {
	f := follow(t, rec(1, "stdout", "F", "old")+rec(1, "stdout", "P", "end"), Options{})
	f.ended.Store(true)
	f.want("old")
	if got, err := io.ReadAll(f.lines); err != nil || string(got) != "end" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCase_c111_aTornRecordIsCompletedWhenMoreBytesArrive(t *testing.T) {
	whole := rec(2, "stdout", "F", "torn and mended")
	f := follow(t, rec(1, "stdout", "F", "old")+whole[:40], Options{})
	f.want("old")
	f.print(whole[40:])
	f.want("torn and mended")
}

func TestFollowShowsAnUnfinishedLineAtOnce(t *testing.T) {
	f := follow(t, rec(1, "stdout", "P", "Password: "), Options{Timestamps: true})
	buf := make([]byte, 100)
	n, err := f.rc.Read(buf)
	if got := string(buf[:n]); err != nil || got != "2026-01-02T03:04:01.000000000Z Password: " {
		t.Fatalf("got %q, %v", got, err)
	}
	f.print(rec(2, "stdout", "F", "thanks"))
	f.want("thanks")
}

func TestFollowStopsAtTheLimit(t *testing.T) {
	f := follow(t, rec(1, "stdout", "F", "12345"), Options{Limit: 8})
	f.want("12345")
	f.print(rec(2, "stdout", "F", "67890"))
	if got, err := io.ReadAll(f.lines); err != nil || string(got) != "67" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFollowGoesOnAfterTruncation(t *testing.T) {
	f := follow(t, rec(1, "stdout", "F", "a long line before"), Options{})
	f.want("a long line before")
	if err := os.Truncate(f.path, 0); err != nil {
		t.Fatal(err)
	}
	f.print(rec(2, "stdout", "F", "after"))
	f.want("after")
}

func TestCase_c108_everyLineOnceAndInOrderAcrossRotations(t *testing.T) {
	const lines, each = 2000, 50 // forty rotations
	f := follow(t, "", Options{})
	written := make(chan struct{})
	t.Cleanup(func() { <-written })
	go func() {
		defer close(written)
		for i := range lines {
			if i%each == each-1 {
				f.rename(fmt.Sprintf(".%06d", i))
				f.print(rec(0, "stdout", "F", fmt.Sprint(i))) // a runtime still has the old file open
				f.reopen()
				continue
			}
			f.print(rec(0, "stdout", "F", fmt.Sprint(i)))
		}
	}()
	for i := range lines {
		f.want(fmt.Sprint(i))
	}
	<-written
	f.ended.Store(true)
	f.wantEnd()
}

func TestCase_c108_aReaderThatLagsReadsTheFilesBetween(t *testing.T) {
	f := follow(t, rec(0, "stdout", "F", "0"), Options{})
	old := time.Now().Add(-time.Hour)
	for i := range 3 {
		name := fmt.Sprintf(".%d", 9-i) // names need not tell the order
		f.rename(name)
		if err := os.Chtimes(f.path+name, old, old.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
		f.reopen()
		f.print(rec(i+1, "stdout", "F", fmt.Sprint(i+1)))
	}
	for i := range 4 {
		f.want(fmt.Sprint(i))
	}
}

func TestCase_c109_theNewFileMayComeLate(t *testing.T) {
	f := follow(t, rec(0, "stdout", "F", "0"), Options{})
	f.want("0")
	f.rename(".20260102-030405")
	f.print(rec(1, "stdout", "F", "1"))
	f.want("1") // there is no new file yet, and the old one still counts
	f.reopen()
	f.print(rec(2, "stdout", "F", "2"))
	f.want("2")
}

func TestCase_c109_aFollowerLeavesAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(cancel context.CancelFunc, rc io.Closer)
		want  error
	}{
		{"when the context ends", func(cancel context.CancelFunc, _ io.Closer) { cancel() }, context.Canceled},
		{"when it is closed", func(_ context.CancelFunc, rc io.Closer) { _ = rc.Close() }, fs.ErrClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			path := write(t, rec(0, "stdout", "F", "0"))
			rc, err := Open(ctx, path, Options{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			defer rc.Close()
			lines := bufio.NewReader(rc)
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path, path+".1"); err != nil { // the runtime never comes back with a new one
				t.Fatal(err)
			}
			done := make(chan error)
			go func() {
				_, err := lines.ReadString('\n')
				done <- err
			}()
			tt.leave(cancel, rc)
			if err := <-done; !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestFollowWorksWithoutNotices(t *testing.T) {
	f := follow(t, "", Options{})
	f.rc.(*reader).follow.close()
	f.rc.(*reader).follow.notice = nil
	f.print(rec(1, "stdout", "F", "new"))
	f.want("new")
}

func TestFollowEndsATornLineWhenTheFileIsReplaced(t *testing.T) {
	f := follow(t, rec(1, "stdout", "F", "one")+strings.TrimSuffix(rec(2, "stdout", "F", "torn"), "\n"), Options{})
	f.want("one")
	f.rename(".1")
	f.reopen()
	f.print(rec(3, "stdout", "F", "three"))
	f.want("torn")
	f.want("three")
}
