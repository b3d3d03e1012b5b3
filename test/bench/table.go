package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The columns of a table.
const (
	Kubelet   = "kubelet"
	NodeAgent = "nodeagent"
	Bare      = "bare agent" // one that only watches, makes the calls of the runtime as the others do, and writes one status
	Floor     = "floor"      // the runtime and the API server without an agent, and nothing more than the runtime needs
)

// A Table holds figures of several agents.
type Table struct {
	Title   string    `json:"title"`
	Figures []*Figure `json:"figures"`
}

// A Figure is one thing that was measured, once a round for each agent.
type Figure struct {
	Name   string               `json:"name"`
	Unit   string               `json:"unit"`
	Values map[string][]float64 `json:"values"`           // by agent
	Why    map[string]string    `json:"why,omitempty"`    // why an agent has none
	Median map[string]float64   `json:"median,omitempty"` // filled in when the table is written
	Ratio  float64              `json:"ratio,omitempty"`  // nodeagent's median to the kubelet's; 0: there is none
}

// Add adds a value of an agent to a figure, which is made at its first value. Figures keep the order in which they came.
func (t *Table) Add(agent, name, unit string, value float64) {
	f := t.figure(name, unit)
	f.Values[agent] = append(f.Values[agent], value)
}

// Miss says why an agent does not have a figure.
func (t *Table) Miss(agent, name, unit, why string) {
	t.figure(name, unit).Why[agent] = why
}

func (t *Table) figure(name, unit string) *Figure {
	i := slices.IndexFunc(t.Figures, func(f *Figure) bool { return f.Name == name })
	if i < 0 {
		i = len(t.Figures)
		t.Figures = append(t.Figures, &Figure{Name: name, Unit: unit, Values: map[string][]float64{}, Why: map[string]string{}})
	}
	return t.Figures[i]
}

// finish fills in medians and ratios.
func (t *Table) finish() {
	for _, f := range t.Figures {
		f.Median = map[string]float64{}
		for agent, values := range f.Values {
			f.Median[agent] = median(values)
		}
		if theirs, ours := f.Median[Kubelet], f.Median[NodeAgent]; theirs > 0 && len(f.Values[NodeAgent]) > 0 {
			f.Ratio = ours / theirs
		}
	}
}

// median of values; 0 of none.
func median(values []float64) float64 {
	return quantile(values, 0.5)
}

// quantile is the value below which a part of the values lies; 0 of none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	at := part * float64(len(v)-1)
	low := int(at)
	high := min(low+1, len(v)-1)
	return v[low] + (at-float64(low))*(v[high]-v[low])
}

// String is the table in Markdown, with medians and what is missing below it.
func (t *Table) String() string {
	t.finish()
	columns := []string{Kubelet, NodeAgent}
	for _, c := range []string{Bare, Floor} {
		if slices.ContainsFunc(t.Figures, func(f *Figure) bool { return len(f.Values[c]) > 0 }) {
			columns = append(columns, c)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| | %s | nodeagent : kubelet |\n|---|%s\n", t.Title, strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)+1))
	var notes []string
	for _, f := range t.Figures {
		fmt.Fprintf(&b, "| %s, %s |", f.Name, f.Unit)
		for _, c := range columns {
			cell := ""
			if len(f.Values[c]) > 0 {
				cell = number(f.Median[c])
			} else if f.Why[c] != "" {
				cell = "—"
				notes = append(notes, fmt.Sprintf("%s, %s: %s", c, f.Name, f.Why[c]))
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		ratio := ""
		if f.Ratio > 0 {
			ratio = strconv.FormatFloat(f.Ratio, 'f', 2, 64)
		}
		fmt.Fprintf(&b, " %s |\n", ratio)
	}
	for i, n := range notes {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "- %s\n", n)
	}
	return b.String()
}

// number has three digits that count.
func number(v float64) string {
	switch {
	case v >= 100 || v == float64(int(v)):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Write writes tables to a file as JSON.
func Write(file string, tables ...*Table) error {
	for _, t := range tables {
		t.finish()
	}
	data, err := json.MarshalIndent(tables, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
