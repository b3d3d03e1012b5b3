package member

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// replacements take away what differs between two runs of the same thing.
var replacements = []struct { //nolint:gochecknoglobals // a table
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`member-[a-z0-9]{5}\b`), "NAMESPACE"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`(containerd:// ?|container )[0-9a-f]{64}`), "${1}ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "TIME"},
	{regexp.MustCompile(`\b(\d{1,3}\.){3}\d{1,3}:\d{4,5}->`), "HERE->"},
	{regexp.MustCompile(`\b(\d{1,3}\.){3}([02-9]|[1-9]\d|1\d\d|2\d\d)\b|\b(\d{1,3}\.){2}\d{0,2}[13579]\.1\b`), "POD-IP"}, // the node has number 1 of an even net
	{regexp.MustCompile(`\b\d+\.\d+(s|ms|µs)\b|\b\d+(ms|µs)\b`), "DURATION"},
	{regexp.MustCompile(`\bback-off (\d+m)?\d+s\b`), "back-off DURATION"},
	{regexp.MustCompile(`\b(web)-[a-z0-9]{8,10}-[a-z0-9]{5}\b`), "$1-X"},
	{regexp.MustCompile(`\b(web)-[a-f0-9]{8,10}\b`), "$1-X"},
	{regexp.MustCompile(`\b(daemon|once|kube-api-access)-[a-z0-9]{5}\b`), "$1-X"},
	{regexp.MustCompile(`pod-template-hash[=:] ?"?[a-z0-9]+"?`), "pod-template-hash=X"},
	{regexp.MustCompile(`\s+$`), ""},
}

// Normal gives a text without what differs between two runs of the same thing: times, addresses, identifiers, and the ends of
// made-up names.
func Normal(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		for _, r := range replacements {
			line = r.pattern.ReplaceAllString(line, r.with)
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// Diff is the lines that only one of two texts has: "- " those of a, "+ " those of b, in their order. What was moved is both.
func Diff(a, b string) (diff []string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	common := make([][]int, len(x)+1) // of x[i:] and y[j:], how many lines
	for i := range common {
		common[i] = make([]int, len(y)+1)
	}
	for i := range slices.Backward(x) {
		for j := range slices.Backward(y) {
			if x[i] == y[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[i+1][j] >= common[i][j+1]:
			diff = append(diff, "- "+x[i])
			i++
		default:
			diff = append(diff, "+ "+y[j])
			j++
		}
	}
	return diff
}

// An Allowance is a difference that is meant: in documents and on lines that match.
type Allowance struct {
	Document, Line *regexp.Regexp
	Why            string
	Used           bool
}

// ReadAllowances reads a list of them: one a line, document, line and reason separated by tabs. Empty lines and those that
// begin with # are not read.
func ReadAllowances(from io.Reader) (all []*Allowance, err error) {
	lines := bufio.NewScanner(from)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 3 || strings.TrimSpace(f[2]) == "" {
			return nil, fmt.Errorf("line %d has %d fields; want document, line and reason, separated by tabs", number, len(f))
		}
		a := &Allowance{Why: f[2]}
		if a.Document, err = regexp.Compile("^(" + f[0] + ")$"); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if a.Line, err = regexp.Compile(f[1]); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		all = append(all, a)
	}
	return all, lines.Err()
}

// Unexpected are the lines of a document's difference that nothing allows.
func Unexpected(document string, diff []string, all []*Allowance) []string {
	return slices.DeleteFunc(slices.Clone(diff), func(line string) bool {
		i := slices.IndexFunc(all, func(a *Allowance) bool { return a.Document.MatchString(document) && a.Line.MatchString(line) })
		if i >= 0 {
			all[i].Used = true
		}
		return i >= 0
	})
}
