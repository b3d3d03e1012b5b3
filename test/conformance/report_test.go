package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	measure = Entry{"kubelet", []Row{
		{Pass, 1, "[sig-apps] one [Conformance]", ""},
		{Pass, 1, "[sig-node] two [Conformance]", ""},
		{Fail, 1, "[sig-node] three [Conformance]", "no second node"},
		{Fail, 1, "[sig-node] four [Conformance]", "late"},
		{Pass, 1, "[sig-node] five [Conformance]", ""},
	}}
	other = Entry{"nodeagent", []Row{
		{Pass, 1, "[sig-apps] one [Conformance]", ""},
		{Fail, 1, "[sig-node] two [Conformance]", "no log"},
		{Fail, 1, "[sig-node] three [Conformance]", "no second node"},
		{Pass, 1, "[sig-node] four [Conformance]", ""},
	}}
	stranger = Entry{"nodeagent", []Row{{CannotJoin, 0, "nodeagent", "nodeagent cannot join a cluster: it has no --kubeconfig flag"}}}
)

func TestTable(t *testing.T) {
	want := `| passed / total | kubelet | nodeagent |
|---|---:|---:|
| sig-apps | 1 / 1 | 1 / 1 |
| sig-node | 2 / 4 | 1 / 3 |
| all | 3 / 5 | 2 / 4 |
`
	if got := Table(measure, other); got != want {
		t.Errorf("Table =\n%s", got)
	}
	more := Entry{"kubelet", append(slices.Clone(measure.Rows), Row{Pass, 1, "[sig-node] six [NodeConformance]", ""}, Row{Fail, 1, "[sig-node] seven", "no"})}
	if got := Table(more); !strings.HasSuffix(got, "| all | 3 / 5 |\n| sig-node, beyond | 1 / 2 |\n") {
		t.Errorf("Table =\n%s", got)
	}
	if got := Table(stranger); !strings.Contains(got, "| all | cannot join |") {
		t.Errorf("Table =\n%s", got)
	}
	if got := Table(Entry{Name: "kubelet"}); !strings.Contains(got, "| all | not run |") {
		t.Errorf("Table =\n%s", got)
	}
}

func TestCompareTellsWhoseFaultItIs(t *testing.T) {
	want := `kubelet passes, nodeagent fails: 1
  [sig-node] two [Conformance]
    no log
kubelet fails, nodeagent passes: 1
  [sig-node] four [Conformance]
both fail: 1
  [sig-node] three [Conformance]
    no second node
kubelet ran, nodeagent did not: 1
  [sig-node] five [Conformance]
`
	if got := Compare(measure, other); got != want {
		t.Errorf("Compare =\n%s", got)
	}
	if got := Compare(measure, stranger); got != "nodeagent cannot join a cluster: it has no --kubeconfig flag\n" {
		t.Errorf("Compare = %s", got)
	}
}

func TestCompareWithNobody(t *testing.T) {
	if got := Compare(measure, Entry{Name: "nodeagent"}); got != "nodeagent has not run\n" {
		t.Errorf("Compare = %s", got)
	}
}

func TestTableKeepsItsPlaceInADocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	update := func(text, want string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := UpdateDocument(file, "new\n"); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != want {
			t.Errorf("document = %q, want %q", got, want)
		}
	}
	update("a\n"+tableBegin+"old\n"+tableEnd+"b\n", "a\n"+tableBegin+"new\n"+tableEnd+"b\n")
	update("a\n", "a\n")
	update("a\n"+tableBegin+"b\n", "a\n"+tableBegin+"b\n")
}
