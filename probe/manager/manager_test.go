package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/podprobe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	passing = runtime.Passing
	failing = runtime.Failing
)

func TestResultsBeforeAnyCheck(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{LivenessProbe: every("live", 3, delay(1)), ReadinessProbe: every("ready", 3, delay(1)), StartupProbe: every("start", 3, delay(1))})
		w.m.Track(p, running("a", 0), false)
		w.result("a", runtime.ProbeResult{Liveness: passing, Readiness: failing})
		w.after(0) // Track tells nobody
	})
}

func TestFirstCheckIsAtOnceThenEachPeriod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.m.Track(pod(v1.Container{ReadinessProbe: every("ready", 3)}), running("a", 0), false)
		w.after(0, "0s ready a", "0s changed u")
		w.result("a", runtime.ProbeResult{Readiness: passing})
		w.after(7*time.Second, "3s ready a", "6s ready a") // no change, no word
	})
}

func TestInitialDelayCountsFromTheStart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.after(20 * time.Second)
		w.m.Track(pod(v1.Container{LivenessProbe: every("live", 10, delay(5)), ReadinessProbe: every("ready", 10, delay(1))}), running("a", 2*time.Second), false)
		w.after(4*time.Second, "20s ready a", "20s changed u", "23s live a")
	})
}

func TestTrackingAgainChangesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{LivenessProbe: every("live", 2), ReadinessProbe: every("ready", 1000)})
		look := running("a", 0)
		for range 5 {
			w.m.Track(p.DeepCopy(), look, false)
		}
		w.answers(always(probe.Success, ""))
		time.Sleep(time.Second)
		w.m.Track(p, look, false)
		time.Sleep(4 * time.Second)
		var live int
		for _, l := range w.take() {
			if l[len(l)-len("live a"):] == "live a" {
				live++
			}
		}
		if live != 3 { // at 0, 2 and 4 seconds
			t.Errorf("%d checks in five seconds", live)
		}
	})
}

func TestAnOlderLookIsIgnored(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{ReadinessProbe: every("ready", 10)})
		old := running("a", 0)
		w.after(time.Second)
		w.m.Track(p, running("b", 0), false)
		w.after(0, "1s ready b", "1s changed u")
		w.m.Track(p, old, false)
		w.result("b", runtime.ProbeResult{Readiness: passing})
		w.after(time.Second)
	})
}

func TestLivenessFailureRestsUntilANewContainer(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{LivenessProbe: every("live", 1, failures(2))})
		w.answers(always(probe.Failure, "no"))
		w.m.Track(p, running("a", 0), false)
		w.result("a", runtime.ProbeResult{Liveness: passing})
		w.after(0, "0s live a", "0s Unhealthy spec.containers{c}: Liveness probe failed: no")
		w.result("a", runtime.ProbeResult{Liveness: passing})
		w.after(5*time.Second, "1s live a", "1s Unhealthy spec.containers{c}: Liveness probe failed: no", "1s changed u")
		w.result("a", runtime.ProbeResult{Liveness: failing})

		w.answers(always(probe.Success, ""))
		w.m.Track(p, seen(runtime.Container{ID: "a", Name: "c", State: runtime.Exited}), false)
		w.after(time.Second)
		w.m.Track(p, running("b", 0), false)
		w.result("b", runtime.ProbeResult{Liveness: passing})
		w.result("a", runtime.ProbeResult{})
		w.after(time.Second, "6s live b", "7s live b")
	})
}

func TestStartupGatesTheOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{StartupProbe: every("start", 1, failures(10)), LivenessProbe: every("live", 5), ReadinessProbe: every("ready", 5, delay(3))})
		w.answers(always(probe.Failure, "not yet"))
		w.m.Track(p, running("a", 0), false)
		w.result("a", runtime.ProbeResult{Startup: runtime.Undecided, Liveness: passing, Readiness: failing})
		no := " Unhealthy spec.containers{c}: Startup probe failed: not yet"
		w.after(1500*time.Millisecond, "0s start a", "0s"+no, "1s start a", "1s"+no)
		w.answers(always(probe.Success, ""))
		w.after(1600*time.Millisecond, "2s start a", "2s changed u", "2s live a", "3s ready a", "3s changed u")
		w.result("a", runtime.ProbeResult{Startup: passing, Liveness: passing, Readiness: passing})
		w.after(5*time.Second, "7s live a", "8s ready a") // startup never again
	})
}

