package conformance

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseJUnit(t *testing.T) {
	report := `<?xml version="1.0"?>
<testsuites><testsuite name="e2e">
 <testcase name="[It] [sig-node] Pods should run" status="passed" time="3.6"><system-err>talk</system-err></testcase>
 <testcase name="[It] [sig-node] Pods should&#x9;fail" status="failed" time="12.2">
  <failure message="&#xA;  it is&#x9;broken&#xA;more" type="failed">where</failure></testcase>
 <testcase name="[It] [sig-node] Pods should panic" time="1"><error message="" type="panicked">line one
line two</error></testcase>
 <testcase name="[It] [sig-apps] not chosen" status="skipped" time="0"><skipped message="skipped"/></testcase>
 <testcase name="[SynchronizedBeforeSuite]" status="passed" time="5"></testcase>
 <testcase name="[ReportAfterSuite] x" status="failed" time="0"><failure message="no report"></failure></testcase>
</testsuite></testsuites>`
	got, err := parseJUnit(strings.NewReader(report))
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{
		{Pass, 4, "[sig-node] Pods should run", ""},
		{Fail, 12, "[sig-node] Pods should fail", "it is broken"},
		{Fail, 1, "[sig-node] Pods should panic", "line one"},
		{Fail, 0, "[ReportAfterSuite] x", "no report"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows = %+v", got)
	}
}

func TestFileOfRowsKeepsThem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "rows.tsv")
	if rows, err := Read(file); err != nil || rows != nil {
		t.Errorf("a file that is not there: %v, %v", rows, err)
	}
	want := []Row{{Fail, 3, "[sig-apps] b", "why"}, {Pass, 1, "[sig-node] a", ""}}
	if err := Write(file, want); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err != nil || !slices.Equal(got, want) {
		t.Errorf("rows = %+v, %v", got, err)
	}
}

func TestParseRefusesWhatIsNoRow(t *testing.T) {
	for _, text := range []string{"pass\n", "pass\tx\tname\n", "perhaps\t1\tname\n"} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("parse(%q) = %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("pass\t1\tname\nfail\t2\tother\twhy\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := parse(text)
		if err == nil && len(rows) != strings.Count(strings.TrimSuffix(text, "\n")+"\n", "\n") && text != "" {
			t.Errorf("%d rows in %q", len(rows), text)
		}
	})
}

func TestMergePrefersNewerRows(t *testing.T) {
	older := []Row{{Fail, 9, "b", "why"}, {Pass, 1, "c", ""}}
	newer := []Row{{Pass, 2, "b", ""}, {Pass, 3, "a", ""}}
	want := []Row{{Pass, 3, "a", ""}, {Pass, 2, "b", ""}, {Pass, 1, "c", ""}}
	if got := Merge(older, newer); !slices.Equal(got, want) {
		t.Errorf("Merge = %+v", got)
	}
}

func TestSig(t *testing.T) {
	for name, want := range map[string]string{
		"[sig-node] Pods should run":            "sig-node",
		"[sig-api-machinery] X [Conformance]":   "sig-api-machinery",
		"[DeferCleanup] [sig-apps] X":           "sig-apps",
		"[SynchronizedBeforeSuite] [sig-broken": "other",
	} {
		if got := (Row{Name: name}).Sig(); got != want {
			t.Errorf("Sig of %q = %q, want %q", name, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	got := strings.Join(arguments(Config{Bin: "/bin", Kubeconfig: "/k", Dir: "/d", Focus: "a b"}), "|")
	for _, part := range []string{"--procs=6|", "--focus=a b|", "|/bin/e2e.test|--|-kubeconfig=/k|", "|-report-dir=/d|"} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in %s", part, got)
		}
	}
	if strings.Contains(got, "--skip") {
		t.Errorf("nothing was to be skipped: %s", got)
	}
}
