package conformance

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// readReports reads the JUnit reports in dir. A spec that was skipped has no row.
func readReports(dir string) ([]Row, error) {
	files, err := filepath.Glob(filepath.Join(dir, "junit*.xml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read reports: there are none in %s", dir)
	}
	var rows []Row
	for _, file := range files {
		more, err := readReport(file)
		if err != nil {
			return nil, fmt.Errorf("read report %s: %w", file, err)
		}
		rows = append(rows, more...)
	}
	return Merge(nil, rows), nil
}

func readReport(file string) ([]Row, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseJUnit(f)
}

// parseJUnit reads the cases of a report wherever they stand in it.
func parseJUnit(r io.Reader) ([]Row, error) {
	type message struct {
		Text string `xml:"message,attr"`
		Body string `xml:",chardata"`
	}
	var rows []Row
	for d := xml.NewDecoder(r); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "testcase" {
			continue
		}
		var c struct {
			Name    string    `xml:"name,attr"`
			Seconds float64   `xml:"time,attr"`
			Skipped *message  `xml:"skipped"`
			Bad     []message `xml:"failure"`
			Errors  []message `xml:"error"`
		}
		if err := d.DecodeElement(&c, &start); err != nil {
			return nil, err
		}
		name, isSpec := strings.CutPrefix(c.Name, "[It] ")
		bad := slices.Concat(c.Bad, c.Errors)
		if c.Skipped != nil || !isSpec && len(bad) == 0 { // what is no spec is about setting up and tearing down
			continue
		}
		row := Row{Result: Pass, Seconds: int(math.Round(c.Seconds)), Name: clean(name)}
		if len(bad) > 0 {
			row.Result = Fail
			row.Failure = firstLine(bad[0].Text + "\n" + bad[0].Body)
		}
		rows = append(rows, row)
	}
}

// firstLine is the first line of a text that says something, shortened to what fits in a table.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = clean(line); line != "" {
			r := []rune(line)
			return string(r[:min(len(r), 200)])
		}
	}
	return "?"
}

// clean makes one line without tabs of a text.
func clean(text string) string { return strings.Join(strings.Fields(text), " ") }