func TestStartupFailureIsForThisContainer(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{StartupProbe: every("start", 1), ReadinessProbe: every("ready", 1)})
		w.answers(always(probe.Failure, "no"))
		w.m.Track(p, running("a", 0), false)
		w.after(5*time.Second, "0s start a", "0s Unhealthy spec.containers{c}: Startup probe failed: no", "0s changed u")
		w.result("a", runtime.ProbeResult{Startup: failing, Readiness: failing})
	})
}

func TestSidecarsAreProbedAndInitContainersNot(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{})
		restart := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{
			{Name: "side", RestartPolicy: &restart, ReadinessProbe: every("side", 100)},
			{Name: "init", ReadinessProbe: every("init", 100)},
		}
		w.answers(always(probe.Failure, "no"))
		w.m.Track(p, seen(
			runtime.Container{ID: "i", Name: "init", State: runtime.Running, Started: time.Now()},
			runtime.Container{ID: "s", Name: "side", State: runtime.Running, Started: time.Now()}), false)
		w.after(time.Second, "0s side s", "0s Unhealthy spec.initContainers{side}: Readiness probe failed: no")
	})
}

func TestAPodWithoutProbesCostsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		p, look := pod(v1.Container{}), running("a", 0)
		w.m.Track(p, look, false)
		if r := w.m.Results("u"); r != nil || len(w.m.pods) != 0 {
			t.Error(r, len(w.m.pods))
		}
		if n := testing.AllocsPerRun(100, func() { w.m.Track(p, look, false) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// Trap 31: readiness goes on to the end, the others stop as soon as the pod ends.
func TestEndingStopsLivenessAndStartup(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{LivenessProbe: every("live", 1), ReadinessProbe: every("ready", 2)})
		look := running("a", 0)
		w.m.Track(p, look, false)
		time.Sleep(500 * time.Millisecond)
		w.take()
		w.m.Track(p, look, true)
		w.answers(always(probe.Failure, "leaving"))
		w.after(2*time.Second, "2s ready a", "2s Unhealthy spec.containers{c}: Readiness probe failed: leaving", "2s changed u")
		w.result("a", runtime.ProbeResult{Liveness: passing, Readiness: failing})
		w.m.Track(p, seen(runtime.Container{ID: "a", Name: "c", State: runtime.Exited}), true)
		w.after(10 * time.Second)
	})
}

func TestEndingCutsACheckUnderWayAndDropsItsAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{LivenessProbe: every("live", 10, timeout(5))})
		w.answers(func(ctx context.Context, _, _ string) (probe.Result, string, error) {
			<-ctx.Done()
			w.note("cut")
			return probe.Failure, "late", nil
		})
		look := running("a", 0)
		w.m.Track(p, look, false)
		w.after(time.Second, "0s live a")
		w.m.Track(p, look, true)
		w.after(time.Minute, "1s cut")
		w.result("a", runtime.ProbeResult{Liveness: passing})
	})
}

func TestAStateNobodyKnowsOnlyInterrupts(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{ReadinessProbe: every("ready", 10)})
		w.m.Track(p, running("a", 0), false)
		w.after(time.Second, "0s ready a", "0s changed u")
		w.m.Track(p, seen(runtime.Container{ID: "a", Name: "c", State: runtime.Unknown}), false)
		w.after(20 * time.Second)
		w.result("a", runtime.ProbeResult{Readiness: passing})
		w.m.Track(p, running("a", 20*time.Second), false)
		w.after(time.Second, "21s ready a")
	})
}

func TestForgetEndsEverything(t *testing.T) {
	inWorld(t, func(w *world) {
		w.m.Track(pod(v1.Container{LivenessProbe: every("live", 1)}), running("a", 0), false)
		w.after(0, "0s live a")
		w.m.Forget("u")
		w.m.Forget("u")
		w.after(time.Minute)
		if r := w.m.Results("u"); r != nil {
			t.Error(r)
		}
	})
}

