package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	measure = Entry{"kubelet", []Row{
		{Pass, 1, "[sig-apps] one", ""},
		{Pass, 1, "[sig-node] two", ""},
		{Fail, 1, "[sig-node] three", "no second node"},
		{Fail, 1, "[sig-node] four", "late"},
		{Pass, 1, "[sig-node] five", ""},
	}}
	other = Entry{"nodeagent", []Row{
		{Pass, 1, "[sig-apps] one", ""},
		{Fail, 1, "[sig-node] two", "no log"},
		{Fail, 1, "[sig-node] three", "no second node"},
		{Pass, 1, "[sig-node] four", ""},
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
	if got := Table(stranger); !strings.Contains(got, "| all | cannot join |") {
		t.Errorf("Table =\n%s", got)
	}
	if got := Table(Entry{Name: "kubelet"}); !strings.Contains(got, "| all | not run |") {
		t.Errorf("Table =\n%s", got)
	}
}

func TestCompareTellsWhoseFaultItIs(t *testing.T) {
	want := `kubelet passes, nodeagent fails: 1
  [sig-node] two
    no log
kubelet fails, nodeagent passes: 1
  [sig-node] four
both fail: 1
  [sig-node] three
    no second node
kubelet ran, nodeagent did not: 1
  [sig-node] five
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
