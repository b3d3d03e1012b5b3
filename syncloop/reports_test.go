package syncloop_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// sunk is Volumes on a server of files that is gone: whatever has to do with a pod named so hangs, whoever has lost patience.
// So does sweeping.
type sunk struct{ back chan struct{} }

func (s sunk) hang(uid types.UID) {
	if strings.HasPrefix(string(uid), "sunk") {
		<-s.back
	}
}

func (s sunk) Mount(_ context.Context, pod *v1.Pod) (map[string]runtime.Volume, error) {
	if strings.HasPrefix(pod.Name, "sunk-in") {
		s.hang(pod.UID)
	}
	return nil, nil
}

func (s sunk) Unmount(_ context.Context, uid types.UID) error { s.hang(uid); return nil }

func (s sunk) Sweep(context.Context, func(types.UID) bool) error { <-s.back; return nil }

// Field reports kubernetes/kubernetes#31272, #27463 and #90593: one mount that hung kept all other pods from starting and
// ending, and a restart of the kubelet did not help.
func TestAMountThatHangsHoldsUpNobodyElse(t *testing.T) {
	var s sunk
	onNode(t, func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) {
		s.back = make(chan struct{})
		cfg.Volumes, cfg.Sweepers = s, append(cfg.Sweepers, s)
	}, func(n *node) {
		for i := range 8 { // more than start at once
			n.do("add sunk-in-" + string(rune('a'+i)) + " app=sleep_100000 source=api")
		}
		n.do("add sunk app=sleep_100000 source=api grace=1")
		n.do("advance 1m")
		n.do("delete sunk grace=1")
		n.do("advance 1m")
		n.do("add web app=sleep_100000 source=api grace=1")
		n.do("add again app=sleep_100000 source=api grace=1")
		n.do("advance 30s")
		n.stands("beside it", "[again-1 web-1], web Running, sunk Failed", "web", "sunk")
		n.do("delete web grace=1")
		n.do("advance 5s")
		n.stands("beside it one has ended", "[again-1], web gone, sunk-in-a Pending", "web", "sunk-in-a")
		if n.api.phaseOf("sunk") == "gone" {
			t.Error("what is not given back is told to be")
		}
		close(s.back)
		n.do("advance 1m")
		n.stands("in the end", "[again-1 sunk-in-a-1 sunk-in-b-1 sunk-in-c-1 sunk-in-d-1 sunk-in-e-1 sunk-in-f-1 sunk-in-g-1 sunk-in-h-1], sunk gone", "sunk")
	})
}

// finalized is a sink whose objects stay when they may go: others have finalizers on them.
type finalized struct {
	syncloop.StatusSink

	mu              sync.Mutex         // guards the rest
	moments         map[time.Time]bool // at which it was told of
	writes, deletes int
}

func (f *finalized) UpdateStatus(ctx context.Context, pod *v1.Pod, s v1.PodStatus) error {
	f.mu.Lock()
	if pod.Name == "job" {
		f.writes++
		f.moments[time.Now()] = true
	}
	f.mu.Unlock()
	return f.StatusSink.UpdateStatus(ctx, pod, s)
}

func (f *finalized) Finished(_ context.Context, pod *v1.Pod) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if pod.DeletionTimestamp != nil {
		f.deletes++
	}
	return nil
}

// waits has the pod come to rest, and then looks on for an hour in which nothing may be told of it. How often a status is told
// at one moment is chance: looks that come together are told together.
func (f *finalized) waits(n *node, when string, moments int) {
	n.t.Helper()
	n.do("advance 1m")
	synctest.Wait()
	f.mu.Lock()
	writes, deletes := f.writes, f.deletes
	if len(f.moments) != moments || deletes != 1 {
		n.t.Errorf("%s: told of at %v, want %d moments, and %d deletions", when, slices.Collect(maps.Keys(f.moments)), moments, deletes)
	}
	f.mu.Unlock()
	n.do("advance 1h")
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writes != writes || f.deletes != deletes {
		n.t.Errorf("%s: %d writes, %d deletions more in an hour", when, f.writes-writes, f.deletes-deletes)
	}
}

