package imagegc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// instance reads "pod/name#restarts state", created that many minutes after start, or with "#restarts@minutes" after others.
func instance(text string) runtime.Container {
	id, state, _ := strings.Cut(text, " ")
	pod, name, _ := strings.Cut(id, "/")
	name, restarts, _ := strings.Cut(name, "#")
	restarts, minutes, at := strings.Cut(restarts, "@")
	c := runtime.Container{ID: id, Name: name, Pod: runtime.PodRef{UID: types.UID(pod)}}
	_, _ = fmt.Sscan(restarts, &c.Restarts)
	created := c.Restarts
	if at {
		_, _ = fmt.Sscan(minutes, &created)
	}
	c.Created = start.Add(time.Duration(created) * time.Minute)
	c.State = map[string]runtime.State{"": runtime.Exited, "running": runtime.Running, "created": runtime.Created, "unknown": runtime.Unknown}[state]
	return c
}

func TestChoose(t *testing.T) {
	two := []string{"p/a#0", "p/a#1", "q/a#0", "q/a#1", "r/a#0", "r/a#1", "s/a#0", "s/a#1", "t/a#0", "t/a#1"}
	for _, c := range []struct {
		rule           string
		perName, total int
		age            time.Duration // at start plus an hour
		gone           string        // pod of which nothing is kept
		have           []string
		want           []string
	}{
		{rule: "nothing to do", perName: 1, total: -1},
		{rule: "the newest of a name stays", perName: 1, total: -1, have: []string{"p/a#0", "p/a#1", "p/a#2"}, want: []string{"p/a#0", "p/a#1"}},
		{rule: "the newest two stay", perName: 2, total: -1, have: []string{"p/a#2", "p/a#0", "p/a#3", "p/a#1"}, want: []string{"p/a#0", "p/a#1"}},
		{rule: "names count apart", perName: 1, total: -1, have: []string{"p/a#0", "p/b#0", "q/a#0"}},
		{rule: "none stay in total", perName: -1, total: 0, have: []string{"p/a#0", "p/a#1"}, want: []string{"p/a#0", "p/a#1"}},
		{rule: "four of five in total", perName: -1, total: 4, have: []string{"p/a#0", "p/a#1", "p/a#2", "p/a#3", "p/a#4"}, want: []string{"p/a#0"}},
		{rule: "no limit", perName: -1, total: -1, have: []string{"p/a#0", "p/a#1", "p/a#2", "p/a#3", "p/a#4"}},
		{rule: "equal shares of the total first", perName: 2, total: 6, have: two, want: []string{"p/a#0", "q/a#0", "r/a#0", "s/a#0", "t/a#0"}},
		{rule: "then the oldest", perName: 2, total: 2, have: []string{"p/a#0", "q/a#5", "q/a#6", "r/a#7"}, want: []string{"p/a#0", "q/a#5"}},
		{rule: "one that runs stays, and is not counted", perName: 1, total: -1, have: []string{"p/a#0", "p/a#1", "p/a#2 running"}, want: []string{"p/a#0"}},
		{rule: "an old one that runs stays", perName: 1, total: -1, have: []string{"p/a#0 running", "p/a#1", "p/a#2"}, want: []string{"p/a#1"}},
		{rule: "one about to start stays, and is not counted", perName: 1, total: -1, have: []string{"p/a#0", "p/a#1 created"}},
		{rule: "one that never started goes when a later one is there", perName: 1, total: -1, have: []string{"p/a#0", "p/a#1 created", "p/a#2 running"}, want: []string{"p/a#1"}},
		{rule: "the newest stays while its state is unknown", perName: 1, total: -1, have: []string{"p/a#0", "p/a#1 unknown"}},
		{rule: "an older one of unknown state is as good as dead", perName: 1, total: -1, have: []string{"p/a#0 unknown", "p/a#1", "p/a#2"}, want: []string{"p/a#0", "p/a#1"}},
		{rule: "a finished init container stays while the app runs (c001)", perName: 1, total: -1, have: []string{"p/init#0", "p/app#0", "p/app#1", "p/app#2 running"}, want: []string{"p/app#0"}},
		{rule: "of an unwanted pod all goes that does not run", perName: 1, total: -1, gone: "p", have: []string{"p/a#0", "p/a#1 created", "p/b#0 unknown", "p/c#0 running", "q/a#0"}, want: []string{"p/a#0", "p/b#0", "p/a#1"}},
		{rule: "a young one stays also of an unwanted pod", perName: 1, total: -1, gone: "p", age: time.Hour - 30*time.Second, have: []string{"p/a#0", "p/a#1"}, want: []string{"p/a#0"}},
		{rule: "young ones are not counted", perName: 1, total: -1, age: time.Hour - 90*time.Second, have: []string{"p/a#0", "p/a#1", "p/a#2", "p/a#3"}, want: []string{"p/a#0"}},
		{rule: "numbers say which is newer, not times: a clock may have been set", perName: 1, total: -1, have: []string{"p/a#0@9", "p/a#1@3"}, want: []string{"p/a#0@9"}},
		{rule: "one about to start is the newest whatever its time", perName: 1, total: -1, have: []string{"p/a#0@9", "p/a#1@3 created"}},
		{rule: "what belongs to no pod is not ours", perName: 1, total: 0, gone: "", have: []string{"/a#0", "/a#1"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			var list []runtime.Container
			for _, text := range c.have {
				list = append(list, instance(text))
			}
			p := policy{perName: c.perName, total: c.total, born: start.Add(time.Hour - c.age), all: func(uid types.UID) bool { return string(uid) == c.gone }}
			var got []string
			for _, v := range choose(list, p) {
				got = append(got, v.it.ID)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestChooseSandboxes(t *testing.T) {
	for _, c := range []struct {
		rule       string
		gone       string
		have       []string // "pod#attempt", with "ready"
		containers []string // sandboxes they are in
		want       []string
	}{
		{rule: "the newest of a pod stays", have: []string{"p#0", "p#1", "p#2"}, want: []string{"p#0", "p#1"}},
		{rule: "a ready one stays", have: []string{"p#0 ready", "p#1"}},
		{rule: "one that owns a container stays", have: []string{"p#0", "p#1", "p#2 ready"}, containers: []string{"p#0"}, want: []string{"p#1"}},
		{rule: "of an unwanted pod none stay", gone: "p", have: []string{"p#0", "p#1", "q#0"}, want: []string{"p#0", "p#1"}},
		{rule: "of an unwanted pod those stay that are in use", gone: "p", have: []string{"p#0 ready", "p#1"}, containers: []string{"p#1"}},
		{rule: "what belongs to no pod is not ours", have: []string{"#0", "#1"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			var list []runtime.Sandbox
			for _, text := range c.have {
				id, ready, _ := strings.Cut(text, " ")
				pod, attempt, _ := strings.Cut(id, "#")
				s := runtime.Sandbox{ID: id, Ready: ready != "", PodRef: runtime.PodRef{UID: types.UID(pod)}}
				_, _ = fmt.Sscan(attempt, &s.Attempt)
				list = append(list, s)
			}
			var owners []runtime.Container
			for _, s := range c.containers {
				owners = append(owners, runtime.Container{SandboxID: s})
			}
			var got []string
			for _, v := range chooseSandboxes(list, owners, func(uid types.UID) bool { return string(uid) == c.gone }) {
				got = append(got, v.it.ID)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestChooseAgreesWithANaiveReading asks of each container alone whether it may go, by counting those newer than it.
func TestChooseAgreesWithANaiveReading(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var list []runtime.Container
		for i := range r.IntN(12) {
			state := []string{"", "", "", " running", " created", " unknown"}[r.IntN(6)]
			list = append(list, instance(fmt.Sprintf("%c/%c#%d%s", 'p'+rune(r.IntN(3)), 'a'+rune(r.IntN(2)), i, state)))
		}
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		p := policy{perName: r.IntN(3), total: -1, born: start.Add(time.Duration(r.IntN(14)) * time.Minute), all: func(uid types.UID) bool { return uid == "r" }}
		want := map[string]bool{}
		for _, c := range list {
			if c.State == runtime.Running || c.Created.After(p.born) {
				continue
			}
			newer, newerDead := 0, 0
			for _, o := range list {
				if o.Pod == c.Pod && o.Name == c.Name && o.Restarts > c.Restarts {
					newer++
					if !o.Created.After(p.born) && (o.State == runtime.Exited || o.State == runtime.Unknown && !newest(list, o)) {
						newerDead++
					}
				}
			}
			switch {
			case p.all(c.Pod.UID):
				want[c.ID] = true
			case c.State == runtime.Exited:
				want[c.ID] = newerDead >= p.perName
			case c.State == runtime.Created:
				want[c.ID] = newer > 0
			default:
				want[c.ID] = newer > 0 && newerDead >= p.perName
			}
		}
		for _, v := range choose(list, p) {
			if !want[v.it.ID] {
				t.Fatalf("seed %d: %s must not go", seed, v.it.ID)
			}
			delete(want, v.it.ID)
		}
		for id, goes := range want {
			if goes {
				t.Fatalf("seed %d: %s must go", seed, id)
			}
		}
	}
}

func newest(list []runtime.Container, c runtime.Container) bool {
	return !slices.ContainsFunc(list, func(o runtime.Container) bool {
		return o.Pod == c.Pod && o.Name == c.Name && o.Restarts > c.Restarts
	})
}

func BenchmarkChoose(b *testing.B) {
	var list []runtime.Container
	for i := range 1000 {
		list = append(list, instance(fmt.Sprintf("p%d/a#%d", i%110, i)))
	}
	p := policy{perName: 1, total: -1, all: func(types.UID) bool { return false }}
	for b.Loop() {
		choose(list, p)
	}
}
