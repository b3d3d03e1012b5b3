package logs

import (
	"bytes"
	"errors"
	"io"
)

// lookBack is how far behind the first wanted line its earlier pieces are looked for, when lines of both
// streams are interleaved.
const lookBack = 1 << 20

// mark is where reading begins, how many lines of each stream that end behind it are not wanted, and how many are.
type mark struct {
	at   int64
	skip [streams]int
	have int64
}

// tail finds the last n lines of the first size bytes, reading from the end. only limits it to one stream unless empty.
func tail(f io.ReaderAt, size, n int64, only string) (mark, error) {
	t := tailing{want: n, mark: mark{at: size}}
	if n <= 0 {
		return t.mark, nil
	}
	buf := make([]byte, blockSize+headMax+1) // a bit of the block behind, for heads across the border
	for end := size; end > 0; {
		start := max(0, end-blockSize)
		block := buf[:min(size-start, end-start+headMax+1)]
		if m, err := f.ReadAt(block, start); m < len(block) {
			if errors.Is(err, io.EOF) {
				return mark{}, nil // it became shorter meanwhile: all that is left
			}
			return mark{}, err
		}
		for i := end - start; i > 0; {
			i = int64(bytes.LastIndexByte(block[:i], '\n')) // a line begins behind it
			if i < 0 && start > 0 {
				break
			}
			if start+i+1 < size && t.done(start+i+1, block[i+1:], only) {
				return t.mark, nil
			}
		}
		end = start
	}
	return t.mark, nil
}

// tailing goes through records from the last to the first.
type tailing struct {
	mark
	want   int64
	full   int64         // where the first wanted line ended when the last of them was found
	met    [streams]bool // a record of it was there
	open   [streams]bool // its earliest wanted line may have more pieces further ahead
	passed [streams]int  // unwanted lines whose end was met
}

// done looks at the line that begins at pos and says that all of the wanted lines are found.
func (t *tailing) done(pos int64, line []byte, only string) bool {
	line = line[:min(len(line), headMax+1)]
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	r, ok := parse(line)
	if !ok || (only != "" && only != r.stream.String()) {
		return t.enough(pos)
	}
	s := r.stream
	switch {
	case r.partial && t.met[s]: // an earlier piece of a line whose end was met
		if t.open[s] {
			t.at, t.skip = pos, t.passed
		}
	case t.have < t.want: // the end of a line
		t.have++
		t.open[s] = true
		t.at, t.skip = pos, t.passed
		t.full = pos
	default:
		t.open[s] = false
		t.passed[s]++
	}
	t.met[s] = true
	return t.enough(pos)
}

func (t *tailing) enough(pos int64) bool {
	return t.have == t.want && (t.open == [streams]bool{} || pos < t.full-lookBack)
}
