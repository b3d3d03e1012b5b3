package cgroups

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/internal/podsizes"
	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/bed"
)

var (
	seeds = flag.Int("kill-seeds", 2, "how many histories of killed agents to play")
	first = flag.Int("kill-seed", 0, "the first of them")
)

// The agent is killed at any instant while pods are created, resized and deleted. What was promised to a pod is never taken
// back for something older, each pod ends up with what it was promised last, a container that is resized in place is never
// restarted, another once for each size at most, and at the end no cgroup is left.
func TestKilledWhilePodsAreResized(t *testing.T) {
	b := bed.ForTest(t)
	for seed := *first; seed < *first+*seeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			h := &history{node: newNode(t, b, "--pod-max-pids=100", "--sync-frequency=2s"), r: rand.New(rand.NewPCG(uint64(seed), 8))}
			for range 4 {
				h.life()
			}
			h.Start()
			h.settled()
			h.deleted()
		})
	}
}

// history is what happens to some pods.
type history struct {
	*node

	r    *rand.Rand
	pods []*resized
}

// resized is a pod whose container gets other sizes.
type resized struct {
	*v1.Pod

	anew     bool           // its container is restarted for another limit of memory
	step     int            // of the sizes that were asked for last
	promised int            // the step that was last found to be promised
	lives    map[string]int // the step of each container that has run, by ID
}

// stepSizes are the sizes of a step. They go up and down, and no two are alike.
func stepSizes(n int) v1.ResourceRequirements {
	memory := 32 + n
	if n%3 == 2 {
		memory = 32 - n
	}
	return sizes(fmt.Sprintf("cpu=%dm cpu<%dm memory=8Mi memory<%dMi", 10+n, 100+10*((n*3)%7), memory))
}

// of is the step that sizes belong to.
func (p *resized) of(memory int64) int {
	for n := range 20 {
		if q := stepSizes(n).Limits[v1.ResourceMemory]; q.Value() == memory {
			return n
		}
	}
	return -1
}

// life is that of one agent, in which pods come and are resized.
func (h *history) life() {
	h.t.Helper()
	h.Start()
	until := time.Now().Add(time.Duration(100+h.r.IntN(1900)) * time.Millisecond)
	for range 1 + h.r.IntN(4) {
		time.Sleep(min(time.Duration(h.r.IntN(500))*time.Millisecond, time.Until(until)))
		if len(h.pods) < 4 && (len(h.pods) == 0 || h.r.IntN(2) == 0) {
			h.comes()
			continue
		}
		h.resize(h.pods[h.r.IntN(len(h.pods))])
	}
	time.Sleep(time.Until(until))
	h.Kill()
	h.promises()
}

func (h *history) comes() {
	p := podOf(fmt.Sprint("p", len(h.pods)), "")
	c := &p.Spec.Containers[0]
	c.Resources = stepSizes(0)
	anew := len(h.pods)%2 == 1
	policy := v1.NotRequired
	if anew {
		policy = v1.RestartContainer
	}
	c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired}, {ResourceName: v1.ResourceMemory, RestartPolicy: policy}}
	h.pods = append(h.pods, &resized{Pod: h.create(p), anew: anew, lives: map[string]int{}})
}

// resize asks for the next sizes of a pod.
func (h *history) resize(p *resized) {
	h.t.Helper()
	p.step++
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"generation": p.step + 1},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c1", "resources": stepSizes(p.step)}}},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.client.CoreV1().Pods(p.Namespace).Patch(h.t.Context(), p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// promises looks, while no agent runs, whether what pods were promised has gone back, and at what their containers have.
func (h *history) promises() {
	h.t.Helper()
	store := podsizes.NewStore(filepath.Join(h.Root, "allocated_pods_state"), checkpoint.Write, func(err error) { h.t.Errorf("what was promised is lost: %v", err) })
	for _, p := range h.pods {
		was, known := store.Get(p.UID)
		limits := was.Containers["c1"].Limits
		if !known {
			if p.promised > 0 {
				h.t.Errorf("%s was promised step %d, and nothing is known of it", p.Name, p.promised)
			}
		} else if now := p.of(limits.Memory().Value()); now < p.promised || now > p.step {
			h.t.Errorf("%s was promised step %d, now %d of %d", p.Name, p.promised, now, p.step)
		} else {
			p.promised = now
		}
		h.look(p)
	}
}

