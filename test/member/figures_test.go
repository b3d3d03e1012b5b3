//go:build cluster

package member

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/agent"
	"github.com/kubeletkit/kubeletkit/test/cluster"
	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

var figuresFile = flag.String("figures", "", "file that BenchmarkAgents writes its figures to, as JSON")

// figures are what an agent costs and how fast it is.
type figures struct {
	ReadySeconds      float64        `json:"readySeconds"`      // from the start of a new node's agent to a Ready node
	RequestsPerMinute float64        `json:"requestsPerMinute"` // at rest
	Requests          map[string]int `json:"requests"`          // in the time of rest, by what was asked for
	RSSMegabytes      float64        `json:"rssMegabytes"`
	CPUMillicores     float64        `json:"cpuMillicores"` // at rest
	VisibleP50Millis  float64        `json:"visibleP50Millis"`
	VisibleMaxMillis  float64        `json:"visibleMaxMillis"`
}

// The figures of both agents with fifty pods. Ours may not ask more at rest than the kubelet, and may need half the memory.
func BenchmarkAgents(b *testing.B) {
	const pods = 50
	all := map[cluster.Agent]*figures{}
	for _, a := range []cluster.Agent{cluster.Kubelet, cluster.NodeAgent} {
		b.Run(string(a), func(b *testing.B) {
			for b.Loop() {
				if all[a] == nil { // once is enough, whatever -benchtime says
					all[a] = measure(b, a, pods)
				}
			}
			f := all[a]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(f.ReadySeconds, "s-to-ready")
			b.ReportMetric(f.RequestsPerMinute, "requests/min")
			b.ReportMetric(f.RSSMegabytes, "MB-rss")
			b.ReportMetric(f.CPUMillicores, "mcpu")
			b.ReportMetric(f.VisibleP50Millis, "ms-visible-p50")
		})
	}
	theirs, ours := all[cluster.Kubelet], all[cluster.NodeAgent]
	if theirs == nil || ours == nil {
		return // one of them was not asked for
	}
	if ours.RequestsPerMinute > theirs.RequestsPerMinute {
		b.Errorf("%.1f requests a minute at rest are more than the kubelet's %.1f: %v", ours.RequestsPerMinute, theirs.RequestsPerMinute, ours.Requests)
	}
	if ours.RSSMegabytes > theirs.RSSMegabytes/2 {
		b.Errorf("%.1f MB are more than half of the kubelet's %.1f MB", ours.RSSMegabytes, theirs.RSSMegabytes)
	}
	if *figuresFile != "" {
		data, err := json.MarshalIndent(all, "", "  ")
		check(b, err)
		check(b, os.WriteFile(*figuresFile, append(data, '\n'), 0o644))
	}
}

func measure(b *testing.B, a cluster.Agent, pods int) *figures {
	b.Helper()
	n := bareNode(b)
	n.agent = a
	f := &figures{ReadySeconds: n.newNodeReady().Seconds()}
	n.createMany(pods)
	agent.Eventually(b, crowdPatience, "all pods are ready", n.allReady)
	time.Sleep(30 * time.Second) // what follows from the start of pods is over
	n.requests()
	begun := time.Now()
	before, _ := n.used()
	time.Sleep(time.Minute)
	rest := time.Since(begun)
	cpu, rss := n.used()
	f.CPUMillicores = 1000 * (cpu - before).Seconds() / rest.Seconds()
	all := n.requests()
	f.Requests, f.RequestsPerMinute = Count(all), float64(len(all))/rest.Minutes()
	f.RSSMegabytes = float64(rss) / 1e6
	visible := n.visible(20)
	f.VisibleP50Millis = float64(visible[len(visible)/2].Microseconds()) / 1e3
	f.VisibleMaxMillis = float64(visible[len(visible)-1].Microseconds()) / 1e3
	return f
}

// newNodeReady starts the agent as one of a new node and tells how long it takes until that is Ready.
func (n *node) newNodeReady() time.Duration {
	n.t.Helper()
	check(n.t, n.api.CoreV1().Nodes().Delete(n.t.Context(), cluster.NodeName, metav1.DeleteOptions{}))
	w, err := n.api.CoreV1().Nodes().Watch(n.t.Context(), metav1.ListOptions{})
	check(n.t, err)
	defer w.Stop()
	begun := time.Now()
	n.start()
	for timeout := time.After(patience); ; {
		select {
		case e := <-w.ResultChan():
			if o, ok := e.Object.(*v1.Node); ok && condition(o.Status.Conditions) == v1.ConditionTrue && o.CreationTimestamp.After(begun.Add(-2*time.Second)) {
				return time.Since(begun)
			}
		case <-timeout:
			n.t.Fatal("the node is not Ready in time")
		}
	}
}

// used is the processor time the agent has used, and its memory that is resident, in bytes.
func (n *node) used() (cpu time.Duration, rss int64) {
	n.t.Helper()
	cpu, rss, err := process.Usage(n.AgentPID(n.agent))
	check(n.t, err)
	return cpu, rss
}

// visible kills containers one after another and tells, sorted, how long each took to be seen as ended by a client that
// watches.
func (n *node) visible(times int) (all []time.Duration) {
	n.t.Helper()
	w, err := n.api.CoreV1().Pods(n.ns).Watch(n.t.Context(), metav1.ListOptions{})
	check(n.t, err)
	defer w.Stop()
	for i := range times {
		name := fmt.Sprintf("crowd-%d", i)
		id := n.containers()[name+"/main"]
		pid, err := n.pid(n.t.Context(), id)
		check(n.t, err)
		time.Sleep(time.Duration(300+37*i) * time.Millisecond) // not in step with anything
		begun := time.Now()
		check(n.t, syscall.Kill(pid, syscall.SIGKILL))
		for seen := false; !seen; {
			select {
			case e := <-w.ResultChan():
				p, ok := e.Object.(*v1.Pod)
				seen = ok && p.Name == name && len(p.Status.ContainerStatuses) > 0 && !p.Status.ContainerStatuses[0].Ready
			case <-time.After(patience):
				n.t.Fatalf("the end of %s is not seen", name)
			}
		}
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all
}

// pid is the process of a container.
func (n *node) pid(ctx context.Context, id string) (int, error) {
	r, err := n.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(r.GetInfo()["info"]), &info); err != nil {
		return 0, err
	}
	if info.PID <= 1 {
		return 0, errors.New("container " + id + " has no process")
	}
	return info.PID, nil
}
