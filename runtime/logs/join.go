package logs

// lineMax is how many bytes of an unfinished line are kept back. What is longer is given out in parts.
const lineMax = 2 << 20

// timestamps have a fixed width, so that columns below each other line up.
const layout = "2006-01-02T15:04:05.000000000Z07:00 "

// joiner makes lines of pieces of records. It computes only; whoever drives it takes away out.
type joiner struct {
	o     Options
	lines [streams]line
	cur   *line  // to which more of the record under way belongs; nil: to nothing
	more  bool   // the line goes on after that record
	out   []byte // what may be given to the reader
}

// line is a line of one stream that has not ended.
type line struct {
	open bool   // its first piece was seen
	drop bool   // nobody wants it
	text []byte // what was not given out yet
	skip int    // so many lines are passed over before one is given out
}

// add takes a piece of a line of the file: its beginning if first, its end if last.
func (j *joiner) add(piece []byte, first, last bool) {
	if first {
		piece = j.begin(piece)
	}
	l := j.cur
	if l == nil {
		return
	}
	if !l.drop {
		l.text = append(l.text, piece...)
	}
	if last && !j.more {
		j.end(l)
	} else if len(l.text) > lineMax {
		j.flush(l)
	}
}

// begin reads the head of a record and returns its text.
func (j *joiner) begin(piece []byte) []byte {
	r, ok := parse(piece)
	if !ok {
		j.cur = nil
		return nil
	}
	l := &j.lines[r.stream]
	if !l.open {
		l.open = true
		l.drop = l.skip > 0 || (!j.o.Since.IsZero() && r.at.Before(j.o.Since)) || (j.o.Stream != "" && j.o.Stream != r.stream.String())
		if j.o.Timestamps && !l.drop {
			l.text = r.at.AppendFormat(l.text, layout)
		}
	}
	j.cur, j.more = l, r.partial
	return r.text
}

func (j *joiner) end(l *line) {
	if !l.drop {
		l.text = append(l.text, '\n')
		j.flush(l)
	}
	l.open, l.drop, l.skip = false, false, max(0, l.skip-1)
}

// flush gives out what there is of a line; its rest may follow.
func (j *joiner) flush(l *line) {
	j.out = append(j.out, l.text...)
	l.text = l.text[:0]
}

// flushAll gives out all unfinished lines: there is nothing more to read, for now or for ever.
func (j *joiner) flushAll() {
	for i := range j.lines {
		j.flush(&j.lines[i])
	}
}