// Trap 28: an error is tried again, changes nothing and is told; a failure is not tried again.
func TestErrorsAreTriedThreeTimesAndDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod(v1.Container{LivenessProbe: every("live", 10)})
		w.answers(func(context.Context, string, string) (probe.Result, string, error) {
			return probe.Unknown, "", errors.New("no such port")
		})
		w.m.Track(p, running("a", 0), false)
		w.after(time.Second, "0s live a", "0s live a", "0s live a", "0s Unhealthy spec.containers{c}: Liveness probe errored and resulted in unknown state: no such port")
		w.result("a", runtime.ProbeResult{Liveness: passing})
		var n atomic.Int32
		w.answers(func(context.Context, string, string) (probe.Result, string, error) {
			if n.Add(1) == 1 {
				return probe.Unknown, "", errors.New("broke off")
			}
			return probe.Failure, "no", nil
		})
		w.after(10*time.Second, "10s live a", "10s live a", "10s Unhealthy spec.containers{c}: Liveness probe failed: no", "10s changed u")
	})
}

func TestAPanicIsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(func(context.Context, string, string) (probe.Result, string, error) { panic("boo") })
		w.m.Track(pod(v1.Container{LivenessProbe: every("live", 10)}), running("a", 0), false)
		w.after(time.Second, "0s live a", "0s live a", "0s live a", "0s Unhealthy spec.containers{c}: Liveness probe errored and resulted in unknown state: panic in the check: boo")
		w.answers(always(probe.Success, ""))
		w.after(10*time.Second, "10s live a")
	})
}

// Case c028, the half of the manager: a warning counts as success, and is told.
func TestCase_c028_WarningIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(always(probe.Warning, "redirect not followed"))
		w.m.Track(pod(v1.Container{ReadinessProbe: every("ready", 10)}), running("a", 0), false)
		w.after(time.Second, "0s ready a", "0s ProbeWarning spec.containers{c}: Readiness probe warning: redirect not followed", "0s changed u")
		w.result("a", runtime.ProbeResult{Readiness: passing})
	})
}

func TestUnknownWithoutAnErrorFailsSilently(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(always(probe.Unknown, ""))
		w.m.Track(pod(v1.Container{LivenessProbe: every("live", 10)}), running("a", 0), false)
		w.after(time.Second, "0s live a", "0s changed u")
		w.result("a", runtime.ProbeResult{Liveness: failing})
	})
}

func TestEachTryHasItsOwnTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(func(ctx context.Context, _, _ string) (probe.Result, string, error) {
			<-ctx.Done()
			return probe.Unknown, "", ctx.Err()
		})
		w.m.Track(pod(v1.Container{LivenessProbe: every("live", 60, timeout(2))}), running("a", 0), false)
		w.after(10*time.Second, "0s live a", "2s live a", "4s live a", "6s Unhealthy spec.containers{c}: Liveness probe errored and resulted in unknown state: context deadline exceeded")
	})
}

