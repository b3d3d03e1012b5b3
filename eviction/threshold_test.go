package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
)

type list = map[string]string

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		hard, soft, grace, reclaim list
		want                       string
		wrong                      string // part of the error
	}{
		"nothing":          {},
		"a quantity":       {hard: list{"memory.available": "100Mi"}, want: "memory.available<100Mi"},
		"a percentage":     {hard: list{"nodefs.available": "10%"}, want: "nodefs.available<10%"},
		"part of one":      {hard: list{"nodefs.available": "1.5%"}, want: "nodefs.available<1.5%"},
		"0% is none":       {hard: list{"nodefs.available": "0%", "nodefs.inodesFree": "100%"}},
		"zero":             {hard: list{"memory.available": "0"}, wrong: `evictionHard: memory.available: "0": must be above zero; 0% switches a threshold off`},
		"less than zero":   {hard: list{"memory.available": "-1Mi"}, wrong: "must be above zero"},
		"more than all":    {hard: list{"memory.available": "101%"}, wrong: "from 0 to 100"},
		"less than none":   {hard: list{"memory.available": "-1%"}, wrong: "from 0 to 100"},
		"not a number":     {hard: list{"memory.available": "NaN%"}, wrong: "is no percentage"},
		"not a quantity":   {hard: list{"memory.available": "plenty"}, wrong: "neither a quantity (100Mi) nor a percentage (10%)"},
		"unknown signal":   {hard: list{"memory": "1Mi"}, wrong: `there is no signal "memory"`},
		"unknown in grace": {grace: list{"memory": "1s"}, wrong: `evictionSoftGracePeriod: there is no signal "memory"`},
		"unknown to be reclaimed": {
			reclaim: list{"memory": "1Mi"}, wrong: `evictionMinimumReclaim: there is no signal "memory"`,
		},
		"soft with grace": {soft: list{"memory.available": "1Gi"}, grace: list{"memory.available": "1m30s"}, want: "memory.available<1Gi for 1m30s"},
		"soft without": {
			soft: list{"memory.available": "1Gi"}, wrong: "evictionSoft has memory.available, but evictionSoftGracePeriod has no grace period for it",
		},
		"a grace of zero makes it hard":    {soft: list{"memory.available": "1Gi"}, grace: list{"memory.available": "0s"}, want: "memory.available<1Gi"},
		"grace without a threshold":        {grace: list{"memory.available": "1m"}},
		"a negative grace":                 {grace: list{"memory.available": "-1m"}, wrong: "must not be negative"},
		"no grace":                         {grace: list{"memory.available": "soon"}, wrong: "soon"},
		"reclaim is for hard and soft":     {hard: list{"imagefs.available": "1Gi"}, soft: list{"imagefs.available": "2Gi"}, grace: list{"imagefs.available": "1m"}, reclaim: list{"imagefs.available": "10%"}, want: "imagefs.available<1Gi+10% imagefs.available<2Gi+10% for 1m0s"},
		"reclaim of nothing":               {hard: list{"imagefs.available": "1Gi"}, reclaim: list{"imagefs.available": "0"}, want: "imagefs.available<1Gi+0"},
		"reclaim of no percent":            {reclaim: list{"imagefs.available": "0%"}, wrong: "a percentage must be above zero"},
		"reclaim of less than nothing":     {reclaim: list{"imagefs.available": "-1"}, wrong: "must not be negative"},
		"reclaim of more than all":         {hard: list{"imagefs.available": "1Gi"}, reclaim: list{"imagefs.available": "200%"}, want: "imagefs.available<1Gi+200%"},
		"everything that is wrong is said": {hard: list{"a": "1", "memory.available": "0"}, soft: list{"b": "1"}, wrong: `"a"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.hard, c.soft, c.grace, c.reclaim)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error %v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil || shown(got) != c.want {
				t.Errorf("%s, %v; want %s", shown(got), err, c.want)
			}
		})
	}
}

func shown(list []Threshold) string {
	var out []string
	for _, t := range list {
		s := fmt.Sprintf("%s<%s", t.Signal, t.Value)
		if t.MinReclaim != (Value{}) {
			s += "+" + t.MinReclaim.String()
		}
		if t.Grace > 0 {
			s += " for " + t.Grace.String()
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestDefaultsCanBeParsed(t *testing.T) {
	got, err := Parse(Defaults(), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "imagefs.available<15% imagefs.inodesFree<5% memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%"
	if shown(got) != want {
		t.Error(shown(got))
	}
	if got := shown(Allocatable(got)); got != want+" allocatableMemory.available<100Mi" {
		t.Error(got)
	}
}

func TestSoftThresholdsHaveNoAllocatableOne(t *testing.T) {
	list := []Threshold{{Signal: MemoryAvailable, Grace: time.Minute}}
	if got := Allocatable(list); len(got) != 1 {
		t.Error(shown(got))
	}
}

func TestThresholdsOfTheContainersFileSystemFollowTheLayout(t *testing.T) {
	all, err := Parse(
		list{"nodefs.available": "1Gi", "nodefs.inodesFree": "5%", "imagefs.available": "2Gi", "containerfs.available": "3Gi"},
		list{"nodefs.available": "4Gi"}, list{"nodefs.available": "1m"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	as := map[Layout]string{
		OneDisk:     "containerfs.available<1Gi containerfs.inodesFree<5% containerfs.available<4Gi for 1m0s",
		ImagesApart: "containerfs.available<2Gi",
		Split:       "containerfs.available<1Gi containerfs.inodesFree<5% containerfs.available<4Gi for 1m0s",
	}
	for l, want := range as {
		got := shown(withContainerFs(all, l))
		if diff := cmp.Diff("imagefs.available<2Gi nodefs.available<1Gi nodefs.inodesFree<5% nodefs.available<4Gi for 1m0s "+want, got); diff != "" {
			t.Errorf("layout %v: %s", l, diff)
		}
	}
}

func TestMetIsStrictlyLess(t *testing.T) {
	q := resource.MustParse("100")
	for name, c := range map[string]struct {
		t         Threshold
		available int64
		reclaim   bool
		want      bool
	}{
		"below":                             {Threshold{Value: Value{Quantity: &q}}, 99, false, true},
		"equal is not met":                  {Threshold{Value: Value{Quantity: &q}}, 100, false, false},
		"percent of the capacity":           {Threshold{Value: Value{Percent: 10}}, 99, false, true},
		"percent, equal":                    {Threshold{Value: Value{Percent: 10}}, 100, false, false},
		"reclaim is added to the threshold": {Threshold{Value: Value{Quantity: &q}, MinReclaim: Value{Percent: 5}}, 149, true, true},
		"reclaim reached":                   {Threshold{Value: Value{Quantity: &q}, MinReclaim: Value{Percent: 5}}, 150, true, false},
		"reclaim that is not asked about":   {Threshold{Value: Value{Quantity: &q}, MinReclaim: Value{Percent: 5}}, 149, false, false},
	} {
		if got := c.t.met(Level{Available: c.available, Capacity: 1000}, c.reclaim); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"100Mi", "10%", "0%", "-1", "1e400%", "1e99999", "%", ""} {
		f.Add("memory.available", s)
	}
	f.Fuzz(func(t *testing.T, signal, text string) {
		all, err := Parse(list{signal: text}, list{signal: text}, list{signal: text}, list{signal: text})
		if err != nil {
			return
		}
		for _, th := range all {
			if v := th.Value.of(1 << 40); v < 0 {
				t.Errorf("%q is %d", text, v)
			}
		}
	})
}
