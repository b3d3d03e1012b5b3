package syncloop_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "rewrite the lower halves of the scripts")

// TestScripts plays what happens to a node and compares what the loop did about it. A script is a list of steps: what
// happens, a line of dashes, what was done. See node.do for what can happen.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			synctest.Test(t, func(t *testing.T) { play(t, string(text), &got) })
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got.String()); diff != "" {
				t.Errorf("(-script +happened)\n%s", diff)
			}
		})
	}
}

func play(t *testing.T, text string, out *bytes.Buffer) {
	t.Helper()
	n := newNode(t)
	n.start()
	for i, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		upper, _, _ := strings.Cut(block, "----")
		for line := range strings.Lines(upper) {
			line = strings.TrimSpace(line)
			out.WriteString(line + "\n")
			if line != "" && !strings.HasPrefix(line, "#") {
				n.do(line)
				synctest.Wait()
			}
		}
		out.WriteString("----\n")
		for _, line := range n.take() {
			out.WriteString(line + "\n")
		}
	}
	n.stop()
}

// node is a machine with an engine and a loop on it.
type node struct {
	t      *testing.T
	engine *runtimetest.Engine
	roster *syncloop.Roster
	pods   map[string]*v1.Pod
	sets   chan fileSet
	api    *server
	tune   func(context.Context, *sync.WaitGroup, *syncloop.Config) // what a test wants otherwise in each agent; nil: nothing
	finish func()
	refuse map[string]*runtime.Rejection
	room   int64  // thousandths of a processor that all pods together may ask for; 0: any number
	state  string // where agents keep what outlives them; empty: nothing does
	logs   string // where logs of pods would be
	early  bool   // the source has not said everything

	mu     sync.Mutex
	acts   map[string][]string // by pod, in order
	status map[string]string   // by pod, the newest
	shown  map[string]string   // by pod, as last written down
	marks  []string
	over   map[types.UID]bool // pods that this node has told as over
	trace  []string           // all that was done, with when

	notifier runtime.Notifier          // what agents hear of the engine
	clock    func(time.Time) time.Time // what the engine writes down for a moment; nil: that
	ahead    time.Duration             // the server's clock is
	judge    *judge                    // nil: nobody watches
	done     func(pod *v1.Pod)         // called for each pod that has finished; nil: nobody cares
	began    time.Time
	events   map[string]string // what people were told, by reason
	killers  sync.WaitGroup    // who waits for something beside the agents
}

// fileSet is what the source of pods from files wants.
type fileSet struct {
	pods     []*v1.Pod
	complete bool
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		t: t, logs: t.TempDir(), engine: runtimetest.New(runtime.Image{ID: "img", Tags: []string{"img"}}), pods: map[string]*v1.Pod{}, refuse: map[string]*runtime.Rejection{},
		acts: map[string][]string{}, status: map[string]string{}, shown: map[string]string{}, over: map[types.UID]bool{}, events: map[string]string{},
	}
	n.api, n.notifier, n.began = newServer(n), n.engine, time.Now()
	return n
}

// say notes what was done about a pod.
func (n *node) say(pod, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line := pod + ": " + fmt.Sprintf(format, args...)
	n.acts[pod] = append(n.acts[pod], line)
	n.note(line)
}

// note writes down when something was done. The caller holds mu.
func (n *node) note(line string) {
	n.trace = append(n.trace, moment(n.began)+line)
}

// take gives out what was done, pod by pod: what steps and publishers of several pods do has no order among them.
func (n *node) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.marks
	for _, pod := range slices.Sorted(maps.Keys(n.acts)) {
		out = append(out, n.acts[pod]...)
	}
	for _, pod := range slices.Sorted(maps.Keys(n.status)) {
		if n.status[pod] != n.shown[pod] {
			out = append(out, n.status[pod])
			n.shown[pod] = n.status[pod]
		}
	}
	n.marks = nil
	clear(n.acts)
	return out
}

