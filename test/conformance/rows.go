package conformance

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Result is what came of a spec.
type Result string

// The results.
const (
	Pass       Result = "pass"
	Fail       Result = "fail"
	CannotJoin Result = "cannot join" // the one row of an agent that never became a node
)

// A Row is the judgement of one spec.
type Row struct {
	Result  Result
	Seconds int
	Name    string
	Failure string // its first line; empty when the spec passed
}

// Sig is the special interest group whose spec it is, such as "sig-node".
func (r Row) Sig() string {
	_, rest, _ := strings.Cut(r.Name, "[sig-")
	name, _, ok := strings.Cut(rest, "]")
	if !ok {
		return "other"
	}
	return "sig-" + name
}

// Merge puts newer rows into older ones, by name, and sorts them.
func Merge(older, newer []Row) []Row {
	byName := map[string]Row{}
	for _, r := range slices.Concat(older, newer) {
		byName[r.Name] = r
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
}

// Write replaces a file of rows.
func Write(file string, rows []Row) error {
	var buf bytes.Buffer
	for _, r := range rows {
		line := fmt.Sprintf("%s\t%d\t%s\t%s", r.Result, r.Seconds, r.Name, r.Failure)
		buf.WriteString(strings.TrimRight(line, "\t") + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, buf.Bytes(), 0o644)
}

// Read reads a file of rows. One that does not exist has none.
func Read(file string) ([]Row, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err := parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return rows, nil
}

func parse(text string) ([]Row, error) {
	var rows []Row
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4)
		if len(f) < 3 {
			return nil, fmt.Errorf("line %d: %d columns, at least 3 are needed", n, len(f))
		}
		seconds, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: seconds: %w", n, err)
		}
		r := Row{Result: Result(f[0]), Seconds: seconds, Name: f[2]}
		if len(f) > 3 {
			r.Failure = f[3]
		}
		switch r.Result {
		case Pass, Fail, CannotJoin:
		default:
			return nil, fmt.Errorf("line %d: unknown result %q", n, f[0])
		}
		rows = append(rows, r)
	}
	return rows, nil
}