// Case c031 through the manager: a runtime that hangs until the deadline of the probe.
func TestCase_c031_ExecTimeoutNeverBecomesReady(t *testing.T) {
	cfg := Config{Exec: execer(func(ctx context.Context) (runtime.ExecResult, error) {
		<-ctx.Done()
		return runtime.ExecResult{}, fmt.Errorf("exec: %w", ctx.Err())
	})}
	p := pod(v1.Container{ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sleep", "10"}}}, PeriodSeconds: 3, FailureThreshold: 1}})
	inWorldWith(t, cfg, func(w *world) {
		w.m.cfg.Check = nil
		w.m.Track(p, running("a", 0), false)
		no := " Unhealthy spec.containers{c}: Readiness probe failed: command timed out: \"sleep 10\" timed out after 1s"
		w.after(5*time.Second, "1s"+no, "4s"+no)
		w.result("a", runtime.ProbeResult{Readiness: failing})
	})
}

func TestExecRunsInTheContainer(t *testing.T) {
	cfg := Config{Exec: execer(func(context.Context) (runtime.ExecResult, error) {
		return runtime.ExecResult{Code: 4, Output: []byte("sick")}, nil
	})}
	p := pod(v1.Container{LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}})
	inWorldWith(t, cfg, func(w *world) {
		w.m.cfg.Check = nil
		w.m.Track(p, running("a", 0), false)
		w.after(time.Second, "0s Unhealthy spec.containers{c}: Liveness probe failed: sick")
	})
}

// kubernetes/kubernetes#106682: a container whose liveness command is not there, or not any more, was never restarted.
func TestACommandThatIsNotThereFails(t *testing.T) {
	cfg := Config{Exec: execer(func(context.Context) (runtime.ExecResult, error) {
		return runtime.ExecResult{}, fmt.Errorf("exec: %w", runtime.ErrNoCommand)
	})}
	p := pod(v1.Container{LivenessProbe: &v1.Probe{FailureThreshold: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}})
	inWorldWith(t, cfg, func(w *world) {
		w.m.cfg.Check = nil
		w.m.Track(p, running("a", 0), false)
		w.after(time.Second, "0s Unhealthy spec.containers{c}: Liveness probe failed: exec: no such command", "0s changed u")
		w.result("a", runtime.ProbeResult{Liveness: failing})
	})
}

type execer func(context.Context) (runtime.ExecResult, error)

func (f execer) Exec(ctx context.Context, id string, _ []string) (runtime.ExecResult, error) {
	if id != "a" {
		return runtime.ExecResult{}, runtime.ErrNotFound
	}
	return f(ctx)
}

func TestWhatNobodyCanAskStaysUndecided(t *testing.T) {
	p := pod(v1.Container{
		LivenessProbe:  &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}},
		ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 1}}},
	})
	inWorld(t, func(w *world) {
		w.m.cfg.Check = nil
		w.m.Track(p, running("a", 0), false)
		w.after(time.Minute)
		w.result("a", runtime.ProbeResult{})
	})
	inWorld(t, func(w *world) { // a Check of one's own may say so too
		w.answers(func(context.Context, string, string) (probe.Result, string, error) {
			return probe.Unknown, "", podprobe.ErrUndecided
		})
		w.m.Track(pod(v1.Container{ReadinessProbe: every("ready", 100)}), running("a", 0), false)
		w.after(time.Minute, "0s ready a")
	})
}

func TestHangingTargetsDelayNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(func(ctx context.Context, name, _ string) (probe.Result, string, error) {
			if name == "hang" {
				<-ctx.Done()
				return probe.Failure, "timed out", nil
			}
			return probe.Success, "", nil
		})
		for n := range 1000 {
			p := pod(v1.Container{LivenessProbe: every("hang", 30, timeout(20), failures(100))})
			p.UID = podUID(n)
			w.m.Track(p, running("h", 0), false)
		}
		time.Sleep(3 * time.Second) // the first wave
		w.take()
		w.m.Track(pod(v1.Container{ReadinessProbe: every("ready", 1)}), running("a", 0), false)
		w.after(2*time.Second, "3s ready a", "3s changed u", "4s ready a", "5s ready a")
	})
}

// A fifth of ten thousand targets hangs, and the others take their time.
func TestTenThousandProbesBeginOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const probes, period = 10000, 10 * time.Second
		var mu sync.Mutex // guards what follows
		due := map[string]time.Time{}
		var late []time.Duration
		m, err := New(Config{Check: func(ctx context.Context, target Target, _ *v1.Probe) (probe.Result, string, error) {
			if target.Container == "hangs" {
				<-ctx.Done()
				return probe.Failure, "", nil
			}
			mu.Lock()
			late = append(late, time.Since(due[target.ID])%period)
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			return probe.Success, "", nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		for i := range probes {
			p := pod(v1.Container{ReadinessProbe: &v1.Probe{}})
			p.UID = podUID(i)
			look := running(string(p.UID), 0)
			if i%5 == 0 {
				p.Spec.Containers[0].Name, look.Containers[0].Name = "hangs", "hangs"
			}
			mu.Lock()
			due[string(p.UID)] = time.Now()
			mu.Unlock()
			m.Track(p, look, false)
			time.Sleep(period / probes)
		}
		time.Sleep(2*period - time.Millisecond)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		slices.Sort(late)
		if want := (probes - 20) * 4 / 5 * 3; len(late) < want || // those of the last grain are cut
			late[len(late)*99/100] > 100*time.Millisecond {
			t.Errorf("%d checks of healthy targets, want %d; one in a hundred begins more than %v late", len(late), want, late[len(late)*99/100])
		}
	})
}
