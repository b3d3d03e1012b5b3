package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FakesConfig describes what [Fakes] measures. Self, Kubelet and NodeAgent are required.
type FakesConfig struct {
	Self      string // a program whose command "serve -socket S -api A" calls [Serve]
	Kubelet   string // file of upstream's kubelet
	NodeAgent string // file of examples/nodeagent

	Pods    []int         // on a node; nil means 100, 500 and 1000
	Restart int           // with how many pods the agent is killed and started again; 0 means 500
	Rounds  int           // 0 means 1
	Span    time.Duration // of steady state, and of pods that come and go; 0 means 20 seconds
	Member  bool          // with the API server in memory; otherwise with manifests in a directory
	Agents  []string      // whose figures are wanted; nil means those of both
	Steps   []string      // of fill, rest, summary, churn and restart; nil means all
	Profile string        // directory for CPU profiles of pods that come and go, for go tool pprof; empty: none
	Log     io.Writer     // gets a line for each step; nil: nothing is said
}

func (c FakesConfig) withDefaults() (FakesConfig, error) {
	if c.Self == "" || c.Kubelet == "" || c.NodeAgent == "" {
		return c, errors.New("bench: Self, Kubelet and NodeAgent are required")
	}
	if c.Pods == nil {
		c.Pods = []int{100, 500, 1000}
	}
	if c.Restart == 0 {
		c.Restart = 500
	}
	if c.Agents == nil {
		c.Agents = []string{Kubelet, NodeAgent}
	}
	c.Rounds = max(c.Rounds, 1)
	if c.Span == 0 {
		c.Span = 20 * time.Second
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	return c, nil
}

// Fakes measures both agents on a container runtime in memory. A figure that could not be had says why, and does not keep
// the others; an error means that nothing could be measured.
func Fakes(ctx context.Context, cfg FakesConfig) ([]*Table, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	where := "pods of manifests in a directory"
	if cfg.Member {
		where = "pods of an API server in memory"
	}
	var tables []*Table
	for _, pods := range cfg.Pods {
		t := &Table{Title: fmt.Sprintf("%d %s, on a container runtime in memory", pods, where)}
		for round := range cfg.Rounds {
			for _, agent := range turns(cfg.Agents, round) {
				if err := cfg.measure(ctx, t, agent, pods); err != nil {
					if ctx.Err() != nil {
						return nil, ctx.Err()
					}
					fmt.Fprintf(cfg.Log, "bench: %s with %d pods: %v\n", agent, pods, err)
					t.Miss(agent, "all figures that are not here", "", err.Error())
				}
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// turns are the agents in the order of a round: whoever was second is first the next time.
func turns(agents []string, round int) []string {
	agents = slices.Clone(agents)
	if round%2 == 1 {
		slices.Reverse(agents)
	}
	return agents
}

// run is one agent's turn.
type run struct {
	*stage

	table *Table
	pods  int
	span  time.Duration
	files string // for profiles; empty: none
	cri   cri.RuntimeServiceClient
}

func (c FakesConfig) measure(ctx context.Context, t *Table, agent string, pods int) error {
	program := map[string]string{Kubelet: c.Kubelet, NodeAgent: c.NodeAgent}[agent]
	s, err := setUp(ctx, c.Self, agent, program, c.Member)
	if s != nil {
		defer s.tearDown()
	}
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(s.dir, "cri.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := s.start(ctx); err != nil {
		return err
	}
	r := &run{stage: s, table: t, pods: pods, span: c.Span, files: c.Profile, cri: cri.NewRuntimeServiceClient(conn)}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{{"fill", r.fill}, {"rest", r.rest}, {"summary", r.summary}, {"churn", r.churn}, {"restart", r.restart}}
	if pods != c.Restart {
		steps = steps[:4]
	}
	for _, step := range steps {
		if c.Steps != nil && !slices.Contains(c.Steps, step.name) {
			continue
		}
		fmt.Fprintf(c.Log, "bench: %s, %d pods: %s\n", agent, pods, step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (r *run) add(name, unit string, value float64) { r.table.Add(r.agent, name, unit, value) }

// patience is how long a number of pods may take.
func (r *run) patience() time.Duration {
	return time.Minute + time.Duration(r.pods)*400*time.Millisecond
}

// fill starts all pods.
func (r *run) fill(ctx context.Context) error {
	time.Sleep(r.span / 4) // the agent comes to rest
	empty, err := r.now.usage()
	if err != nil {
		return err
	}
	begun := time.Now()
	for i := range r.pods {
		if err := r.create(ctx, fmt.Sprint("pod-", i)); err != nil {
			return err
		}
	}
	if err := r.allRun(ctx); err != nil {
		return err
	}
	running := time.Since(begun)
	if err := r.allReady(ctx); err != nil {
		return err
	}
	ready := time.Since(begun)
	full, err := r.now.usage()
	if err != nil {
		return err
	}
	r.add("RSS without pods", "MB", empty.rss)
	r.add("until all run", "s", running.Seconds())
	r.add("until all are told to be ready", "s", ready.Seconds())
	r.add("CPU for each pod", "ms", (full.cpu-empty.cpu).Seconds()*1000/float64(r.pods))
	return nil
}

// allRun waits until all containers run.
func (r *run) allRun(ctx context.Context) error {
	return until(ctx, r.patience(), func() error {
		if err := r.now.runs(); err != nil {
			return final{err}
		}
		all, err := r.running(ctx)
		if err == nil && len(all) < r.pods {
			err = fmt.Errorf("%d of %d containers run", len(all), r.pods)
		}
		return err
	})
}

func (r *run) allReady(ctx context.Context) error {
	return until(ctx, r.patience(), func() error {
		count, err := r.ready(ctx)
		if err == nil && count < r.pods {
			time.Sleep(200 * time.Millisecond) // the question is not for nothing
			err = fmt.Errorf("%d of %d pods are told to be ready", count, r.pods)
		}
		return err
	})
}

func (r *run) running(ctx context.Context) ([]*cri.Container, error) {
	time.Sleep(100 * time.Millisecond) // the question is not for nothing
	list, err := r.cri.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	return list.GetContainers(), err
}

// rest looks at an agent that has nothing to do.
func (r *run) rest(ctx context.Context) error {
	if err := r.quiet(ctx); err != nil {
		return err
	}
	var asked [2]float64
	before, err := r.now.usage()
	if err != nil {
		return err
	}
	if r.api != "" {
		if asked[0], err = r.requests(ctx); err != nil {
			return err
		}
	}
	time.Sleep(r.span)
	after, err := r.now.usage()
	if err != nil {
		return err
	}
	r.add("at rest: CPU", "% of a core", 100*(after.cpu-before.cpu).Seconds()/r.span.Seconds())
	r.add("at rest: RSS", "MB", after.rss)
	const name, unit = "at rest: API requests", "a minute"
	if r.api == "" {
		r.table.Miss(r.agent, name, unit, "there is no API server")
		return nil
	}
	if asked[1], err = r.requests(ctx); err != nil {
		return err
	}
	r.add(name, unit, (asked[1]-asked[0])/r.span.Minutes())
	return nil
}

// quiet waits until what follows from the start of pods is over: the agent asks the API server next to nothing any more.
func (r *run) quiet(ctx context.Context) error {
	time.Sleep(r.span / 4)
	if r.api == "" {
		return nil
	}
	last, err := r.requests(ctx)
	if err != nil {
		return err
	}
	return until(ctx, r.patience(), func() error {
		time.Sleep(r.span / 10)
		now, err := r.requests(ctx)
		if more := now - last; err == nil && more > 5 {
			err = fmt.Errorf("%v requests in %v", more, r.span/10)
		}
		last = now
		return err
	})
}

// churnPerSecond is how many pods come and how many go.
const churnPerSecond = 5

// churn replaces the oldest pods by new ones.
func (r *run) churn(ctx context.Context) error {
	before, err := r.now.usage()
	if err != nil {
		return err
	}
	profiled := unwanted()
	if r.files != "" {
		profiled = r.profile(ctx, r.span, filepath.Join(r.files, fmt.Sprintf("%s-%d.pprof", r.agent, r.pods)))
	}
	asked, err := r.calls(ctx)
	if err != nil {
		return err
	}
	made := map[string]time.Time{}
	begun := time.Now()
	for i := range int(r.span.Seconds() * churnPerSecond) {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / churnPerSecond)))
		if err := r.remove(ctx, fmt.Sprint("pod-", i)); err != nil {
			return err
		}
		name := fmt.Sprint("pod-", r.pods+i)
		made[name] = time.Now()
		if err := r.create(ctx, name); err != nil {
			return err
		}
		if i+1 == r.pods {
			break // as often as there are old ones
		}
	}
	if err := until(ctx, r.patience(), func() error { return r.replaced(ctx, made) }); err != nil {
		return err
	}
	took := time.Since(begun)
	after, err := r.now.usage()
	if err != nil {
		return err
	}
	r.add("pods that come and go: CPU for each", "ms", (after.cpu-before.cpu).Seconds()*1000/float64(len(made)))
	if err := r.moreCalls(ctx, asked, len(made)); err != nil {
		return err
	}
	r.add("pods that come and go: until the last has", "s", took.Seconds())
	r.add("pods that come and go: RSS", "MB", after.rss)
	if err := <-profiled; err != nil {
		return err
	}
	return r.latencies(ctx, made)
}

// moreCalls adds how many calls of the runtime there were for each pod since so many were counted.
func (r *run) moreCalls(ctx context.Context, before float64, pods int) error {
	after, err := r.calls(ctx)
	if err != nil {
		return err
	}
	r.add("pods that come and go: calls of the runtime for each", "calls", (after-before)/float64(pods))
	return nil
}

// replaced says whether the new pods run and the old ones do not.
func (r *run) replaced(ctx context.Context, made map[string]time.Time) error {
	all, err := r.running(ctx)
	if err != nil {
		return err
	}
	fresh := 0
	for _, c := range all {
		if _, is := made[podOf(c.GetLabels())]; is {
			fresh++
		}
	}
	if fresh < len(made) || len(all) != r.pods {
		return fmt.Errorf("%d of %d new pods run, and %d of %d in all", fresh, len(made), len(all), r.pods)
	}
	return nil
}

// podOf is the name of a container's pod as it was created.
func podOf(labels map[string]string) string {
	name := labels["io.kubernetes.pod.name"]
	if len(name) > len(nodeName) && name[len(name)-len(nodeName)-1:] == "-"+nodeName {
		return name[:len(name)-len(nodeName)-1]
	}
	return name
}

// latencies tell how long it took from the creation of a pod to the start of its container.
func (r *run) latencies(ctx context.Context, made map[string]time.Time) error {
	all, err := r.running(ctx)
	if err != nil {
		return err
	}
	var took []float64
	for _, c := range all {
		at, is := made[podOf(c.GetLabels())]
		if !is {
			continue
		}
		s, err := r.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.GetId()})
		if err != nil {
			return err
		}
		took = append(took, time.Unix(0, s.GetStatus().GetStartedAt()).Sub(at).Seconds()*1000)
	}
	r.add("pods that come and go: from creation to started, p50", "ms", quantile(took, 0.5))
	r.add("pods that come and go: from creation to started, p99", "ms", quantile(took, 0.99))
	return nil
}

// restart kills the agent and starts it again.
func (r *run) restart(ctx context.Context) error {
	before, err := r.ids(ctx)
	if err != nil {
		return err
	}
	r.now.stop(syscall.SIGKILL)
	if err := r.start(ctx); err != nil {
		return err
	}
	const name, unit = "after a kill: until all are told to be ready", "s"
	if r.api != "" {
		r.table.Miss(r.agent, name, unit, "the API server has known it all the time")
	} else if err := r.allReady(ctx); err != nil {
		return err
	} else {
		r.add(name, unit, time.Since(r.started).Seconds())
	}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	u, err := r.now.usage()
	if err != nil {
		return err
	}
	after, err := r.ids(ctx)
	if err != nil {
		return err
	}
	changed := 0
	for id := range after {
		if !before[id] {
			changed++
		}
	}
	r.add("after a kill: CPU until it is at rest", "s", u.cpu.Seconds())
	r.add("after a kill: RSS", "MB", u.rss)
	r.add("after a kill: containers started again", "containers", float64(changed))
	return nil
}

func (r *run) ids(ctx context.Context) (map[string]bool, error) {
	all, err := r.running(ctx)
	ids := map[string]bool{}
	for _, c := range all {
		ids[c.GetId()] = true
	}
	return ids, err
}
