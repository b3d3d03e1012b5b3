package pleg_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Pods are written as words: the uid, then from oldest to newest what it has. s and c begin the IDs of sandboxes and
// containers, the sign says how they are: + running, - ended, ? created, ! unknown.
func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name    string
		was, is string
		want    string
	}{
		{"nothing new", "a s1+ c1+", "a s1+ c1+", ""},
		{"a new pod", "", "a s1+ c1+", "a s1 started, a c1 started"},
		{"a container starts", "a s1+", "a s1+ c1+", "a c1 started"},
		{"a container ends", "a s1+ c1+", "a s1+ c1-", "a c1 died"},
		{"an ended container goes", "a s1+ c1-", "a s1+", "a c1 removed"},
		{"a running container goes", "a s1+ c1+", "a s1+", "a c1 died, a c1 removed"},
		{"a container of unknown state goes", "a c1!", "a", "a c1 died, a c1 removed"},
		{"an ended container is met", "a s1+", "a s1+ c1-", "a c1 died"},
		{"a created container is a reason to look (trap 34)", "a s1+", "a s1+ c1?", "a c1 changed"},
		{"created and unknown are the same (trap 34)", "a c1?", "a c1!", ""},
		{"a created container starts", "a c1?", "a c1+", "a c1 started"},
		{"a container nobody can tell about", "a c1+", "a c1!", "a c1 changed"},
		{"one dies and another starts: by ID, not by state", "a c1+", "a c1- c2+", "a c1 died, a c2 started"},
		{"a replaced container", "a c1+", "a c2+", "a c1 died, a c1 removed, a c2 started"},
		{"a sandbox ends", "a s1+ c1-", "a s1- c1-", "a s1 died"},
		{"containers go before their sandbox, come after it", "a s1+ c1+ c2+", "a s1- c1- c2- s2+ c3+", "a c1 died, a c2 died, a s1 died, a s2 started, a c3 started"},
		{"a pod goes (c047)", "a s1- c1-", "", "a c1 removed, a s1 removed"},
		{"another order is no change", "a c1+ c2-", "a c2- c1+", ""},
		{"pod by pod", "a c1+ | b c2+ | d c5+", "d c5- | b c2+ | e c6+ | a c1-", "a c1 died, d c5 died, e c6 started"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, e := range pleg.Diff(parsePods(c.was), parsePods(c.is)) {
				got = append(got, show(e))
			}
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("got %s\nwant %s", s, c.want)
			}
		})
	}
}

func show(e pleg.Event) string {
	return strings.Join(slices.DeleteFunc([]string{e.Pod.Name, e.Container, e.Kind.String()}, func(s string) bool { return s == "" }), " ")
}

func parsePods(s string) (pods []runtime.Pod) {
	for one := range strings.SplitSeq(s, "|") {
		if words := strings.Fields(one); len(words) > 0 {
			pods = append(pods, parsePod(words))
		}
	}
	return pods
}

func parsePod(words []string) runtime.Pod {
	p := runtime.Pod{PodRef: runtime.PodRef{Namespace: "ns", Name: words[0], UID: types.UID(words[0])}}
	for _, w := range words[1:] {
		id, sign := w[:len(w)-1], w[len(w)-1:]
		if id[0] == 's' {
			p.Sandboxes = slices.Insert(p.Sandboxes, 0, runtime.Sandbox{PodRef: p.PodRef, ID: id, Ready: sign == "+"})
			continue
		}
		state := map[string]runtime.State{"+": runtime.Running, "-": runtime.Exited, "?": runtime.Created, "!": runtime.Unknown}[sign]
		p.Containers = slices.Insert(p.Containers, 0, runtime.Container{Pod: p.PodRef, ID: id, Name: fmt.Sprint("name-", id), State: state})
	}
	return p
}
