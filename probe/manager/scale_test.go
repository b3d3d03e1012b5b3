package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/grpcprobe"
	"github.com/kubeletkit/kubeletkit/probe/podprobe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

const (
	roleVariable  = "KUBELETKIT_PROBE_BENCH" // a load for an agent; anything else: targets
	benchPeriod   = 10 * time.Second
	benchSettling = benchPeriod + time.Second // until each probe has been asked once
	benchWindow   = 2 * benchPeriod
	perPod        = 10
)

// load is what an agent of BenchmarkScale has to do.
type load struct {
	Targets    targets
	Probes     int
	Kinds      []string
	Hanging    int  // of a hundred targets
	Goroutines bool // a goroutine for each probe in place of a Manager
}

// cost is what it took in the window. Lateness is of the probes whose targets answer.
type cost struct {
	Checks, Failed   int // of targets that answer
	Core             float64
	MiBPeak          float64
	LateP50, LateP99 float64 // ms
	TimerP99         float64 // ms by which a bare timer of the same process was late
	IdleP99          float64 // the same of a process that does nothing else, meanwhile
}

// BenchmarkScale has an agent in one process probe targets in another, each ten seconds; one operation is one such
// agent's half minute. It reports the agent's share of a core and memory, how late checks began, and, as failed, checks
// of healthy targets that did not succeed. What begins with "plain-" is another agent that does the same afterwards, with
// a goroutine for each probe that sleeps in between. On a machine that others use, everybody is late: how late a process
// was that only waits, next to each agent, is idle-p99-ms.
func BenchmarkScale(b *testing.B) {
	t := startTargets(b)
	httpAndTCP := []string{"http", "tcp"}
	for _, c := range []struct {
		name string
		load load
	}{
		{"http+tcp", load{Probes: 10000, Kinds: httpAndTCP}},
		{"http+tcp/hanging20%", load{Probes: 10000, Kinds: httpAndTCP, Hanging: 20}},
		{"http", load{Probes: 5000, Kinds: []string{"http"}}},
		{"tcp", load{Probes: 5000, Kinds: []string{"tcp"}}},
		{"grpc", load{Probes: 1000, Kinds: []string{"grpc"}}},
		{"exec", load{Probes: 1000, Kinds: []string{"exec"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.load.Targets = t
				plain := c.load
				plain.Goroutines = true
				b.ReportMetric(0, "ns/op")
				report(b, "", besideIdle(b, c.load))
				report(b, "plain-", besideIdle(b, plain))
			}
		})
	}
}

func report(b *testing.B, whose string, f cost) {
	b.Helper()
	b.ReportMetric(f.Core, whose+"cores")
	b.ReportMetric(f.Core*benchWindow.Seconds()/float64(max(f.Checks, 1))*1e6, whose+"cpu-µs/check")
	b.ReportMetric(f.MiBPeak, whose+"peak-MiB")
	b.ReportMetric(f.LateP50, whose+"late-p50-ms")
	b.ReportMetric(f.LateP99, whose+"late-p99-ms")
	b.ReportMetric(f.TimerP99, whose+"timer-p99-ms")
	b.ReportMetric(f.IdleP99, whose+"idle-p99-ms")
	b.ReportMetric(float64(f.Failed), whose+"failed")
	b.ReportMetric(float64(f.Checks)/benchWindow.Seconds(), whose+"checks/s")
}

// play is the life of another process.
func play(role string) int {
	var l load
	do := playTargets
	if json.Unmarshal([]byte(role), &l) == nil {
		do = l.play
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func another(ctx context.Context, role string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), roleVariable+"="+role)
	c.Stderr = os.Stderr
	return c
}

func startTargets(b *testing.B) (t targets) {
	b.Helper()
	c := another(b.Context(), "targets")
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = in.Close(), c.Wait() })
	if err := json.NewDecoder(out).Decode(&t); err != nil {
		b.Fatal(err)
	}
	return t
}

