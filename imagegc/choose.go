package imagegc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// policy says how much that is dead may stay. Negative numbers are no limit.
type policy struct {
	perName int                  // instances of one name in one pod
	total   int                  // on the whole node
	born    time.Time            // only what was created by then may go; zero: all
	all     func(types.UID) bool // of these pods everything goes that does not run
}

// instances are those of one container name in one pod.
type instances struct {
	pod  types.UID
	name string
}

// victim is a container or sandbox that may go. One that is unwanted goes because nothing of its pod is kept.
type victim[T any] struct {
	it       T
	unwanted bool
}

// choose picks the containers that may go, oldest first. What belongs to no pod is not ours to remove.
func choose(containers []runtime.Container, p policy) []victim[runtime.Container] {
	groups := map[instances][]runtime.Container{}
	for _, c := range containers {
		if c.Pod.UID != "" {
			key := instances{c.Pod.UID, c.Name}
			groups[key] = append(groups[key], c)
		}
	}
	var out []victim[runtime.Container]
	add := func(unwanted bool, list []runtime.Container) {
		for _, c := range list {
			out = append(out, victim[runtime.Container]{c, unwanted})
		}
	}
	stay := make([][]runtime.Container, 0, len(groups))
	for key, group := range groups {
		slices.SortFunc(group, latestFirst)
		idle := func(c runtime.Container) bool {
			return c.State != runtime.Running && (p.born.IsZero() || !c.Created.After(p.born))
		}
		if p.all(key.pod) {
			add(true, keep(group, idle))
			continue
		}
		superseded, dead := split(group, idle)
		add(false, superseded)
		dead, over := cut(dead, p.perName)
		add(false, over)
		stay = append(stay, dead)
	}
	add(false, beyond(stay, p.total))
	slices.SortFunc(out, func(a, b victim[runtime.Container]) int { return newestFirst(b.it, a.it) })
	return out
}

// split divides those of one name in one pod, newest first, into the dead, and those a later instance took the place of
// before they were started. The newest is neither unless it has exited: it may be about to start, or run unseen.
func split(group []runtime.Container, idle func(runtime.Container) bool) (superseded, dead []runtime.Container) {
	for i, c := range group {
		switch {
		case !idle(c):
		case c.State == runtime.Exited:
			dead = append(dead, c)
		case i == 0:
		case c.State == runtime.Created: // has no log and no exit code that anyone may ask for
			superseded = append(superseded, c)
		default:
			dead = append(dead, c)
		}
	}
	return superseded, dead
}

// beyond is what the groups hold too many of: each gives until all have an equal share, one at least, then the oldest go.
func beyond(groups [][]runtime.Container, total int) []runtime.Container {
	count := 0
	for _, g := range groups {
		count += len(g)
	}
	if total < 0 || count <= total {
		return nil
	}
	share := max(total/len(groups), 1)
	var out, left []runtime.Container
	for _, g := range groups {
		stay, over := cut(g, share)
		out, left = append(out, over...), append(left, stay...)
	}
	slices.SortFunc(left, newestFirst)
	_, over := cut(left, total)
	return append(out, over...)
}

// chooseSandboxes picks the sandboxes that may go, oldest first: not ready, without containers, and not the newest of a pod
// that stays.
func chooseSandboxes(sandboxes []runtime.Sandbox, containers []runtime.Container, all func(types.UID) bool) []victim[runtime.Sandbox] {
	owns := map[string]bool{}
	for _, c := range containers {
		owns[c.SandboxID] = true
	}
	newest := map[types.UID]runtime.Sandbox{}
	for _, s := range sandboxes {
		if n, ok := newest[s.UID]; !ok || newestSandboxFirst(s, n) < 0 {
			newest[s.UID] = s
		}
	}
	var out []victim[runtime.Sandbox]
	for _, s := range sandboxes {
		last := newest[s.UID].ID == s.ID
		if s.UID == "" || s.Ready || owns[s.ID] || last && !all(s.UID) {
			continue
		}
		out = append(out, victim[runtime.Sandbox]{s, last})
	}
	slices.SortFunc(out, func(a, b victim[runtime.Sandbox]) int { return newestSandboxFirst(b.it, a.it) })
	return out
}

// latestFirst is the order of instances of one name, as podruntime sees them: their numbers say which is newer, since a clock
// may have been set between them.
func latestFirst(a, b runtime.Container) int {
	return cmp.Or(cmp.Compare(b.Restarts, a.Restarts), newestFirst(a, b))
}

// newestFirst is the order in which containers were created.
func newestFirst(a, b runtime.Container) int {
	return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Restarts, a.Restarts), cmp.Compare(a.ID, b.ID))
}

// newestSandboxFirst is the order in which podruntime sees the sandboxes of a pod.
func newestSandboxFirst(a, b runtime.Sandbox) int {
	return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
}

// cut divides a list after its first n; a negative n is after all.
func cut[T any](list []T, n int) (first, rest []T) {
	if n < 0 || n >= len(list) {
		return list, nil
	}
	return list[:n], list[n:]
}

func keep[T any](list []T, which func(T) bool) []T {
	var out []T
	for _, v := range list {
		if which(v) {
			out = append(out, v)
		}
	}
	return out
}
