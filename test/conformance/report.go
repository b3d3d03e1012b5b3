package conformance

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// count is how many specs of a kind passed, out of how many that ran.
type count struct{ passed, total int }

func (c count) String() string { return fmt.Sprintf("%d / %d", c.passed, c.total) }

// beyond stands behind the group of specs that are no [Conformance] ones, which count apart.
const beyond = ", beyond"

// bySig counts rows by their group, and all [Conformance] ones under "".
func bySig(rows []Row) map[string]count {
	counts := map[string]count{}
	for _, r := range rows {
		if r.Result == CannotJoin {
			continue
		}
		groups := []string{r.Sig(), ""}
		if !strings.Contains(r.Name, "[Conformance]") {
			groups = []string{r.Sig() + beyond}
		}
		for _, sig := range groups {
			c := counts[sig]
			c.total++
			if r.Result == Pass {
				c.passed++
			}
			counts[sig] = c
		}
	}
	return counts
}

// An Entry is the rows of one agent under its name.
type Entry struct {
	Name string
	Rows []Row
}

// Table is a Markdown table of passed and total specs by group, with a column for each agent.
func Table(entries ...Entry) string {
	var b strings.Builder
	header, rule := "| passed / total |", "|---|"
	counts := make([]map[string]count, len(entries))
	sigs := map[string]bool{"": true}
	for i, e := range entries {
		counts[i] = bySig(e.Rows)
		for sig := range counts[i] {
			sigs[sig] = true
		}
		header += " " + e.Name + " |"
		rule += "---:|"
	}
	b.WriteString(header + "\n" + rule + "\n")
	// The sum comes behind what it is of.
	sorted := slices.SortedFunc(maps.Keys(sigs), func(a, b string) int {
		place := func(sig string) int {
			switch {
			case sig == "":
				return 1
			case strings.HasSuffix(sig, beyond):
				return 2
			}
			return 0
		}
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
	for _, sig := range sorted {
		fmt.Fprintf(&b, "| %s |", cmp.Or(sig, "all"))
		for i, e := range entries {
			fmt.Fprintf(&b, " %s |", cell(counts[i], sig, e.Rows))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func cell(counts map[string]count, sig string, rows []Row) string {
	if c, ok := counts[sig]; ok {
		return c.String()
	}
	if len(rows) > 0 && rows[0].Result == CannotJoin {
		return string(CannotJoin)
	}
	return "not run"
}

// Compare says row by row where two agents differ, and what both fail. The first is the measure.
func Compare(a, b Entry) string {
	var out strings.Builder
	if len(b.Rows) == 1 && b.Rows[0].Result == CannotJoin {
		return b.Rows[0].Failure + "\n"
	}
	if len(b.Rows) == 0 {
		return b.Name + " has not run\n"
	}
	others := map[string]Row{}
	for _, r := range b.Rows {
		others[r.Name] = r
	}
	var faults, missing, better, both []string
	for _, r := range a.Rows {
		o, ran := others[r.Name]
		passed := r.Result == Pass
		switch {
		case !ran:
			missing = append(missing, r.Name)
		case passed && o.Result != Pass:
			faults = append(faults, r.Name+"\n    "+o.Failure)
		case !passed && o.Result == Pass:
			better = append(better, r.Name)
		case !passed:
			both = append(both, r.Name+"\n    "+r.Failure)
		}
	}
	section(&out, fmt.Sprintf("%s passes, %s fails", a.Name, b.Name), faults)
	section(&out, fmt.Sprintf("%s fails, %s passes", a.Name, b.Name), better)
	section(&out, "both fail", both)
	section(&out, fmt.Sprintf("%s ran, %s did not", a.Name, b.Name), missing)
	return out.String()
}

func section(out *strings.Builder, title string, lines []string) {
	fmt.Fprintf(out, "%s: %d\n", title, len(lines))
	for _, l := range lines {
		fmt.Fprintf(out, "  %s\n", l)
	}
}

// Failures lists what failed, with the first line of why.
func Failures(rows []Row) string {
	var out strings.Builder
	for _, r := range rows {
		if r.Result != Pass {
			fmt.Fprintf(&out, "%s\t%s\n    %s\n", r.Result, r.Name, r.Failure)
		}
	}
	return out.String()
}

// The lines in a document between which a table is kept.
const (
	tableBegin = "<!-- conformance: written by make conformance-report -->\n"
	tableEnd   = "<!-- end of conformance -->\n"
)

// UpdateDocument puts a table in the place kept for it in a document. One without such a place is left alone.
func UpdateDocument(file, table string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(data, []byte(tableBegin))
	_, after, closed := bytes.Cut(rest, []byte(tableEnd))
	if !found || !closed {
		return nil
	}
	fresh := slices.Concat(before, []byte(tableBegin+table+tableEnd), after)
	if bytes.Equal(fresh, data) {
		return nil
	}
	return os.WriteFile(file, fresh, 0o644)
}
