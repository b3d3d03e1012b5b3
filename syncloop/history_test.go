package syncloop_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var (
	seed      = flag.Uint64("seed", 0, "play this one history and write down what was done; 0: several")
	histories = flag.Int("histories", 300, "how many histories to play")
)

// TestHistories plays random histories of a node. Pods come from files and from a server that is not always there, change,
// are resized on a node that is short of CPU, are deleted with one grace and then another, killed, taken away by force, get
// successors of their names, are written over by others. Containers and sandboxes die. Calls of the engine are slow, fail,
// hang, their answers are lost; events of it are lost, late and doubled; its clock and the server's are set; agents are
// killed, machines started again. While it goes on the judge finds fault with what must never be. Once the world is quiet,
// what is wanted runs as it was promised, everybody knows how it is, and nothing else is left.
func TestHistories(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for i := range *histories {
			seeds = append(seeds, uint64(i+1))
		}
	}
	for _, s := range seeds {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			t.Parallel()
			playSeed(t, s)
		})
	}
}

// A history that went wrong can be looked at as often as it takes.
func TestAHistoryIsPlayedAgainAsItWas(t *testing.T) {
	for s := uint64(1); s <= 6; s++ {
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			t.Parallel()
			first, second := playSeed(t, s), playSeed(t, s)
			for i := range min(len(first), len(second)) {
				if first[i] != second[i] {
					t.Fatalf("once\n%s\nand once\n%s", strings.Join(first[max(0, i-5):i+1], "\n"), strings.Join(second[max(0, i-5):i+1], "\n"))
				}
			}
			if len(first) != len(second) {
				t.Errorf("%d things were done and asked, then %d", len(first), len(second))
			}
		})
	}
}

// playSeed plays one history and returns what was done and asked, with when.
func playSeed(t *testing.T, number uint64) (all []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, number)
		h.play()
		h.mu.Lock()
		defer h.mu.Unlock()
		trace := slices.Sorted(slices.Values(h.trace)) // times have one width; what happens at one moment has no order
		h.disorder.mu.Lock()
		defer h.disorder.mu.Unlock()
		all = slices.Sorted(slices.Values(slices.Concat(trace, h.disorder.asked)))
		if t.Failed() || *seed != 0 {
			t.Logf("played again with -run TestHistories -seed %d; what was done:\n%s", number, strings.Join(trace, "\n"))
		}
	})
	return all
}

// history is a node to which things happen.
type history struct {
	*node
	disorder *disorder
	r        *rand.Rand
	volumes  *volumes
	withPleg bool
	uids     int
	later    []types.UID // missing from a set that was not complete
}

func withPleg(seed uint64) bool { return seed%2 == 0 }

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	d := &disorder{seed: seed, began: time.Now()}
	h := &history{
		node: newNode(t), disorder: d, r: rand.New(rand.NewPCG(seed, 1)), withPleg: withPleg(seed),
		volumes: &volumes{disorder: d, held: map[types.UID]bool{}},
	}
	n := h.node
	n.room, n.state, n.tune, n.clock = 1000, t.TempDir(), h.tune, d.clock
	n.notifier, n.judge = lossy{n.engine, d, "loop"}, newJudge(n)
	n.done = func(pod *v1.Pod) { n.judge.finished(pod, h.volumes.holds(pod.UID)) }
	n.engine.Inject("", d.suffer)
	return h
}

// fault fails the test, with what was seen.
func (n *node) fault(format string, args ...any) {
	n.t.Helper()
	n.t.Errorf("after %v: "+format, append([]any{time.Since(n.began)}, args...)...)
}

// act is something that happens, to a pod of a file and one of the server in most cases.
type act func(h *history, file, served string)

func (h *history) play() {
	h.start()
	synctest.Wait() // the first act comes after the start
	acts := []act{
		addFile, addFile, addServed, addServed, addServed, addServed, removeFile, removeServed, deleteServed, deleteServed, deleteServed,
		exit, exit, endSandbox, killServed, resizeServed, resizeServed, resizeServed, writePhase, writeCondition, reach, reach, early,
		setClocks, loseEvents, accident, accident, accident, restart, restart, reboot, sleep, sleep, sleep, sleep, sleep,
	}
	for range 70 {
		file, served := []string{"a", "b"}[h.r.IntN(2)], []string{"p", "q", "r", "s"}[h.r.IntN(4)]
		acts[h.r.IntN(len(acts))](h, file, served)
		time.Sleep(1 + time.Duration(h.r.Int64N(int64(5*time.Millisecond)))) // others are in the middle of something
		h.notTooMuch()
		h.noTwins()
		if h.t.Failed() {
			break
		}
	}
	if !h.t.Failed() {
		h.rest()
	}
	h.stop()
	h.killers.Wait()
}

// rest has nothing happen any more, and looks what comes of it.
func (h *history) rest() {
	h.disorder.happen(nil, 0)
	h.disorder.loseEvents(false)
	h.do("server back")
	if h.early {
		early(h, "", "")
	}
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	h.notTooMuch()
	h.noTwins()
	h.asWanted()
	h.asServed()
	h.asPromised()
}

// mark writes down that something happened.
func (h *history) mark(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note("-- " + fmt.Sprintf(format, args...) + " --")
}

// does is do, written down.
func (h *history) does(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	h.mark("%s", line)
	h.do(line)
}

// add has a pod take the place of the one of its name.
func (h *history) add(name, words string) {
	if p := h.pods[name]; p != nil {
		h.judge.unwanted(p.UID, 0, false)
	}
	for _, uid := range h.later { // a newer version is enough
		if strings.HasPrefix(string(uid), name) {
			h.judge.unwanted(uid, 0, false)
		}
	}
	h.uids++
	h.does("add %s uid=%s-%d%s", name, name, h.uids, words)
}

// gone notes that the pod of that name is wanted no more, as soon as its source is sure of that.
func (h *history) gone(name string) {
	p := h.pods[name]
	switch {
	case p == nil:
	case h.early && !ofServer(p):
		h.later = append(h.later, p.UID)
	default:
		h.judge.unwanted(p.UID, 0, false)
	}
}

func addFile(h *history, file, _ string) {
	h.add(file, fmt.Sprintf(" side=sleep_9999 grace=%d", h.r.IntN(8))+words(h.r, "app=sleep_9999", "app=sleep_30;_exit_1", "app=exit_1"))
}

func addServed(h *history, _, served string) {
	r := h.r
	h.add(served, " source=api"+words(r, "", "init:first=sleep_1", "sidecar:log=sleep_9999 init:first=exit_0", "init:first=exit_0 sidecar:log=trap_'exit_0'_TERM;_sleep_9999 init:second=sleep_3")+
		words(r, "app=sleep_9999", "app=sleep_30;_exit_1", "app=exit_1", "app=sleep_20", "app=trap_'exit_0'_TERM;_sleep_9999")+
		words(r, "", "", "side=sleep_9999", "side=sleep_50;_exit_1")+words(r, "policy=Always", "policy=Always", "policy=OnFailure", "policy=Never")+
		fmt.Sprintf(" grace=%d cpu=%dm", r.IntN(8), 1+r.IntN(250))+words(r, "", "", "restarts=yes")+words(r, "", "", "", fmt.Sprint("deadline=", 1+r.IntN(60))))
}

func removeFile(h *history, file, _ string) {
	h.gone(file)
	h.does("remove %s", file)
}

func removeServed(h *history, _, served string) {
	h.gone(served)
	h.does("remove %s", served)
}

func deleteServed(h *history, _, served string) {
	if p := h.pods[served]; p != nil {
		grace := h.r.IntN(20)
		h.judge.unwanted(p.UID, max(time.Duration(grace)*time.Second, time.Nanosecond), false)
		h.does("delete %s grace=%d", served, grace)
	}
}

func exit(h *history, file, served string) {
	p := h.pods[[]string{file, served, served}[h.r.IntN(3)]]
	if p == nil {
		return
	}
	c := []string{"app", "side", "log", "first"}[h.r.IntN(4)]
	code := h.r.IntN(2)
	if id := h.engine.Newest(p.UID, c); h.engine.Exit(id, int32(code)) == nil { // else it does not exist: no matter
		h.mark("%s of %s exits with %d", c, p.UID, code)
	}
}

func endSandbox(h *history, file, served string) {
	p := h.pods[[]string{file, served}[h.r.IntN(2)]]
	sandboxes, _ := h.engine.Truth()
	for _, s := range sandboxes {
		if p != nil && s.UID == p.UID && s.Ready {
			h.mark("sandbox %d of %s ends", s.Attempt, p.UID)
			h.engine.EndSandbox(s.ID)
		}
	}
}

func killServed(h *history, _, served string) {
	p := h.pods[served]
	if p == nil || !slices.ContainsFunc(h.roster.Pods(), func(known *v1.Pod) bool { return known.UID == p.UID }) {
		return
	}
	how := runtime.Termination{Reason: []string{"Evicted", "Preempting"}[h.r.IntN(2)], Grace: time.Duration(h.r.IntN(10)) * time.Second}
	h.mark("%s is killed: %s within %v", p.UID, how.Reason, how.Grace)
	h.judge.unwanted(p.UID, how.Grace, true)
	h.judge.killed(p.UID, how.Reason)
	roster, patience := h.roster, time.Duration(h.r.Int64N(int64(time.Minute)))
	h.killers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = roster.Kill(ctx, p.UID, how) // it may be gone
	})
}

func resizeServed(h *history, _, served string) {
	p := h.pods[served]
	if p == nil {
		return
	}
	h.judge.resized(p.UID)
	h.does("resize %s %s=%dm", served, []string{"app", "side"}[h.r.IntN(2)], 1+h.r.IntN(500))
}

func writePhase(h *history, _, served string) {
	phase := []v1.PodPhase{v1.PodFailed, v1.PodPending, v1.PodRunning, v1.PodSucceeded}[h.r.IntN(4)]
	p := h.pods[served]
	if p == nil {
		return
	}
	if over(phase) {
		h.judge.unwanted(p.UID, 0, false)
	}
	h.mark("somebody writes that %s is %s", served, phase)
	h.api.change(served, func(p *v1.Pod) {
		if !over(p.Status.Phase) {
			p.Status.Phase = phase
		}
	})
}