// Field report in pull request kubernetes/kubernetes#126343: pods of jobs that had succeeded, were deleted and waited for a
// finalizer were judged anew by a restarted kubelet, and failed.
func TestAPodThatWaitsForItsFinalizersStaysAsItEnded(t *testing.T) {
	var f *finalized
	onNode(t, fits("2", func(cfg *syncloop.Config) {
		f = &finalized{StatusSink: cfg.Sink, moments: map[time.Time]bool{}}
		cfg.Sink = f
	}), func(n *node) {
		n.do("add job app=exit_0 source=api policy=Never")
		n.do("advance 10s")
		n.do("delete job grace=5")
		f.waits(n, "before", 2) // it runs and ends, and is deleted
		n.stands("before", "[], job Succeeded", "job")
		n.do("add a app=sleep_100000 source=api")
		n.do("add b app=sleep_100000 source=api")
		n.do("restart")
		f.waits(n, "with another agent, and no room", 1)
		n.stands("with another agent", "[a-1 b-1], job Succeeded", "job")
		n.api.drop("job")
		n.do("advance 5m")
		if _, all := n.engine.Truth(); len(all) != 2 {
			t.Errorf("left: %v", all)
		}
	})
}

// Who looks for what keeps pods from starting looks for the kubelet's reason and words.
func TestANetworkThatIsNotReadyIsToldOf(t *testing.T) {
	onNode(t, nil, func(n *node) {
		info, err := n.engine.Info(n.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		down := info
		down.Network = runtime.Condition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"}
		n.engine.SetInfo(down)
		n.do("add web app=sleep_100000 source=api")
		n.do("advance 50s")
		const want = "network is not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized\n"
		if got := n.told("NetworkNotReady"); got != want || n.told("FailedSync") != "" {
			t.Errorf("told %q and %q, want %q", got, n.told("FailedSync"), want)
		}
		n.engine.SetInfo(info)
		n.do("advance 3s")
		n.stands("once there is one", "[web-1], web Running", "web")
	})
}

// Field reports kubernetes/kubernetes#94305 and #85831: a kubelet that was restarted on a full disk refused the pods that ran,
// since it could not write down what it had promised them.
func TestAnAgentThatCannotWriteKeepsWhatRuns(t *testing.T) {
	onNode(t, nil, func(n *node) {
		n.do("add web app=sleep_100000 source=api")
		n.do("add job work=exit_0 source=api policy=Never")
		n.do("add file app=sleep_100000")
		n.do("advance 1m")
		n.do("halt")
		whole := n.state
		full := filepath.Join(t.TempDir(), "full")
		if err := os.WriteFile(full, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.state = filepath.Join(full, "state") // below a file nothing can be written
		n.do("start")
		n.do("advance 10m")
		n.stands("without room to write", "[file-1 web-1], web Running, job Succeeded", "web", "job")
		if n.engine.Calls("StopContainer") > 0 {
			t.Error("something was stopped")
		}
		n.do("halt")
		n.state = whole
		n.do("start")
		n.do("add new app=sleep_100000 source=api")
		n.do("advance 1m")
		n.stands("with room again", "[file-1 new-1 web-1], web Running, new Running", "web", "new")
	})
}

// refusing takes no status.
type refusing struct{ syncloop.StatusSink }

func (r refusing) UpdateStatus(context.Context, *v1.Pod, v1.PodStatus) error {
	return status.ErrRefused
}

// Field report virtual-kubelet/virtual-kubelet#938: a pod whose statuses no server took could not be deleted.
func TestAPodWhoseStatusIsRefusedCanBeDeleted(t *testing.T) {
	refuse := func(_ context.Context, _ *sync.WaitGroup, cfg *syncloop.Config) { cfg.Sink = refusing{cfg.Sink} }
	onNode(t, refuse, func(n *node) {
		p := n.put("web", "app=sleep_100000", nil)
		time.Sleep(time.Minute)
		if n.container(p, "app") == nil {
			t.Error("it does not run")
		}
		n.do("delete web grace=10")
		time.Sleep(time.Minute)
		if got := n.api.phaseOf("web"); got != "gone" {
			t.Errorf("it is still there, %s", got)
		}
	})
}
