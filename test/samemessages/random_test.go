package samemessages

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/podcases"
	"github.com/kubeletkit/kubeletkit/test/agent"
)

var (
	seed     = flag.Uint64("seed", 1, "first of the random pods of TestSameOfRandomPods")
	patience = flag.Duration("patience", 3*time.Minute, "how long two agents may take to say the same of random pods; a sixth of it is waited anyway")
	warnings = flag.Bool("warnings", false, "compare the warnings of random pods, too: some are in other words, and which come depends on time")
	number   = flag.Uint64("pods", 40, "how many random pods there are")
)

// fields are some of a pod or container, as JSON has them.
type fields = map[string]any

// lines reads what a pod or a container can say.
func lines(t *testing.T, file string) (all []fields) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var f fields
		if err := yaml.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, f)
	}
	return all
}

// merged is what two say together: lists of things are joined, of two things with one name the first counts.
func merged(a, b fields) fields {
	all := maps.Clone(a)
	if all == nil {
		all = fields{}
	}
	for name, v := range b {
		switch is := v.(type) {
		case fields:
			was, _ := all[name].(fields)
			all[name] = merged(was, is)
		case []any:
			all[name] = joined(all[name], is, name)
		default:
			all[name] = v
		}
	}
	return all
}

func joined(was any, more []any, of string) []any {
	list, _ := was.([]any)
	list = slices.Clone(list)
	if len(more) > 0 {
		if _, things := more[0].(fields); !things {
			return more // words
		}
	}
	for _, m := range more {
		name := m.(fields)["name"]
		if of == "env" || of == "volumeMounts" || name == nil || !slices.ContainsFunc(list, func(l any) bool { return l.(fields)["name"] == name }) {
			list = append(list, m)
		}
	}
	return list
}

// randomPod puts together a pod that says several things.
func randomPod(seed uint64, ofPods, ofContainers []fields) *v1.Pod {
	r := rand.New(rand.NewPCG(seed, 0))
	spec := fields{"terminationGracePeriodSeconds": 2, "serviceAccountName": "default", "schedulerName": "default-scheduler"}
	for range r.IntN(3) {
		spec = merged(spec, ofPods[r.IntN(len(ofPods))])
	}
	for i := range 1 + r.IntN(3) {
		name, field := fmt.Sprintf("c%d", i), "containers"
		if i == 0 {
			name = "other"
		} else if r.IntN(3) == 0 {
			field = "initContainers"
		}
		c := fields{"name": name, "image": "busybox:1"}
		for range 1 + r.IntN(3) {
			c = merged(c, ofContainers[r.IntN(len(ofContainers))])
		}
		pod, _ := c["pod"].(fields)
		delete(c, "pod")
		if field == "initContainers" {
			if r.IntN(2) == 0 {
				c["restartPolicy"] = "Always"
				delete(c, "restartPolicyRules")
			} else {
				for _, only := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} {
					delete(c, only)
				}
			}
		}
		spec = merged(merged(spec, pod), fields{field: []any{c}})
	}
	if spec["hostNetwork"] == true {
		for _, c := range spec["containers"].([]any) {
			delete(c.(fields), "ports") // others have them
		}
	}
	data, err := json.Marshal(fields{"apiVersion": "v1", "kind": "Pod", "metadata": fields{
		"name": fmt.Sprintf("random-%d", seed), "namespace": "default", "labels": fields{"a": "", "B.example/c": "d"},
		"annotations": fields{"Odd.Name/Key": "line one\nline \"two\"\t\\", "example.com/empty": ""},
	}, "spec": spec})
	if err != nil {
		panic(err) // it came from JSON
	}
	pod, err := podcases.Pod(data)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", data, err))
	}
	return pod
}

func randomCases(t *testing.T) (cases []*podcases.Case) {
	t.Helper()
	ofPods, ofContainers := lines(t, "pod.txt"), lines(t, "container.txt")
	for i := range *number {
		pod := randomPod(*seed+i, ofPods, ofContainers)
		pod.UID = types.UID("uid-" + pod.Name)
		cases = append(cases, &podcases.Case{Name: pod.Name, Pod: pod})
	}
	inDefault := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }
	cases[0].Maps = []*v1.ConfigMap{{ObjectMeta: inDefault("things"), Data: map[string]string{"a": "1", "b": "two\n", "not-a-name!": "x", "1": "one"}}}
	cases[0].Secrets = []*v1.Secret{{ObjectMeta: inDefault("secrets"), Data: map[string][]byte{"s": []byte("hush"), "empty": nil}}}
	cases[0].Classes = []*nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "micro"}, Handler: "micro"}}
	return cases
}

// Of pods that say several things at once, chosen at random, both agents tell a runtime the same, and the same of how they are.
// So they do after they were killed and started again.
func TestSameOfRandomPods(t *testing.T) {
	cases := randomCases(t)
	kubelet := upstream(t)
	var differ, after map[string]string
	t.Run("agents", func(t *testing.T) {
		theirs, ours := setUp(t, kubelet, nil, cases), setUp(t, agent.Program(t), nil, cases)
		for _, s := range []*stage{theirs, ours} {
			s.playScripts()
			s.give(cases)
		}
		differ = theirs.until(t, ours, cases, *patience)
		for _, c := range cases {
			differ[c.Name] += diff(t, theirs.files(t, c, false), ours.files(t, c, false))
		}
		after = theirs.restarted(t, ours, cases)
	})
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			spec, _ := yaml.Marshal(c.Pod.Spec)
			if d := differ[c.Name]; d != "" {
				t.Errorf("the kubelet (-) and nodeagent (+) differ:\n%s\nThe pod:\n%s", d, spec)
			} else if d := after[c.Name]; d != "" {
				t.Errorf("after a restart the kubelet (-) and nodeagent (+) differ:\n%s\nThe pod:\n%s", d, spec)
			}
		})
	}
}

