package staticpod

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxProblems   = 100 // kept of one manifest
	shownProblems = 10  // of those, in Error
	shownLength   = 800 // bytes of Error after which no further one is begun
	maxQuoted     = 40  // characters of a value shown in a message
)

// Problem is one thing that is wrong with a manifest.
type Problem struct {
	Field string // path such as spec.containers[0].image; empty: the manifest as a whole
	Text  string // what is wrong and how to mend it
}

func (p Problem) String() string {
	if p.Field == "" {
		return p.Text
	}
	return p.Field + ": " + p.Text
}

// Problems is the error of a manifest that was refused: all that is wrong with it, up to a hundred.
type Problems []Problem

// Error shows the first ten, or fewer long ones.
func (p Problems) Error() string {
	var b strings.Builder
	shown := 0
	for ; shown < min(len(p), shownProblems) && b.Len() < shownLength; shown++ {
		if shown > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p[shown].String())
	}
	switch more := len(p) - shown; {
	case more > 0 && len(p) >= maxProblems:
		fmt.Fprintf(&b, "; and at least %d more", more)
	case more > 0:
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// whole is a Problems about the manifest as a whole.
func whole(format string, args ...any) error {
	return Problems{{Text: fmt.Sprintf(format, args...)}}
}

// report collects problems and warnings in the order they are found.
type report struct {
	found    Problems
	warnings []string
}

func (r *report) add(at *field.Path, format string, args ...any) {
	if len(r.found) < maxProblems {
		r.found = append(r.found, Problem{Field: at.String(), Text: fmt.Sprintf(format, args...)})
	}
}

func (r *report) warn(at *field.Path, format string, args ...any) {
	if len(r.warnings) < maxProblems {
		r.warnings = append(r.warnings, Problem{Field: at.String(), Text: fmt.Sprintf(format, args...)}.String())
	}
}

// err is what was found, nil when nothing was.
func (r *report) err() error {
	if len(r.found) == 0 {
		return nil
	}
	return r.found
}

// quote shows a value of the manifest: short, on one line, without control characters.
func quote[T ~string](s T) string {
	if short := []rune(string(s[:min(len(s), 4*maxQuoted)])); len(short) > maxQuoted {
		return strconv.Quote(string(short[:maxQuoted]) + "…")
	}
	return strconv.Quote(string(s))
}

// oneOf reports a value that is none of the allowed ones.
func oneOf[T ~string](r *report, at *field.Path, got T, allowed ...T) {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		if got == a {
			return
		}
		names[i] = string(a)
		if a == "" {
			names[i] = `""`
		}
	}
	list := names[0]
	if n := len(names); n > 1 {
		list = strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
	if got == "" {
		r.add(at, "is missing; use %s", list)
		return
	}
	r.add(at, "%s is not known; use %s", quote(got), list)
}
