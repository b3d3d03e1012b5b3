package logs

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const ts = "2026-01-02T03:04:05.000000006Z"
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, tt := range []struct {
		name, line string
		want       record
		bad        bool
	}{
		{name: "a full record of stdout", line: ts + " stdout F hello world", want: record{at: at, text: []byte("hello world")}},
		{name: "a partial record of stderr", line: ts + " stderr P x", want: record{at: at, stream: stderr, partial: true, text: []byte("x")}},
		{name: "text keeps its spaces", line: ts + " stdout F  a ", want: record{at: at, text: []byte(" a ")}},
		{name: "text may be empty", line: ts + " stdout F ", want: record{at: at}},
		{name: "without text no space is needed", line: ts + " stdout F", want: record{at: at}},
		{name: "further tags are ignored", line: ts + " stdout F:x:y hi", want: record{at: at, text: []byte("hi")}},
		{name: "NUL bytes are text", line: ts + " stdout F a\x00b", want: record{at: at, text: []byte("a\x00b")}},
		{name: "an offset is understood", line: "2026-01-02T05:04:05.000000006+02:00 stdout F a", want: record{at: at, text: []byte("a")}},
		{name: "a bad timestamp is no record", line: "yesterday stdout F a", bad: true},
		{name: "an unknown stream is no record", line: ts + " stdin F a", bad: true},
		{name: "an unknown tag is no record", line: ts + " stdout X a", bad: true},
		{name: "an empty line is no record", bad: true},
		{name: "a torn timestamp is no record", line: ts[:20], bad: true},
		{name: "a torn stream is no record", line: ts + " std", bad: true},
		{name: "a JSON line is no record", line: `{"log":"a\n","stream":"stdout","time":"` + ts + `"}`, bad: true},
		{name: "a head without end is no record", line: ts + " stdout F:" + strings.Repeat("x", 200) + " a", bad: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parse([]byte(tt.line))
			if ok == tt.bad {
				t.Fatalf("parse(%q) = %+v, %v", tt.line, got, ok)
			}
			if !got.at.Equal(tt.want.at) || got.stream != tt.want.stream || got.partial != tt.want.partial || string(got.text) != string(tt.want.text) {
				t.Errorf("parse(%q) = %+v, want %+v", tt.line, got, tt.want)
			}
		})
	}
}
