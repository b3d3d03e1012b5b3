package imagegc

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Step is what a plan says of one thing.
type Step struct {
	Kind   string `json:"kind"` // image, container or sandbox
	ID     string `json:"id"`
	Name   string `json:"name"`           // as people know it
	Size   int64  `json:"size,omitempty"` // bytes; 0 when nobody says
	Remove bool   `json:"remove"`         // otherwise it stays
	Why    string `json:"why"`

	reason string // of a removal, as the metric has it
}

// rules of one plan.
type rules struct {
	now            time.Time
	minAge, maxAge time.Duration // zero: no such limit
	over           int64         // bytes to be freed; everything: for a disk that runs full
}

// everything that may go is more than any disk holds.
const everything = math.MaxInt64

// sight is what is known of one image.
type sight struct {
	image runtime.Image
	users int       // containers
	born  time.Time // when it was first seen; zero: it was there before we looked
	used  time.Time // when it was last seen in use; zero: never
	idle  time.Time // since when nobody has used it, as far as we know
}

// memory is what is remembered of images and containers from one look to the next. A new one knows nothing: ages count from
// the first look on.
type memory struct {
	started time.Time // of the first look
	images  map[string]*sight
	mounts  map[string][]string // images containers mount, by container ID
}

func newMemory() memory { return memory{images: map[string]*sight{}} }

// see notes what there is now. An image whose users cannot be told by its ID is known by any of its names.
func (m *memory) see(images []runtime.Image, containers []runtime.Container, now time.Time) []sight {
	born := now
	if m.started.IsZero() {
		m.started, born = now, time.Time{}
	}
	users := usersOf(images, containers, m.mounts)
	next := make(map[string]*sight, len(images))
	out := make([]sight, 0, len(images))
	for _, i := range images {
		if next[i.ID] != nil { // once for each handler
			continue
		}
		s := m.images[i.ID]
		if s == nil {
			s = &sight{born: born, idle: now}
		}
		s.image, s.users = i, users[i.ID]
		if s.users > 0 {
			s.used, s.idle = now, now
		}
		next[i.ID] = s
		out = append(out, *s)
	}
	m.images = next
	return out
}

// usersOf counts the containers that use images, by image ID.
func usersOf(images []runtime.Image, containers []runtime.Container, mounts map[string][]string) map[string]int {
	ids := make(map[string]bool, len(images))
	names := map[string][]string{}
	for _, i := range images {
		ids[i.ID] = true
		for _, n := range slices.Concat(i.Tags, i.Digests) {
			names[n] = append(names[n], i.ID)
		}
	}
	users := map[string]int{}
	use := func(refs ...string) {
		if i := slices.IndexFunc(refs, func(r string) bool { return ids[r] }); i >= 0 {
			users[refs[i]]++
			return
		}
		for _, r := range refs {
			for _, id := range names[r] {
				users[id]++
			}
		}
	}
	for _, c := range containers {
		use(c.ImageID, c.ImageRef, c.Image)
		for _, ref := range mounts[c.ID] {
			use(ref)
		}
	}
	return users
}

// plan says of each image whether it goes: for its age, then the longest unused until enough is freed. left are those that
// may go and did not have to.
func plan(all []sight, r rules) (steps []Step, left []sight) {
	var age, space, stay []Step
	all = slices.SortedFunc(slices.Values(all), longestUnusedFirst)
	freed, free := int64(0), []sight{}
	for _, s := range all {
		switch why := r.keeps(s); {
		case why != "":
			stay = append(stay, s.step(why))
		case r.maxAge > 0 && r.now.Sub(s.idle) > r.maxAge:
			freed += s.image.Size
			age = append(age, s.goes("age", fmt.Sprintf("nobody has used it for %v", r.now.Sub(s.idle).Round(time.Second))))
		default:
			free = append(free, s)
		}
	}
	for _, s := range free {
		if freed < r.over {
			freed += s.image.Size
			space = append(space, s.goes("space", r.cause()+s.unused(r.now)))
			continue
		}
		left = append(left, s)
		stay = append(stay, s.step("nobody uses it, but there is room"))
	}
	return slices.Concat(age, space, stay), left
}

// cause is why room is made.
func (r rules) cause() string {
	if r.over == everything {
		return ""
	}
	return "the disk is filling up, and "
}

// keeps is why an image must stay, empty if it may go.
func (r rules) keeps(s sight) string {
	switch {
	case s.users == 1:
		return "a container uses it"
	case s.users > 0:
		return fmt.Sprintf("%d containers use it", s.users)
	case s.image.Pinned:
		return "it is pinned"
	case !s.born.IsZero() && r.now.Sub(s.born) < r.minAge:
		return fmt.Sprintf("it came less than %v ago", r.minAge)
	}
	return ""
}

// longestUnusedFirst is the order in which images go: those never used before all others, then the oldest.
func longestUnusedFirst(a, b sight) int {
	return cmp.Or(a.used.Compare(b.used), a.born.Compare(b.born), cmp.Compare(a.image.ID, b.image.ID))
}

func (s sight) unused(now time.Time) string {
	if s.used.IsZero() {
		return "nobody was seen using it"
	}
	return fmt.Sprintf("nobody has used it for %v", now.Sub(s.used).Round(time.Second))
}

func (s sight) step(why string) Step {
	name := s.image.ID
	if names := slices.Concat(s.image.Tags, s.image.Digests); len(names) > 0 {
		name = names[0]
	}
	return Step{Kind: "image", ID: s.image.ID, Name: name, Size: s.image.Size, Why: why}
}

func (s sight) goes(reason, why string) Step {
	step := s.step(why)
	step.Remove, step.reason = true, reason
	return step
}