// start begins a new agent on the node.
func (n *node) start() {
	n.roster, n.sets = new(syncloop.Roster), make(chan fileSet)
	roster := n.roster
	rt, err := podruntime.New(podruntime.Config{
		Engine: heard{n.engine, n}, LogRoot: n.logs, Changed: roster.Wake, Root: n.state, Starts: 4, Observe: observe.To{Events: n},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	cfg := syncloop.Config{
		Sources: map[string]syncloop.PodSource{"file": n, "api": n.api}, Runtime: rt, Sink: n, Roster: roster,
		Admit: []syncloop.Admitter{n}, RuntimeName: func() string { return "test" }, State: n.state, Observe: observe.To{Events: n},
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	var wg sync.WaitGroup
	if n.tune != nil {
		n.tune(ctx, &wg, &cfg)
	}
	loop, err := syncloop.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	wg.Go(func() {
		if err := loop.Run(ctx); err != nil {
			n.t.Error(err)
		}
	})
	wg.Go(func() { _ = n.notifier.Events(ctx, func(e runtime.Event) { roster.Wake(e.Pod.UID) }) })
	n.finish = func() { cancel(); wg.Wait() }
	n.send()
}

func (n *node) stop() {
	n.finish()
	n.finish = func() {}
}

func (n *node) send() {
	all := slices.SortedFunc(maps.Values(n.pods), func(a, b *v1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	n.sets <- fileSet{slices.DeleteFunc(all, ofServer), !n.early}
}

// Run makes a node a source.
func (n *node) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	for {
		select {
		case s := <-n.sets:
			set(s.pods, s.complete)
		case <-ctx.Done():
			return nil
		}
	}
}

// Admit makes a node an admitter.
func (n *node) Admit(_ context.Context, pod *v1.Pod, others []*v1.Pod) error {
	if r := n.refuse[pod.Name]; r != nil && (len(r.Instead) == 0 || slices.ContainsFunc(others, func(o *v1.Pod) bool { return o.UID == r.Instead[0] })) {
		return r
	}
	return n.fits(pod, others)
}

// told is what people were told for a reason.
func (n *node) told(reason string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.events[reason]
}

// Event remembers what people are told, and writes it down if it is of resizes.
func (n *node) Event(e observe.Event) {
	n.mu.Lock()
	n.events[e.Reason] += e.Message + "\n"
	n.mu.Unlock()
	if strings.HasPrefix(e.Reason, "Resize") {
		n.say(e.About.Name, "event %s", e.Reason)
	}
}

// UpdateStatus and Finished make a node a sink.
func (n *node) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error {
	if ofServer(pod) {
		ours := over(s.Phase)
		var err error
		if s, err = n.api.write(pod, s); err != nil {
			return err
		}
		n.mu.Lock()
		n.over[pod.UID] = n.over[pod.UID] || ours && over(s.Phase)
		n.mu.Unlock()
	}
	line := pod.Name + " is " + string(s.Phase)
	if s.Reason != "" {
		line += " " + s.Reason
	}
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		state := "?"
		switch {
		case c.State.Running != nil:
			state = "running"
		case c.State.Terminated != nil:
			state = fmt.Sprintf("ended %d", c.State.Terminated.ExitCode)
		case c.State.Waiting != nil:
			state = "waits " + c.State.Waiting.Reason
		}
		line += fmt.Sprintf(", %s#%d %s", c.Name, c.RestartCount, state)
	}
	for _, c := range s.Conditions {
		if c.Type == v1.PodReady && len(pod.Spec.ReadinessGates) > 0 {
			line += ", ready " + string(c.Status)
		}
	}
	line += resizeLine(pod, s)
	n.judge.told(pod, s)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.status[pod.Name] != line {
		n.note(line)
	}
	n.status[pod.Name] = line
	return nil
}

func (n *node) Finished(_ context.Context, pod *v1.Pod) error {
	if n.done != nil {
		n.done(pod)
	}
	n.say(pod.Name, "finished")
	if ofServer(pod) {
		n.api.finished(pod)
	}
	return nil
}

// do makes something happen: "add web app=CMD init:setup=CMD policy=Never grace=5", "edit web ...", "remove web",
// "delete web grace=3", "exit web/app 1", "sandbox web", "advance 10s", "kill web reason", "restart", "reboot",
// "refuse web Reason [instead of x]", "early on|off", "down METHOD", "up METHOD". With source=api a pod is an API server's; of
// such a one also "write web PHASE [Reason]" as somebody else does, "condition web TYPE STATUS", "object web" to see what the
// server has, and "server away|back"; "resize web app=200m" asks for other sizes, cpu=200m at "add" for the first ones, and
// "room 500" is how much CPU there is. "halt" and "start" are the halves of "restart"; "slow METHOD 10s" is what it says.
func (n *node) do(line string) {
	word := strings.Fields(line)
	switch word[0] {
	case "add", "edit":
		p := n.pod(word[1], word[2:])
		n.pods[word[1]] = p
		n.judge.wanted(p)
		if ofServer(p) {
			n.api.put(p)
		} else {
			n.send()
		}
	case "remove":
		if p := n.pods[word[1]]; ofServer(p) {
			n.api.drop(p.Name)
		}
		delete(n.pods, word[1])
		n.send()
	case "delete":
		grace, _ := strconv.ParseInt(strings.TrimPrefix(word[2], "grace="), 10, 64)
		n.api.change(word[1], func(p *v1.Pod) {
			if p.DeletionTimestamp == nil || grace < *p.DeletionGracePeriodSeconds {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(n.ahead+time.Duration(grace)*time.Second))), &grace
			}
		})
	case "write":
		n.api.change(word[1], func(p *v1.Pod) {
			p.Status.Phase, p.Status.Reason = v1.PodPhase(word[2]), strings.Join(word[3:], " ")
		})
	case "condition":
		n.api.change(word[1], func(p *v1.Pod) {
			p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return string(c.Type) == word[2] })
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodConditionType(word[2]), Status: v1.ConditionStatus(word[3])})
		})
	case "server":
		n.api.reach(word[1] == "back")
	case "exit":
		name, container, _ := strings.Cut(word[1], "/")
		code, _ := strconv.Atoi(word[2])
		if err := n.engine.Exit(n.engine.Newest(n.pods[name].UID, container), int32(code)); err != nil {
			n.t.Fatal(err)
		}
	case "sandbox":
		pods, _ := n.engine.ListSandboxes(context.Background(), runtime.Filter{Pod: n.pods[word[1]].UID, OnlyAlive: true})
		n.engine.EndSandbox(pods[0].ID)
	case "advance":
		d, err := time.ParseDuration(word[1])
		if err != nil {
			n.t.Fatal(err)
		}
		time.Sleep(d)
	case "kill":
		how := runtime.Termination{Reason: word[2], Grace: time.Second}
		if err := n.roster.Kill(n.t.Context(), n.pods[word[1]].UID, how); err != nil {
			n.t.Error(err)
		}
		n.marks = append(n.marks, "-- "+word[1]+" is killed --")
	case "restart":
		n.stop()
		n.marks = append(n.marks, "-- another agent --")
		n.start()
	case "halt":
		n.stop()
		n.marks = append(n.marks, "-- no agent --")
	case "start":
		n.marks = append(n.marks, "-- another agent --")
		n.start()
	case "reboot":
		n.stop()
		n.engine.Reboot()
		n.marks = append(n.marks, "-- another boot --")
		n.start()
	case "refuse":
		r := &runtime.Rejection{Reason: word[2], Message: "no room"}
		if len(word) > 3 {
			r.Instead = []types.UID{n.pods[word[5]].UID}
		}
		n.refuse[word[1]] = r
	case "room":
		n.room, _ = strconv.ParseInt(word[1], 10, 64)
	case "resize":
		n.resize(word[1], word[2])
	case "early":
		n.early = word[1] == "on"
		n.send()
	case "down":
		n.engine.Inject(word[1], runtimetest.Fail(runtime.ErrUnavailable))
	case "up":
		n.engine.Inject(word[1], nil)
	case "slow":
		d, err := time.ParseDuration(word[2])
		if err != nil {
			n.t.Fatal(err)
		}
		n.engine.Inject(word[1], runtimetest.Delay(d))
	case "object":
		n.marks = append(n.marks, "the server has "+n.api.show(word[1]))
	default:
		n.t.Fatalf("unknown step %q", line)
	}
}