// besideIdle runs an agent, and a process that has nothing to do.
func besideIdle(b *testing.B, l load) (f cost) {
	b.Helper()
	var idle cost
	var wg sync.WaitGroup
	wg.Go(func() { idle = runAgent(b, load{Targets: l.Targets, Goroutines: true}) })
	f = runAgent(b, l)
	wg.Wait()
	f.IdleP99 = idle.TimerP99
	return f
}

func runAgent(b *testing.B, l load) (f cost) {
	b.Helper()
	role, err := json.Marshal(l)
	if err != nil {
		b.Fatal(err)
	}
	out, err := another(b.Context(), string(role)).Output()
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		b.Error(err)
	}
	return f
}

// play probes for a while and writes figures to standard output.
func (l load) play() error {
	r := &record{load: l, due: make([]time.Time, l.Probes)}
	ctx, stop := context.WithTimeout(context.Background(), benchSettling+benchWindow)
	defer stop()
	r.from = time.Now().Add(benchSettling)
	var before syscall.Rusage
	time.AfterFunc(benchSettling, func() { _ = syscall.Getrusage(syscall.RUSAGE_SELF, &before) })
	go r.timer()
	start := l.byManager
	if l.Goroutines {
		start = l.byGoroutines
	}
	if err := start(ctx, r); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r.cost(before))
}

// each begins to probe at even times within the first period.
func (l load) each(ctx context.Context, r *record, begin func(i int)) {
	for i := range l.Probes {
		r.due[i] = time.Now()
		begin(i)
		time.Sleep(time.Until(r.from.Add(-benchSettling + benchPeriod*time.Duration(i+1)/time.Duration(l.Probes))))
	}
	<-ctx.Done()
}

func (l load) byManager(ctx context.Context, r *record) error {
	engine, err := l.runtime()
	if err != nil {
		return err
	}
	var m *Manager
	cfg := Config{Exec: engine, GRPC: grpcprobe.Check}
	cfg.Check = func(ctx context.Context, t Target, p *v1.Probe) (probe.Result, string, error) {
		i, err := strconv.Atoi(t.ID)
		if err != nil {
			return probe.Unknown, "", err
		}
		return r.note(ctx, i, p, m.podprobeTarget(t, &t.Pod.Spec.Containers[i%perPod]))
	}
	if m, err = New(cfg); err != nil {
		return err
	}
	pods := l.pods()
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.Run(ctx) })
	l.each(ctx, r, func(i int) {
		p := pods[i/perPod]
		look := seen()
		look.UID = p.UID
		for j := i / perPod * perPod; j <= i; j++ {
			look.Containers = append(look.Containers, runtime.Container{ID: strconv.Itoa(j), Name: p.Spec.Containers[j%perPod].Name, State: runtime.Running, Started: r.due[j]})
		}
		m.Track(p, look, false)
	})
	wg.Wait()
	return nil
}

// byGoroutines is the plain way.
func (l load) byGoroutines(ctx context.Context, r *record) error {
	engine, err := l.runtime()
	if err != nil {
		return err
	}
	m, err := New(Config{Exec: engine, GRPC: grpcprobe.Check})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	l.each(ctx, r, func(i int) {
		p := l.probe(i)
		target := m.podprobeTarget(Target{}, &v1.Container{})
		wg.Go(func() {
			for at := r.due[i]; ctx.Err() == nil; at = at.Add(benchPeriod) {
				time.Sleep(time.Until(at))
				own, cancel := context.WithTimeout(ctx, podprobe.Timeout(p))
				_, _, _ = r.note(own, i, p, target)
				cancel()
			}
		})
	})
	return nil
}

func (l load) runtime() (*cri.Engine, error) {
	conn, err := cri.Dial("unix://" + l.Targets.Runtime)
	if err != nil {
		return nil, err
	}
	return cri.New(cri.Config{Runtime: conn})
}

