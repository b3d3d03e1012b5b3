package member

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestNormal(t *testing.T) {
	for rule, c := range map[string]struct{ text, want string }{
		"identifiers":      {"uid: 0d3b9e1c-3f5c-4c8e-9d55-0a3c5f6b7a89 in member-x7k2p, a_member-x7k2p", "uid: UID in NAMESPACE, a_NAMESPACE"},
		"times":            {"Started: Mon, 30 Nov 2026 07:57:33 +0000, 2026-11-30T07:47:16.346721Z", "Started: TIME, TIME"},
		"pods' addresses":  {"10.194.240.17, 10.194.241.0 and 10.194.241.1 on 10.194.240.1", "POD-IP, POD-IP and POD-IP on 10.194.240.1"},
		"durations":        {"pulled in 1.203s, 20ms; delay=0s timeout=10s", "pulled in DURATION, DURATION; delay=0s timeout=10s"},
		"back-offs":        {"back-off 1m20s restarting", "back-off DURATION restarting"},
		"made-up names":    {"web-5d4f8c7b9d-x2x4z daemon-abcde kube-api-access-9kjx2", "web-X daemon-X kube-api-access-X"},
		"images are kept":  {"busybox@sha256:" + strings.Repeat("a", 64), "busybox@sha256:" + strings.Repeat("a", 64)},
		"space at the end": {"a  ", "a"},
	} {
		if got := Normal(c.text); got != c.want+"\n" {
			t.Errorf("%s: %q, want %q", rule, got, c.want)
		}
	}
}

func TestDiff(t *testing.T) {
	if got, want := Diff("a\nb\nc\nd", "a\nc\ne\nd"), []string{"- b", "+ e"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Diff("a\nb", "a\nb"); len(got) > 0 {
		t.Errorf("equal texts differ by %q", got)
	}
}

func TestAllowances(t *testing.T) {
	all, err := ReadAllowances(strings.NewReader("# a comment\n\npod/.*\t^[+-]   Age:\tit grows\nnode\t.\tall of it\n"))
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	if got, want := Unexpected("pod/a", []string{"-   Age: 1", "+   Size: 2"}, all), []string{"+   Size: 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !all[0].Used || all[1].Used {
		t.Errorf("used: %v, %v", all[0].Used, all[1].Used)
	}
	if _, err := ReadAllowances(strings.NewReader("pod/a\tline\t \n")); err == nil {
		t.Error("a difference without a reason was taken")
	}
}

func TestTheListOfAllowedDifferencesIsGood(t *testing.T) {
	f, err := os.Open("testdata/differences.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := ReadAllowances(f); err != nil {
		t.Error(err)
	}
}
