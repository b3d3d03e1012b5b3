package imagegc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// removals are the IDs that a plan lets go, in order.
func removals(steps []Step) string {
	var out []string
	for _, s := range steps {
		if s.Remove {
			out = append(out, s.ID)
		}
	}
	return strings.Join(out, " ")
}

func TestPlan(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	// unused was there from the beginning and was used so long ago, if ever.
	unused := func(id string, size int64, used time.Duration) sight {
		s := sight{image: runtime.Image{ID: id, Size: size}, idle: ago(time.Hour)}
		if used > 0 {
			s.used, s.idle = ago(used), ago(used)
		}
		return s
	}
	with := func(s sight, change func(*sight)) sight { change(&s); return s }
	born := func(d time.Duration) func(*sight) {
		return func(s *sight) {
			s.born = ago(d)
			if s.used.IsZero() {
				s.idle = s.born
			}
		}
	}
	space := func(n int64) rules { return rules{now: now, minAge: 2 * time.Minute, over: n} }
	for name, c := range map[string]struct {
		all  []sight
		r    rules
		want string
	}{
		"nothing is needed": {[]sight{unused("a", 5, 0)}, space(0), ""},
		"the longest unused goes first": {
			[]sight{unused("a", 5, time.Minute), unused("b", 5, 3*time.Minute), unused("c", 5, 2*time.Minute)}, space(6), "b c",
		},
		"those never used go before all others": {[]sight{unused("a", 5, 9*time.Hour), unused("b", 5, 0)}, space(1), "b"},
		"of those never used the oldest goes first": {
			[]sight{with(unused("a", 5, 0), born(time.Hour)), with(unused("b", 5, 0), born(2*time.Hour)), unused("c", 5, 0)}, space(11), "c b a",
		},
		"it stops when enough is freed":     {[]sight{unused("a", 5, 0), unused("b", 5, 0)}, space(5), "a"},
		"all that may go is not enough":     {[]sight{unused("a", 5, 0), unused("b", 5, 0)}, space(500), "a b"},
		"one in use stays":                  {[]sight{with(unused("a", 5, 0), func(s *sight) { s.users = 1 }), unused("b", 5, 0)}, space(500), "b"},
		"one that is pinned stays":          {[]sight{with(unused("a", 5, 0), func(s *sight) { s.image.Pinned = true })}, space(500), ""},
		"one that just came stays":          {[]sight{with(unused("a", 5, 0), born(2*time.Minute-1))}, space(500), ""},
		"at its minimum age it may go":      {[]sight{with(unused("a", 5, 0), born(2*time.Minute))}, space(500), "a"},
		"age takes what space does not ask": {[]sight{unused("a", 5, 11*time.Minute), unused("b", 5, 10*time.Minute)}, rules{now: now, maxAge: 10 * time.Minute}, "a"},
		"what age takes counts for space": {
			[]sight{unused("a", 5, 11*time.Minute), unused("b", 5, time.Minute), unused("c", 5, 2*time.Minute)},
			rules{now: now, maxAge: 10 * time.Minute, over: 6},
			"a c",
		},
		"one never used counts its age from when it came": {[]sight{with(unused("a", 5, 0), born(9*time.Minute))}, rules{now: now, maxAge: 10 * time.Minute}, ""},
		"maximum age does not take one that is pinned": {
			[]sight{with(unused("a", 5, time.Hour), func(s *sight) { s.image.Pinned = true })}, rules{now: now, maxAge: time.Minute}, "",
		},
		"c066: both ages are independent": {
			[]sight{
				with(unused("in use until two minutes ago", 5, 2*time.Minute), born(40*time.Minute)),
				with(unused("came five minutes ago", 5, 0), born(5*time.Minute)),
			},
			rules{now: now, minAge: 30 * time.Minute, maxAge: 10 * time.Minute},
			"",
		},
		"c066: pressure takes the old one only": {
			[]sight{
				with(unused("in use until two minutes ago", 5, 2*time.Minute), born(40*time.Minute)),
				with(unused("came five minutes ago", 5, 0), born(5*time.Minute)),
			},
			rules{now: now, minAge: 30 * time.Minute, maxAge: 10 * time.Minute, over: 500},
			"in use until two minutes ago",
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps, _ := plan(c.all, c.r)
			if got := removals(steps); got != c.want {
				t.Errorf("removes %q, want %q", got, c.want)
			}
			if len(steps) != len(c.all) {
				t.Errorf("%d steps for %d images", len(steps), len(c.all))
			}
			for _, s := range steps {
				if s.Why == "" {
					t.Errorf("nothing is said of %s", s.ID)
				}
			}
		})
	}
}