// pods have perPod containers with a probe each.
func (l load) pods() []*v1.Pod {
	all := make([]*v1.Pod, l.Probes/perPod)
	for i := range all {
		all[i] = &v1.Pod{}
		all[i].UID, all[i].Name, all[i].Namespace = types.UID(strconv.Itoa(i)), "pod"+strconv.Itoa(i), "ns"
		for j := range perPod {
			c := v1.Container{Name: "c" + strconv.Itoa(j), ReadinessProbe: l.probe(i*perPod + j)}
			all[i].Spec.Containers = append(all[i].Spec.Containers, c)
		}
	}
	return all
}

func (l load) hangs(i int) bool { return i/len(l.Kinds)%100 < l.Hanging }

func (l load) probe(i int) *v1.Probe {
	p := &v1.Probe{PeriodSeconds: int32(benchPeriod / time.Second)}
	t := l.Targets
	web, tcp := t.HTTP, t.TCP
	if l.hangs(i) {
		web, tcp = t.NoHTTP, t.NoTCP
	}
	switch l.Kinds[i%len(l.Kinds)] {
	case "http":
		p.HTTPGet = &v1.HTTPGetAction{Host: address(i), Path: "/healthz", Port: intstr.FromInt(web)}
	case "tcp":
		p.TCPSocket = &v1.TCPSocketAction{Host: address(i), Port: intstr.FromInt(tcp)}
	case "grpc":
		p.GRPC = &v1.GRPCAction{Port: int32(t.GRPC)}
	case "exec":
		p.Exec = &v1.ExecAction{Command: []string{"healthy"}}
	}
	return p
}

// address of the i-th target, all of this host: in a cluster, pods have one each too.
func address(i int) string { return fmt.Sprintf("127.1.%d.%d", i>>8, i&255) }

// record is what an agent's checks did.
type record struct {
	load load
	from time.Time   // the beginning of the window
	due  []time.Time // of the first check of each probe

	mu     sync.Mutex // guards the rest
	late   []time.Duration
	timers []time.Duration
	failed int
}

// timer finds out how late this process wakes up, whatever it does: on a busy machine, checks are late too.
func (r *record) timer() {
	for at := r.from; at.Before(r.from.Add(benchWindow)); at = at.Add(benchWindow / 2000) {
		time.Sleep(time.Until(at))
		late := time.Since(at)
		r.mu.Lock()
		r.timers = append(r.timers, late)
		r.mu.Unlock()
	}
}

// note carries out a check of the i-th probe.
func (r *record) note(ctx context.Context, i int, p *v1.Probe, t podprobe.Target) (probe.Result, string, error) {
	t.IP = address(i)
	now := time.Now()
	check, err := podprobe.Check(p, t)
	if err != nil {
		return probe.Unknown, "", err
	}
	res, text, err := check(ctx)
	if r.load.hangs(i) || now.Before(r.from) || errors.Is(ctx.Err(), context.Canceled) {
		return res, text, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = append(r.late, now.Sub(r.due[i])%benchPeriod)
	if res != probe.Success && now.Before(r.from.Add(benchWindow-time.Second)) { // the last ones are cut
		if r.failed++; r.failed == 1 {
			fmt.Fprintln(os.Stderr, "probe", i, res, text, err)
		}
	}
	return res, text, err
}

func (r *record) cost(before syscall.Rusage) cost {
	var after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	r.mu.Lock()
	defer r.mu.Unlock()
	f := cost{Checks: len(r.late), Failed: r.failed, MiBPeak: float64(after.Maxrss) / 1024}
	f.Core = (cpu(after) - cpu(before)).Seconds() / benchWindow.Seconds()
	f.LateP50, f.LateP99, f.TimerP99 = quantile(r.late, 50), quantile(r.late, 99), quantile(r.timers, 99)
	return f
}

// quantile in ms, of a hundred.
func quantile(all []time.Duration, q int) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[len(all)*q/100]) / 1e6
}

func cpu(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }
