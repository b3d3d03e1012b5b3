package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// table lays rows out in columns. Columns only grow, so that nothing jumps from one picture to the next.
type table struct {
	widths []int
}

func header() []string {
	return []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "LAST EVENT"}
}

// lines are the header and one line a row, cut at width unless that is 0.
func (t *table) lines(rows []row, now time.Time, width int) []string {
	all := [][]string{header()}
	for _, r := range rows {
		all = append(all, r.cells(now, false))
	}
	if t.widths == nil {
		t.widths = make([]int, len(all[0]))
	}
	for _, cells := range all {
		for i, c := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c))
		}
	}
	out := make([]string, len(all))
	for i, cells := range all {
		out[i] = t.line(cells, width)
	}
	return out
}

func (t *table) line(cells []string, width int) string {
	var b strings.Builder
	for i, c := range cells[:len(cells)-1] {
		b.WriteString(c)
		b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c)+3))
	}
	b.WriteString(cells[len(cells)-1])
	return cut(strings.TrimRight(b.String(), " "), width)
}

// cut shortens a line to the width of a terminal; 0 is endless.
func cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}

// wrap breaks a note into lines of a terminal, after an empty one; no note is none.
func wrap(note string, width int) (lines []string) {
	if note == "" {
		return nil
	}
	lines = append(lines, "")
	for part := range slices.Chunk([]rune(note), max(width, 20)) {
		lines = append(lines, string(part))
	}
	return lines
}

// screen draws pictures over each other in a terminal.
type screen struct {
	table table
	drawn bool
}

// picture is what the terminal gets to show rows, and note below them: from the top left corner, each line cleared
// behind its end, then all below. Nothing is cleared before it is written anew, so nothing flickers.
func (s *screen) picture(rows []row, note string, now time.Time, width, height int) string {
	lines := s.table.lines(rows, now, width)
	below := wrap(printable(note), width)
	if most := max(2, height-len(below)-1); height > 0 && len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1], fmt.Sprintf("... and %d more", more))
	}
	lines = append(lines, below...)
	var b strings.Builder
	if !s.drawn {
		b.WriteString("\x1b[2J")
		s.drawn = true
	}
	b.WriteString("\x1b[H")
	for _, l := range lines {
		b.WriteString(l + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// ticker writes lines below each other where there is no terminal: all at first, then those that changed.
type ticker struct {
	table table
	last  map[types.UID]string
	names map[types.UID]row
	note  string
}

// news are the lines to write.
func (t *ticker) news(rows []row, note string, now time.Time) string {
	var b strings.Builder
	if note != t.note && note != "" {
		b.WriteString(printable(note) + "\n")
	}
	t.note = note
	if note != "" { // the rows are old
		return b.String()
	}
	lines := t.table.lines(rows, now, 0)
	if t.last == nil {
		t.last, t.names = map[types.UID]string{}, map[types.UID]row{}
		b.WriteString(lines[0] + "\n")
	}
	for i, r := range rows {
		if steady := strings.Join(r.cells(now, true), "\t"); t.last[r.uid] != steady {
			t.last[r.uid], t.names[r.uid] = steady, r
			b.WriteString(lines[i+1] + "\n")
		}
	}
	for uid, r := range t.names {
		if !slices.ContainsFunc(rows, func(x row) bool { return x.uid == uid }) {
			r.status, r.ready = "Gone", "-"
			b.WriteString(t.table.line(r.cells(now, false), 0) + "\n")
			delete(t.last, uid)
			delete(t.names, uid)
		}
	}
	return b.String()
}

// terminalSize is that of out; false where it is none.
func terminalSize(out any) (width, height int, ok bool) {
	f, isFile := out.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}