// naive is the reference's text once more: look for the next one to go again and again.
func naive(all []sight, r rules) string {
	var out []string
	freed := int64(0)
	may := func(s sight) bool {
		return s.users == 0 && !s.image.Pinned && (s.born.IsZero() || r.now.Sub(s.born) >= r.minAge)
	}
	next := func(want func(sight) bool) int {
		best := -1
		for i, s := range all {
			if !may(s) || !want(s) {
				continue
			}
			if best < 0 || s.used.Before(all[best].used) ||
				s.used.Equal(all[best].used) && (s.born.Before(all[best].born) || s.born.Equal(all[best].born) && s.image.ID < all[best].image.ID) {
				best = i
			}
		}
		return best
	}
	take := func(i int) {
		out, freed = append(out, all[i].image.ID), freed+all[i].image.Size
		all = slices.Delete(all, i, i+1)
	}
	for r.maxAge > 0 {
		i := next(func(s sight) bool { return r.now.Sub(s.idle) > r.maxAge })
		if i < 0 {
			break
		}
		take(i)
	}
	for freed < r.over {
		i := next(func(sight) bool { return true })
		if i < 0 {
			break
		}
		take(i)
	}
	return strings.Join(out, " ")
}

func TestPlanAgreesWithANaiveOne(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for seed := range uint64(10_000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var all []sight
		for i := range rnd.IntN(12) {
			s := sight{image: runtime.Image{ID: fmt.Sprint(i), Size: rnd.Int64N(5), Pinned: rnd.IntN(6) == 0}, users: max(0, rnd.IntN(5)-3)}
			if rnd.IntN(2) == 0 {
				s.born = now.Add(-time.Duration(rnd.IntN(6)) * time.Minute)
			}
			s.idle = s.born
			if rnd.IntN(2) == 0 {
				s.used = now.Add(-time.Duration(rnd.IntN(6)) * time.Minute)
				s.idle = s.used
			}
			all = append(all, s)
		}
		r := rules{now: now, minAge: 2 * time.Minute, maxAge: time.Duration(rnd.IntN(5)) * time.Minute, over: rnd.Int64N(20)}
		steps, _ := plan(all, r)
		if diff := cmp.Diff(naive(slices.Clone(all), r), removals(steps)); diff != "" {
			t.Fatalf("seed %d (-naive +plan):\n%s", seed, diff)
		}
	}
}

func TestUsersOf(t *testing.T) {
	images := []runtime.Image{
		{ID: "sha256:1", Tags: []string{"app:1", "app:stable"}, Digests: []string{"app@sha256:a"}},
		{ID: "sha256:2", Tags: []string{"app:2"}},
		{ID: "sha256:3", Digests: []string{"only@sha256:c"}},
		{ID: "sha256:4"},
	}
	for name, c := range map[string]struct {
		container runtime.Container
		mounts    []string
		want      map[string]int
	}{
		"by ID":                                {runtime.Container{ImageID: "sha256:1"}, nil, map[string]int{"sha256:1": 1}},
		"by any of its tags":                   {runtime.Container{ImageID: "app:stable"}, nil, map[string]int{"sha256:1": 1}},
		"by digest":                            {runtime.Container{ImageID: "only@sha256:c"}, nil, map[string]int{"sha256:3": 1}},
		"another name for a known ID":          {runtime.Container{ImageID: "sha256:2", Image: "app:1"}, nil, map[string]int{"sha256:2": 1}},
		"an ID nobody knows, but a name":       {runtime.Container{ImageID: "sha256:0", Image: "app:2"}, nil, map[string]int{"sha256:2": 1}},
		"an image it mounts":                   {runtime.Container{ImageID: "sha256:1"}, []string{"only@sha256:c", "sha256:4"}, map[string]int{"sha256:1": 1, "sha256:3": 1, "sha256:4": 1}},
		"an image that is no more is nobody's": {runtime.Container{ImageID: "sha256:0"}, nil, map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.container.ID = "c"
			got := usersOf(images, []runtime.Container{c.container}, map[string][]string{"c": c.mounts})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestShareOfADiskOfAnySize(t *testing.T) {
	for _, d := range []disk{{100, 15}, {100, 14}, {1000, 999}, {1 << 62, 1 << 61}, {7, 0}, {1<<63 - 1, 1<<63 - 1}} {
		exact := int(100 - float64(d.available)/float64(d.capacity)*100)
		if got := d.percent(); got < exact || got > exact+1 {
			t.Errorf("%v is used to %d %%, got %d", d, exact, got)
		}
	}
	if got := (disk{capacity: 100, available: 29}).percent(); got != 71 {
		t.Errorf("29 of 100 available is %d %% used", got)
	}
	if got := (disk{capacity: 1 << 62}).target(50); got != 1<<61 {
		t.Errorf("half of 1<<62 is %d", got)
	}
}