func over(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

func writeCondition(h *history, _, served string) { h.does("condition %s other True", served) }

func reach(h *history, _, _ string) { h.does("server %s", []string{"away", "back"}[h.r.IntN(2)]) }

func early(h *history, _, _ string) {
	if !h.early {
		h.does("early on")
		return
	}
	for _, uid := range h.later {
		h.judge.unwanted(uid, 0, false)
	}
	h.later = nil
	h.does("early off")
}

func setClocks(h *history, _, _ string) {
	engine := time.Duration(h.r.IntN(6*3600)-3*3600) * time.Second
	h.ahead = time.Duration(h.r.IntN(6*3600)-3*3600) * time.Second
	h.mark("the engine's clock is wrong by %v, the server's by %v", engine, h.ahead)
	h.disorder.setClock(engine)
}

func loseEvents(h *history, _, _ string) {
	yes := h.r.IntN(3) > 0
	h.mark("events are lost: %v", yes)
	h.disorder.loseEvents(yes)
}

func accident(h *history, _, _ string) {
	which, within := h.r.IntN(len(faults)), time.Duration(h.r.Int64N(int64(10*time.Second)))
	h.mark("accident number %d, for %v", which, within)
	h.disorder.happen(faults[which], within)
}

func restart(h *history, _, _ string) {
	h.judge.newAgent()
	h.does("restart")
}

func reboot(h *history, _, _ string) {
	if h.r.IntN(3) == 0 {
		h.judge.newAgent()
		h.does("reboot")
	}
}

func sleep(h *history, _, _ string) { time.Sleep(time.Duration(h.r.Int64N(int64(40 * time.Second)))) }

// noTwins checks that of pods of files never two of one name run together.
func (h *history) noTwins() {
	h.t.Helper()
	_, containers := h.engine.Truth()
	byName := map[string]types.UID{}
	for _, c := range containers {
		if c.State != runtime.Running || len(c.Pod.Name) != 1 || c.Pod.Name > "b" {
			continue
		}
		if other, ok := byName[c.Pod.Name]; ok && other != c.Pod.UID {
			h.fault("pods %s and %s of one name run together", other, c.Pod.UID)
		}
		byName[c.Pod.Name] = c.Pod.UID
	}
}

// asWanted checks what must hold of pods of files once the world is quiet, and that nothing is left of others.
func (h *history) asWanted() {
	h.t.Helper()
	sandboxes, containers := h.engine.Truth()
	wanted := map[types.UID]bool{}
	for _, p := range h.api.all() {
		wanted[p.UID] = true
	}
	for _, p := range h.pods {
		if ofServer(p) {
			continue
		}
		wanted[p.UID] = true
		ready := slices.DeleteFunc(slices.Clone(sandboxes), func(s runtime.Sandbox) bool { return s.UID != p.UID || !s.Ready })
		if len(ready) != 1 {
			h.fault("pod %s has %d ready sandboxes", p.UID, len(ready))
		}
		if !h.running(p.UID, "side") {
			h.fault("pod %s: side does not run", p.UID)
		}
		h.mu.Lock()
		if st := h.status[p.Name]; !strings.Contains(st, string(v1.PodRunning)) {
			h.fault("pod %s is told as %q", p.UID, st)
		}
		h.mu.Unlock()
	}
	for _, s := range sandboxes {
		if !wanted[s.UID] {
			h.fault("left over: sandbox of %s", s.UID)
		}
	}
	for _, c := range containers {
		if !wanted[c.Pod.UID] {
			h.fault("left over: container %s of %s", c.Name, c.Pod.UID)
		}
	}
}

// running says that a container of that name runs, or any if it is empty.
func (h *history) running(uid types.UID, name string) bool {
	_, containers := h.engine.Truth()
	return slices.ContainsFunc(containers, func(c runtime.Container) bool {
		return c.Pod.UID == uid && c.State == runtime.Running && (name == "" || c.Name == name)
	})
}

// asServed checks what must hold of a server's pods once the world is quiet.
func (h *history) asServed() {
	h.t.Helper()
	for _, p := range h.api.all() {
		h.mu.Lock()
		wasOver := h.over[p.UID]
		h.mu.Unlock()
		switch {
		case p.DeletionTimestamp != nil:
			h.fault("pod %s is still there, %s", p.UID, h.api.show(p.Name))
		case over(p.Status.Phase) && h.running(p.UID, ""):
			h.fault("pod %s is over, and a container of it runs", p.UID)
		case over(p.Status.Phase):
		case wasOver:
			h.fault("pod %s was over and is %s", p.UID, p.Status.Phase)
		case p.Spec.ActiveDeadlineSeconds != nil:
			h.fault("pod %s is past its deadline: %s", p.UID, h.api.show(p.Name))
		default:
			h.lives(p)
		}
		if !over(p.Status.Phase) && h.volumes.holds(p.UID) != (p.DeletionTimestamp == nil) {
			h.fault("pod %s has its volumes: %v", p.UID, h.volumes.holds(p.UID))
		}
	}
}

// lives checks a pod that is not over.
func (h *history) lives(p *v1.Pod) {
	h.t.Helper()
	ends := p.Spec.RestartPolicy == v1.RestartPolicyNever
	for _, c := range p.Spec.Containers {
		lasts := strings.HasSuffix(c.Command[2], "sleep 9999")
		ends = ends && !lasts
		if lasts && p.Spec.RestartPolicy == v1.RestartPolicyAlways && !h.running(p.UID, c.Name) {
			h.fault("%s of %s does not run: %s", c.Name, p.UID, h.api.show(p.Name))
		}
	}
	sandboxes, containers := h.engine.Truth()
	serves := slices.ContainsFunc(sandboxes, func(s runtime.Sandbox) bool { return s.UID == p.UID && s.Ready })
	begun := slices.ContainsFunc(containers, func(c runtime.Container) bool { return c.Pod.UID == p.UID })
	if ends && (serves || !begun) { // one whose sandbox died before all had begun stays as it is, as with the kubelet
		h.fault("pod %s never restarts and must be over by now: %s", p.UID, h.api.show(p.Name))
	}
	for i, c := range p.Spec.Containers {
		if lasts := strings.HasSuffix(c.Command[2], "sleep 9999"); !lasts || i >= len(p.Status.ContainerStatuses) {
			continue
		}
		at := slices.IndexFunc(p.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.Name == c.Name })
		if told := p.Status.ContainerStatuses[at].State.Running != nil; told != h.running(p.UID, c.Name) {
			h.fault("%s of %s: told as running: %v, and that is not so", c.Name, p.UID, told)
		}
	}
}