// look notes the containers of a pod.
func (h *history) look(p *resized) {
	h.t.Helper()
	for id, c := range h.instances(p.Pod) {
		if c.GetStartedAt() == 0 {
			continue // nobody came to start it
		}
		step := p.of(c.GetResources().GetLinux().GetMemoryLimitInBytes())
		if was, known := p.lives[id]; known && p.anew && was != step {
			h.t.Errorf("%s: a container of step %d has step %d now, in place", p.Name, was, step)
		}
		p.lives[id] = step
	}
}

// settled waits until all pods have what was asked for last, and judges their history.
func (h *history) settled() {
	h.t.Helper()
	took := agent.Eventually(h.t, patience, "all pods have the sizes asked for last", func() error {
		for _, p := range h.pods {
			is := h.now(p.Pod)
			if !agent.PodReady(is) {
				return fmt.Errorf("%s is not ready: %s", p.Name, brief(is))
			}
			if err := h.sized(p, is); err != nil {
				return fmt.Errorf("%s, step %d: %w; %s", p.Name, p.step, err, brief(is))
			}
		}
		return nil
	})
	h.t.Logf("%d pods have their sizes after %v", len(h.pods), took.Round(time.Millisecond))
	h.promises()
	for _, p := range h.pods {
		if p.promised != p.step {
			h.t.Errorf("%s has step %d, and was promised %d", p.Name, p.step, p.promised)
		}
		seen := map[int]string{}
		for id, step := range p.lives {
			if other, twice := seen[step]; twice {
				h.t.Errorf("%s: %s and %s both have step %d", p.Name, id, other, step)
			}
			seen[step] = id
		}
		if !p.anew && len(p.lives) != 1 {
			h.t.Errorf("%s is resized in place, and has run as %v", p.Name, p.lives)
		}
	}
}

// sized compares what the kernel, the runtime and the cluster say of a pod with what was asked for.
func (h *history) sized(p *resized, is *v1.Pod) error {
	want := stepSizes(p.step)
	text := fmt.Sprintf("shares %d quota %d memory %d pids ", want.Requests.Cpu().MilliValue()*1024/1000, want.Limits.Cpu().MilliValue()*100, want.Limits.Memory().Value())
	if got := say(h.of(is)); got != text+"100" {
		return fmt.Errorf("the pod has %s, want %s", got, text)
	}
	running := ""
	for id, c := range h.instances(p.Pod) {
		if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			if running != "" {
				return fmt.Errorf("%s and %s run", running, id)
			}
			running = id
		}
	}
	if got := say(h.of(is) + "/" + running); !strings.HasPrefix(got, text) {
		return fmt.Errorf("the container has %s, want %s", got, text)
	}
	told := is.Status.ContainerStatuses[0]
	if told.Resources == nil || !told.Resources.Limits.Memory().Equal(*want.Limits.Memory()) || !told.Resources.Requests.Cpu().Equal(*want.Requests.Cpu()) {
		return fmt.Errorf("its status has %+v", told.Resources)
	}
	return nil
}

func brief(p *v1.Pod) string {
	text, _ := json.Marshal(map[string]any{"phase": p.Status.Phase, "conditions": p.Status.Conditions, "containers": p.Status.ContainerStatuses}) // cannot fail
	return string(text)
}

// deleted deletes the pods, with another kill on the way, and looks for what is left.
func (h *history) deleted() {
	h.t.Helper()
	var all []*v1.Pod
	for _, p := range h.pods {
		h.api.Delete(p.Pod)
		all = append(all, p.Pod)
	}
	time.Sleep(time.Duration(h.r.IntN(1500)) * time.Millisecond)
	h.Kill()
	h.Start()
	h.end(all...)
	h.bare()
}
