package logs

import (
	"bytes"
	"time"
)

// headMax is within how many bytes the text of a record must begin. Looking no further lets tail
// read a record's head without its text.
const headMax = 128

// record is one line of a log file, or its beginning.
type record struct {
	at      time.Time
	stream  stream
	partial bool
	text    []byte
}

type stream uint8

const (
	stdout stream = iota
	stderr
	streams
)

func (s stream) String() string { return [...]string{Stdout, Stderr}[s] }

// parse splits a line without its newline; text shares memory with it. false: this is no record.
func parse(line []byte) (record, bool) {
	var r record
	head := line[:min(len(line), headMax)]
	at, rest, ok := bytes.Cut(head, []byte{' '})
	if !ok || r.at.UnmarshalText(at) != nil {
		return record{}, false
	}
	name, rest, ok := bytes.Cut(rest, []byte{' '})
	switch {
	case !ok:
		return record{}, false
	case string(name) == Stdout:
		r.stream = stdout
	case string(name) == Stderr:
		r.stream = stderr
	default:
		return record{}, false
	}
	tags, _, ok := bytes.Cut(rest, []byte{' '})
	if !ok && len(line) > headMax {
		return record{}, false
	}
	switch tag, _, _ := bytes.Cut(tags, []byte{':'}); string(tag) { // more tags are for readers of the future
	case "F":
	case "P":
		r.partial = true
	default:
		return record{}, false
	}
	textAt := len(head) - len(rest) + len(tags)
	if ok {
		textAt++
	}
	r.text = line[textAt:]
	return r, true
}
