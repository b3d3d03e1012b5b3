package samemessages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/podcases"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/test/agent"
)

// answer is what a server said.
type answer struct {
	code  int
	allow string
	body  string
}

// ask sends a method and a path, behind which spdy or websocket may stand, to an agent's server.
func (s *stage) ask(t *testing.T, request string) answer {
	t.Helper()
	words := append(strings.Fields(request), "")
	r, err := http.NewRequestWithContext(t.Context(), words[0], "https://127.0.0.1:"+strconv.Itoa(s.port)+words[1], http.NoBody)
	must(t, err)
	upgrades := map[string]map[string]string{
		"spdy":      {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"},
		"websocket": {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-Websocket-Protocol": "v4.channel.k8s.io"},
	}
	for name, value := range upgrades[words[2]] {
		r.Header.Set(name, value)
	}
	a, err := s.client.Do(r)
	must(t, err)
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	must(t, err)
	return answer{a.StatusCode, a.Header.Get("Allow"), string(body)}
}

// asked are pods to ask about: one that runs and has printed something, one that is over, one that waits.
func asked() (cases []*podcases.Case) {
	for _, name := range []string{"web", "over", "waits"} {
		p := guest{name: name}.pod(0)
		c := &p.Spec.Containers[0]
		switch name {
		case "web":
			c.Command = []string{"sh", "-c", "echo one; echo two >&2; echo three; trap 'exit 0' TERM; wait"}
			quiet := *c
			quiet.Name, quiet.Command = "quiet", nil
			p.Spec.Containers = append(p.Spec.Containers, quiet)
		case "over":
			p.Spec.RestartPolicy, c.Command = v1.RestartPolicyNever, []string{"sh", "-c", "echo done; exit 3"}
		case "waits":
			c.Image, c.ImagePullPolicy = "nowhere:1", v1.PullNever
		}
		cases = append(cases, &podcases.Case{Name: name, Pod: p})
	}
	return cases
}

// Both agents' servers answer with the same codes, logs and refusals, with the same fields where they answer with figures or
// configuration, and with the same of their pods.
func TestSameAnswers(t *testing.T) {
	cases, kubelet := asked(), upstream(t)
	var theirs, ours *stage
	t.Run("agents", func(t *testing.T) {
		theirs, ours = setUp(t, kubelet, nil, cases), setUp(t, agent.Program(t), nil, cases)
		for _, s := range []*stage{theirs, ours} {
			s.engine.Logs, s.engine.ImageDir, s.engine.Behave = true, s.dir, runtimetest.Shell
			s.give(cases)
		}
		for name, d := range theirs.until(t, ours, cases, *patience/9) {
			t.Errorf("%s: the kubelet (-) and nodeagent (+) differ:\n%s", name, d)
		}
		data, err := os.ReadFile(filepath.Join("testdata", "answers.txt"))
		must(t, err)
		for line := range strings.Lines(string(data)) {
			if request, differs, _ := strings.Cut(strings.TrimSpace(line), " # "); request != "" && !strings.HasPrefix(line, "#") {
				t.Run(request, func(t *testing.T) { sameAnswer(t, request, differs, theirs.ask(t, request), ours.ask(t, request)) })
			}
		}
		for path, shape := range map[string]func(*testing.T, string) []string{
			"/pods": pods, "/runningpods/": pods, "/configz": fieldsOf, "/stats/summary": figures, "/stats/summary?only_cpu_and_memory=true": figures,
			"/metrics": families, "/metrics/resource": families, "/metrics/cadvisor": families,
		} {
			t.Run("what "+path+" holds", func(t *testing.T) {
				for start := time.Now(); ; time.Sleep(500 * time.Millisecond) { // sizes of logs are known after ten seconds
					want, got := allowedIn(path, shape(t, theirs.ask(t, "GET "+path).body), shape(t, ours.ask(t, "GET "+path).body))
					d := diff(t, strings.Join(want, "\n")+"\n", strings.Join(got, "\n")+"\n")
					if d == "" && len(want) > 0 {
						return
					}
					if time.Since(start) > *patience/3 {
						t.Fatalf("the kubelet (-) and nodeagent (+) differ, of %d:\n%s", len(want), d)
					}
				}
			})
		}
	})
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)

// sameAnswer compares two answers. Where they differ, differs begins with both codes.
func sameAnswer(t *testing.T, request, differs string, want, got answer) {
	t.Helper()
	if differs != "" {
		if is := fmt.Sprintf("%d %d", want.code, got.code); !strings.HasPrefix(differs, is+" ") {
			t.Errorf("the codes are %s, not as %q says", is, differs)
		}
		return
	}
	if want.code != got.code || want.allow != got.allow {
		t.Errorf("the kubelet answers %d, nodeagent %d; Allow is %q and %q; they say %.200q and %.200q", want.code, got.code, want.allow, got.allow, want.body, got.body)
	}
	logs := strings.Contains(request, "/containerLogs/")
	theirs, ours := times.ReplaceAllString(want.body, "TIME"), times.ReplaceAllString(got.body, "TIME")
	if alike := strings.TrimSpace(theirs) == strings.TrimSpace(ours); logs && (want.code == http.StatusOK && theirs != ours || want.code == http.StatusBadRequest && !strings.HasPrefix(theirs, "{") && !alike) {
		t.Errorf("the kubelet answers %q, nodeagent %q", theirs, ours)
	}
}

// pods are those of a list, with the fields that each has.
func pods(t *testing.T, body string) (all []string) {
	t.Helper()
	var list v1.PodList
	must(t, json.Unmarshal([]byte(body), &list))
	slices.SortFunc(list.Items, func(a, b v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range list.Items {
		p.ManagedFields = nil // docs/differences.md
		if p.Status.Resources != nil && p.Spec.Resources == nil {
			p.Status.Resources = nil // see status
		}
		data, err := json.Marshal(p)
		must(t, err)
		for _, f := range fieldsOf(t, string(data)) {
			all = append(all, p.Name+f)
		}
	}
	return all
}

// figures are the fields of a summary.
func figures(t *testing.T, body string) []string { t.Helper(); return fieldsOf(t, body) }

// fieldsOf are the paths of all that a document says, in order. Things in lists go by their names.
func fieldsOf(t *testing.T, body string) []string {
	t.Helper()
	var v any
	must(t, json.Unmarshal([]byte(body), &v))
	all := map[string]bool{}
	var walk func(string, any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, below := range v {
				walk(path+"."+name, below)
			}
		case []any:
			for _, below := range v {
				thing, _ := below.(map[string]any)
				name := thing["name"]
				if ref, ok := thing["podRef"].(map[string]any); ok {
					name = ref["name"]
				}
				walk(fmt.Sprintf("%s[%v]", path, name), below)
			}
		default:
			all[path] = true
		}
	}
	walk("", v)
	return slices.Sorted(maps.Keys(all))
}

var (
	typeOf   = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	sampleOf = regexp.MustCompile(`(?m)^(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? `)
	labelOf  = regexp.MustCompile(`(\w+)="`)
)

// families are the names of metrics with their types and labels.
func families(t *testing.T, body string) (all []string) {
	t.Helper()
	labels := map[string]map[string]bool{}
	for _, m := range sampleOf.FindAllStringSubmatch(body, -1) {
		if labels[m[1]] == nil {
			labels[m[1]] = map[string]bool{}
		}
		for _, l := range labelOf.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" && l[1] != "quantile" {
				labels[m[1]][l[1]] = true
			}
		}
	}
	for _, m := range typeOf.FindAllStringSubmatch(body, -1) {
		has := labels[m[1]]
		if has == nil { // it ends like a part of a histogram
			has = labels[strings.TrimSuffix(strings.TrimSuffix(m[1], "_count"), "_sum")]
		}
		all = append(all, fmt.Sprintf("%s %s %v", m[1], m[2], slices.Sorted(maps.Keys(has))))
	}
	slices.Sort(all)
	return all
}