func (n *node) pod(name string, words []string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-1"), Annotations: map[string]string{podspec.SourceAnnotation: "file"}}}
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		key, isInit := strings.CutPrefix(key, "init:")
		switch key {
		case "policy":
			p.Spec.RestartPolicy = v1.RestartPolicy(value)
		case "grace":
			g, _ := strconv.ParseInt(value, 10, 64)
			p.Spec.TerminationGracePeriodSeconds = &g
		case "uid":
			p.UID = types.UID(value)
		case "deadline":
			d, _ := strconv.ParseInt(value, 10, 64)
			p.Spec.ActiveDeadlineSeconds = &d
		case "source":
			p.Annotations[podspec.SourceAnnotation] = value
		case "priority":
			number, _ := strconv.ParseInt(value, 10, 32)
			p.Spec.Priority = new(int32(number))
		case "cpu", "restarts":
			defer n.size(p, key, value)
		case "gate":
			p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, v1.PodReadinessGate{ConditionType: v1.PodConditionType(value)})
		default:
			key, isSidecar := strings.CutPrefix(key, "sidecar:")
			c := v1.Container{Name: key, Image: "img", Command: []string{"/bin/sh", "-c", strings.ReplaceAll(value, "_", " ")}}
			if isSidecar {
				c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			}
			if isInit || isSidecar {
				p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			} else {
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		}
	}
	return p
}
