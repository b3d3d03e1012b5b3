package staticpod

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// settle is how long a file must be bad, or gone, to count as that. Editors and writers in place pass
// through such states in a few milliseconds. One that was seen to be removed, not to be renamed, is gone at once.
const settle = 200 * time.Millisecond

// entry is what is known of one name in the directory.
type entry struct {
	name string
	path string
	sum  [sha256.Size]byte // of the bytes last read
	read bool              // sum is one
	pod  *v1.Pod           // of the last good content; nil: there was none yet
	runs bool              // its pod was in the set delivered last
	back bool              // the file was removed and is there again: its pod is left out of one set

	state  state
	bad    string    // why its newest content is refused
	clash  string    // why its pod, though good, is not delivered
	since  time.Time // when state, bad or clash became what they are
	told   string    // the trouble that was logged
	newest []string  // warnings not yet logged
}

type state uint8

const (
	good state = iota
	bad
	gone
)

// trouble is what is wrong with the entry, empty when nothing is.
func (e *entry) trouble() string { return cmp.Or(e.bad, e.clash) }

// set notes a state of the entry; since only moves when it is another one.
func (e *entry) set(s state, why string, now time.Time) {
	if e.state != s || e.bad != why {
		e.state, e.bad, e.since = s, why, now
	}
}

// table is the directory as last seen.
type table struct {
	node    string
	settle  time.Duration
	entries map[string]*entry // by path
}

// settled says that the trouble of an entry is not just a moment's.
func (t *table) settled(e *entry, now time.Time) bool { return now.Sub(e.since) >= t.settle }

// unsure says that the entry may still become something else in a moment.
func (t *table) unsure(e *entry, now time.Time) bool {
	return (e.state == gone || e.trouble() != "") && !t.settled(e, now)
}

// update notes what is there now. What is not, is gone, and forgotten a little later, or at once if it was removed.
func (t *table) update(paths []string, removed map[string]bool, namesCount bool, now time.Time) {
	for _, p := range paths {
		e := t.entries[p]
		if e == nil {
			e = &entry{name: filepath.Base(p), path: p, since: now}
			t.entries[p] = e
		}
		if e.back = removed[p] && e.runs; e.back {
			e.pod, e.read = nil, false // what is there now stands for itself
		}
		if namesCount && backup(e.name) {
			e.set(bad, "has the name of a backup; rename it if it is meant", now)
			continue
		}
		t.look(e, now)
	}
	for p, e := range t.entries {
		if slices.Contains(paths, p) {
			continue
		}
		e.set(gone, "", now)
		if t.settled(e, now) || removed[p] {
			delete(t.entries, p)
		}
	}
}

// look reads one file and decodes it when its bytes are new.
func (t *table) look(e *entry, now time.Time) {
	b, err := readFile(e.path)
	if err != nil {
		e.read = false
		e.set(bad, err.Error(), now)
		return
	}
	sum := sha256.Sum256(b)
	if e.read && e.sum == sum && e.state != gone {
		return
	}
	e.read, e.sum = true, sum
	m, err := read(b)
	if err == nil {
		m.pod, err = origin{sourceFile, t.node, e.path}.place(m, now)
	}
	if err != nil {
		e.since = now // other bytes: another trouble, even when it reads the same
		e.set(bad, err.Error(), now)
		return
	}
	e.newest = m.warnings
	e.set(good, "", now)
	if e.pod == nil || !same(e.pod, m.pod) {
		e.pod = m.pod
	}
}

// same says that a new reading of a file is the pod it was. The time it was first seen stays with a UID.
func same(old, pod *v1.Pod) bool {
	if old.UID == pod.UID {
		pod.Annotations[podspec.SeenAnnotation] = old.Annotations[podspec.SeenAnnotation]
	}
	return equality.Semantic.DeepEqual(old, pod)
}

// sorted are the entries by name.
func (t *table) sorted() []*entry {
	return slices.SortedFunc(maps.Values(t.entries), func(a, b *entry) int { return cmp.Compare(a.path, b.path) })
}

// choose picks the entries whose pods run. Of two with the same name or UID it is the one that runs
// already, then the first by file name; one whose file is gone for the moment comes last. The others
// learn what they clash with.
func choose(entries []*entry, now time.Time) (pods []*v1.Pod) {
	rank := func(e *entry) int {
		switch {
		case e.state == gone:
			return 2
		case e.runs:
			return 0
		}
		return 1
	}
	byRank := slices.Clone(entries)
	slices.SortStableFunc(byRank, func(a, b *entry) int { return cmp.Compare(rank(a), rank(b)) })
	taken := map[string]*entry{}
	for _, e := range byRank {
		clash := ""
		if e.runs = e.pod != nil && !e.back; e.runs {
			name, id := "name "+e.pod.Namespace+"/"+e.pod.Name, "uid "+string(e.pod.UID)
			for _, key := range []string{name, id} {
				if other := taken[key]; other != nil && e.runs {
					e.runs, clash = false, fmt.Sprintf("its pod has the %s of that in %s, which runs", key, other.name)
				}
			}
			if e.runs {
				taken[name], taken[id] = e, e
			}
		}
		if e.clash != clash {
			e.clash, e.since = clash, now
		}
	}
	for _, e := range entries {
		if e.runs {
			pods = append(pods, e.pod)
		}
	}
	return pods
}