// until waits until nothing differs between two agents, and says at the end what does.
func (s *stage) until(t *testing.T, other *stage, cases []*podcases.Case, patience time.Duration) map[string]string {
	t.Helper()
	for start, calm := time.Now(), 0; ; time.Sleep(500 * time.Millisecond) {
		differ := map[string]string{}
		for _, c := range cases {
			want, got := s.status(c), other.status(c)
			alike(want, got)
			if d := diff(t, s.says(t, c, want), other.says(t, c, got)); d != "" {
				differ[c.Name] = d
			}
		}
		if calm++; len(differ) > 0 {
			calm = 0
		}
		if calm >= 3 && time.Since(start) > patience/6 || time.Since(start) > patience {
			return differ
		}
	}
}

// ofMounts is a subPath within an image, of a mount that has a path on the host: see allowed.
var ofMounts = regexp.MustCompile(`(?m)(^    hostPath: .*\n)    imageSubPath: .*\n`)

// says is what an agent tells of a pod to a runtime, and to people.
func (s *stage) says(t *testing.T, c *podcases.Case, status *v1.PodStatus) string {
	t.Helper()
	text, _ := allowed(c, s.text(t, c, nil), "")
	text = ofMounts.ReplaceAllString(text, "$1")
	data, err := yaml.Marshal(status)
	must(t, err)
	events := map[string]bool{}
	for _, e := range apifake.All[*v1.Event](s.api) {
		if *warnings && e.InvolvedObject.UID == c.Pod.UID && e.Type == v1.EventTypeWarning {
			events[e.Reason+" "+e.InvolvedObject.FieldPath+": "+e.Message] = true
		}
	}
	return text + "--- # status\n" + string(data) + "--- # events\n" + strings.Join(slices.Sorted(maps.Keys(events)), "\n") + "\n"
}

// status is that of a pod, without what is never the same.
func (s *stage) status(c *podcases.Case) *v1.PodStatus {
	pod, _ := apifake.Get(s.api, c.Pod)
	status := pod.Status.DeepCopy()
	status.StartTime, status.PodIP, status.PodIPs = nil, "", nil
	if r := status.Resources; pod.Spec.Resources == nil {
		status.Resources = nil // the kubelet reads them from the cgroup
	} else if r != nil {
		delete(r.Limits, v1.ResourceMemory) // it takes no limit for a large one
		if r.Limits.Cpu().Cmp(least) <= 0 {
			delete(r.Limits, v1.ResourceCPU)
		}
		if len(r.Limits) == 0 {
			r.Limits = nil
		}
	}
	timeless(status)
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			if c := &list[i]; c.RestartCount > 0 { // each agent has its own rhythm
				c.RestartCount, c.State, c.LastTerminationState, c.Started = 1, v1.ContainerState{}, v1.ContainerState{}, nil
			}
		}
	}
	return status
}

// timeless takes times and IDs of containers from a status, and orders its conditions.
func timeless(status *v1.PodStatus) {
	slices.SortFunc(status.Conditions, func(a, b v1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime, status.Conditions[i].LastProbeTime = metav1.Time{}, metav1.Time{}
	}
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			c := &list[i]
			c.ContainerID = strings.TrimRight(c.ContainerID, "0123456789")
			for _, state := range []*v1.ContainerState{&c.State, &c.LastTerminationState} {
				if state.Running != nil {
					state.Running.StartedAt = metav1.Time{}
				}
				if e := state.Terminated; e != nil {
					e.StartedAt, e.FinishedAt, e.ContainerID = metav1.Time{}, metav1.Time{}, strings.TrimRight(e.ContainerID, "0123456789")
				}
			}
		}
	}
}

// alike takes from what we say of waiting containers what stands after the kubelet's words, and what may be said in others. Two
// more differences have a line in docs/differences.md.
func alike(want, got *v1.PodStatus) {
	for i := range min(len(want.Conditions), len(got.Conditions)) {
		theirs, ours := &want.Conditions[i], &got.Conditions[i]
		if theirs.Type == ours.Type && theirs.Reason == "ContainersNotReady" && ours.Reason == "PodFailed" && want.Phase == v1.PodFailed {
			ours.Reason, ours.Message = theirs.Reason, theirs.Message
		}
	}
	for of, list := range map[*[]v1.ContainerStatus][]v1.ContainerStatus{
		&want.InitContainerStatuses: got.InitContainerStatuses, &want.ContainerStatuses: got.ContainerStatuses,
	} {
		for i := range min(len(*of), len(list)) {
			if list[i].ContainerID == "" { // whether its mounts are read-only all the way is known later
				list[i].VolumeMounts = (*of)[i].VolumeMounts
			}
			theirs, ours := (*of)[i].State.Waiting, list[i].State.Waiting
			if theirs != nil && ours != nil && (strings.HasPrefix(ours.Message, theirs.Message) || theirs.Reason == "InvalidImageName") {
				ours.Message = theirs.Message
			}
		}
	}
}
