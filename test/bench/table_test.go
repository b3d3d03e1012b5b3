package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMediansAndRatios(t *testing.T) {
	var tab Table
	for _, v := range []float64{3, 1, 2} {
		tab.Add(Kubelet, "time", "s", v)
	}
	tab.Add(NodeAgent, "time", "s", 1)
	tab.Add(NodeAgent, "time", "s", 2)
	tab.Add(Kubelet, "only theirs", "s", 1)
	tab.Add(Kubelet, "nothing", "s", 0)
	tab.Add(NodeAgent, "nothing", "s", 5)
	file := filepath.Join(t.TempDir(), "figures.json")
	if err := Write(file, &tab); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read []Table
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	f := read[0].Figures
	if f[0].Median[Kubelet] != 2 || f[0].Median[NodeAgent] != 1.5 || f[0].Ratio != 0.75 || len(f[0].Values[Kubelet]) != 3 {
		t.Errorf("time: %+v", f[0])
	}
	for _, f := range f[1:] {
		if f.Ratio != 0 {
			t.Errorf("%s has ratio %v", f.Name, f.Ratio)
		}
	}
}

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		values []float64
		part   float64
		want   float64
	}{{nil, 0.5, 0}, {[]float64{7}, 0.9, 7}, {[]float64{4, 1, 3, 2}, 0.5, 2.5}, {[]float64{1, 2, 3}, 1, 3}, {[]float64{1, 2, 3}, 0, 1}} {
		if got := quantile(c.values, c.part); got != c.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.part, got, c.want)
		}
	}
}

func TestTableSaysWhyAFigureIsMissing(t *testing.T) {
	var tab Table
	tab.Add(Kubelet, "requests", "a minute", 12)
	tab.Miss(NodeAgent, "requests", "a minute", "it cannot join")
	got := tab.String()
	for _, want := range []string{"| requests, a minute | 12 | — |  |", "- nodeagent, requests: it cannot join"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestTurnsAlternate(t *testing.T) {
	both := []string{Kubelet, NodeAgent}
	if a, b := turns(both, 0), turns(both, 1); a[0] != b[1] || a[1] != b[0] || a[0] == a[1] {
		t.Errorf("%v, then %v", a, b)
	}
}
