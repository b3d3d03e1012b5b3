package staticpod

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

const (
	// MaxBytes is the size of the largest manifest that is read, 10 MiB.
	MaxBytes = 10 << 20

	maxValues = 100_000 // values in a manifest; one of etcd's largest objects has some ten thousand
	maxMarks  = 250_000 // characters of a YAML text that may begin a value
	maxDepth  = 100     // lists and mappings inside each other
)

// document turns the text of a manifest into JSON of one value, and says what a reader should know.
func document(b []byte) (doc []byte, warnings []string, err error) {
	if len(b) > MaxBytes {
		return nil, nil, whole("has more than %d MiB; a manifest is far smaller", MaxBytes>>20)
	}
	if err := plainText(b); err != nil {
		return nil, nil, err
	}
	b = bytes.TrimPrefix(b, []byte("\uFEFF"))
	switch start := bytes.TrimSpace(b); {
	case len(start) == 0:
		return nil, nil, whole("is empty; write a Pod into it or remove it")
	case start[0] == '{':
		doc = b
	default:
		if doc, warnings, err = fromYAML(b); err != nil {
			return nil, nil, err
		}
	}
	double, err := weigh(doc)
	return doc, append(warnings, double...), err
}

// plainText refuses binary content without showing any of it.
func plainText(b []byte) error {
	if bytes.HasPrefix(b, []byte{0xff, 0xfe}) || bytes.HasPrefix(b, []byte{0xfe, 0xff}) {
		return whole("is text in UTF-16; save it as UTF-8")
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 || r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f {
			return whole("line %d: is binary, not text (byte 0x%02x at offset %d); a manifest is YAML or JSON in UTF-8",
				lineAt(b, int64(i)), b[i], i)
		}
		i += n
	}
	return nil
}

func fromYAML(b []byte) (doc []byte, warnings []string, err error) {
	marks := 0
	for _, c := range b {
		switch c {
		case '\n', ',', ':', '-', '[', '{', '?':
			marks++
		}
	}
	if marks > maxMarks {
		return nil, nil, whole("has too many parts (more than %d); a manifest is far smaller", maxMarks)
	}
	doc, err = yaml.YAMLToJSONStrict(b)
	if err != nil && strings.Contains(err.Error(), "already set in map") {
		warnings = doubleKeys(err)
		doc, err = yaml.YAMLToJSON(b)
	}
	if err != nil {
		return nil, nil, whole("%s", inPlainWords(b, err))
	}
	more := laterDocuments(b)
	if bytes.Equal(doc, []byte("null")) {
		if more {
			return nil, nil, whole("its first document is empty, and only the first one counts; remove the leading ---")
		}
		return nil, nil, whole("is empty but for comments; write a Pod into it or remove it")
	}
	if more {
		warnings = append(warnings, "only the first document counts; put each pod into a file of its own")
	}
	return doc, warnings, nil
}

// doubleKeyLine is how the YAML library tells of a key that stands twice in one mapping.
var doubleKeyLine = regexp.MustCompile(`line (\d+): key (".*") already set in map`)

func doubleKeys(err error) (warnings []string) {
	for _, m := range doubleKeyLine.FindAllStringSubmatch(err.Error(), maxProblems) {
		warnings = append(warnings, fmt.Sprintf("line %s: key %s stands twice in one mapping; the last one counts", m[1], quote(strings.Trim(m[2], `"`))))
	}
	return warnings
}

// inPlainWords is an error of the YAML library, short, with a remedy where one is likely.
func inPlainWords(b []byte, err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	switch {
	case strings.Contains(text, "excessive aliasing"):
		return "its aliases (*name) grow beyond all bounds; write the values out"
	case strings.Contains(text, "max depth"):
		return fmt.Sprintf("is nested too deeply; %d levels are allowed", maxDepth)
	case bytes.Contains(b, []byte("{{")):
		if i := strings.Index(text, ": invalid map key"); i >= 0 || strings.HasPrefix(text, "invalid map key") {
			text = "a mapping stands where a key must be"
		}
		return "is not YAML: " + text + "; {{ }} looks like a template that was not rendered"
	case strings.Contains(text, "cannot start any token") && bytes.Contains(b, []byte("\t")):
		return "is not YAML: " + text + "; indent with spaces, not tabs"
	}
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return "is not YAML: " + text
}

// laterDocuments says that content follows behind the end of the first document.
func laterDocuments(b []byte) bool {
	content, ended := false, false
	for line := range bytes.Lines(b) {
		line = bytes.TrimRight(line, " \t\r\n")
		switch {
		case bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || line[3] == ' '):
			ended = ended || content
			content = content || !ended // an empty document counts as one too
			if len(line) > 4 && ended && line[4] != '#' {
				return true
			}
		case bytes.Equal(line, []byte("...")):
			ended = true
		case len(bytes.TrimSpace(line)) == 0 || bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")):
		case !content && line[0] == '%': // a directive
		case ended:
			return true
		default:
			content = true
		}
	}
	return false
}

// weigh reads JSON without building anything from it: it must be one value, not too deep and not too
// large. It names keys that stand twice.
func weigh(doc []byte) (warnings []string, err error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	w := scale{}
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) && w.done {
			return w.warnings, nil
		}
		if err != nil {
			return nil, whole("line %d: is not JSON: %v; a file that begins with { is read as JSON", lineAt(doc, d.InputOffset()), plainJSON(err))
		}
		if w.done {
			return nil, whole("line %d: something follows the first JSON value; put each pod into a file of its own", lineAt(doc, d.InputOffset()))
		}
		if err := w.put(t); err != nil {
			return nil, err
		}
	}
}

func plainJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends in the middle")
	}
	return err
}

// scale is where weigh stands.
type scale struct {
	values   int
	open     []*level
	done     bool // the one value is complete
	warnings []string
}

// level is a list or mapping that is still open.
type level struct {
	keys  map[string]bool // nil for a list
	value bool            // in a mapping: the next token is a value
}

func (w *scale) put(t json.Token) error {
	if w.values++; w.values > 2*maxValues {
		return whole("has too many values (more than %d); a manifest is far smaller", maxValues)
	}
	var top *level
	if n := len(w.open); n > 0 {
		top = w.open[n-1]
	}
	if t == json.Delim('}') || t == json.Delim(']') {
		w.open = w.open[:len(w.open)-1]
		w.done = len(w.open) == 0
		return nil
	}
	if top != nil && top.keys != nil && !top.value {
		w.key(top, t)
		return nil
	}
	if top != nil {
		top.value = false
	}
	if d, ok := t.(json.Delim); ok {
		if len(w.open) >= maxDepth {
			return whole("is nested too deeply; %d levels are allowed", maxDepth)
		}
		l := &level{}
		if d == '{' {
			l.keys = map[string]bool{}
		}
		w.open = append(w.open, l)
		return nil
	}
	w.done = top == nil
	return nil
}

func (w *scale) key(top *level, t json.Token) {
	name, _ := t.(string)
	if top.keys[name] && len(w.warnings) < maxProblems {
		w.warnings = append(w.warnings, fmt.Sprintf("key %s stands twice in one mapping; the last one counts", quote(name)))
	}
	top.keys[name], top.value = true, true
}

// lineAt is the line, from 1, that an offset lies in.
func lineAt(b []byte, offset int64) int {
	return 1 + bytes.Count(b[:min(int64(len(b)), max(offset, 0))], []byte("\n"))
}
