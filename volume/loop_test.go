package volume_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/volume"
)

// stub is a runtime that does nothing but count, a source of one pod, and a sink.
type stub struct {
	pod    *v1.Pod
	synced atomic.Int64
}

func (s *stub) Pods(context.Context) ([]runtime.Pod, error) { return nil, nil }
func (s *stub) Pod(_ context.Context, uid types.UID) (runtime.Pod, error) {
	return runtime.Pod{PodRef: runtime.PodRef{UID: uid}}, nil
}

func (s *stub) Sync(context.Context, *v1.Pod, runtime.SyncInput) (runtime.SyncResult, error) {
	s.synced.Add(1)
	return runtime.SyncResult{}, nil
}

func (s *stub) Stop(context.Context, *v1.Pod, runtime.Pod, runtime.Termination) error { return nil }
func (s *stub) Remove(context.Context, types.UID, runtime.Removal) error              { return nil }

func (s *stub) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	set([]*v1.Pod{s.pod}, true)
	<-ctx.Done()
	return nil
}

func (s *stub) UpdateStatus(context.Context, *v1.Pod, v1.PodStatus) error { return nil }
func (s *stub) Finished(context.Context, *v1.Pod) error                   { return nil }

// What a loop makes of it: a pod whose Secret comes late is told of, and starts at once when it comes.
func TestAPodStartsWhenItsSecretComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		s := &stub{pod: podWith("u1", ofSecret("key", "late"), projected("all", token("token", 600)))}
		c.be(nil, 3*time.Second)
		r := &rig{cluster: c}
		var roster syncloop.Roster
		h := newHouse(t, func(cfg *volume.Config) { cfg.Objects, cfg.Tokens, cfg.Changed = c, c, roster.Wake })
		loop, err := syncloop.New(syncloop.Config{
			Sources: map[string]syncloop.PodSource{"api": s}, Runtime: s, Sink: s, Volumes: h, Roster: &roster, Observe: observe.To{Events: r},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		wg.Go(func() { _ = loop.Run(ctx) })

		time.Sleep(2 * time.Second)
		if told := r.told(); len(told) != 0 {
			t.Errorf("told %q while the server was asked", told)
		}
		time.Sleep(2 * time.Second)
		if told := r.told(); len(told) == 0 || told[0] != `web FailedMount MountVolume.SetUp failed for volume "key" : secret "late" not found` {
			t.Errorf("told %q", told)
		}
		c.be(nil, 0)
		time.Sleep(time.Hour)
		if n := s.synced.Load(); n != 0 {
			t.Errorf("synced %d times without its Secret", n)
		}
		c.put(secret("late", "k", "K"))
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if n := s.synced.Load(); n != 1 && n != 2 { // another try may be due just then
			t.Errorf("synced %d times when its Secret came", n)
		}
		stop()
		wg.Wait()
	})
}

// Everything at once, for the race detector.
func TestObjectsThatChangeWhilePodsComeAndGo(t *testing.T) {
	c := newCluster(configMap("app", "a", "0"))
	h := newHouse(t, func(cfg *volume.Config) { cfg.Objects, cfg.Tokens = c, c })
	ctx, stop := context.WithCancel(t.Context())
	var runs, pods sync.WaitGroup
	runs.Go(func() { _ = h.Run(ctx) })
	runs.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			c.put(configMap("app", "a", string(rune('0'+i%10))))
			time.Sleep(time.Millisecond) // a pace, not a wait for anything
		}
	})
	for _, uid := range []string{"u0", "u1", "u2", "u3"} {
		pod := podWith(uid, ofConfigMap("conf", "app"), ofSecret("key", "none"), projected("all", token("token", 600)))
		pod.Spec.Volumes[1].Secret.Optional = new(true)
		pods.Go(func() {
			for range 20 {
				for {
					if places, err := h.Mount(t.Context(), pod); err == nil {
						text, err := os.ReadFile(places["conf"].Path + "/a")
						for begun := time.Now(); errors.Is(err, fs.ErrNotExist) && time.Since(begun) < 30*time.Second; { // the link was followed to what was replaced just then
							text, err = os.ReadFile(places["conf"].Path + "/a")
						}
						if err != nil || len(text) != 1 {
							t.Errorf("half written: %q, %v", text, err)
						}
						break
					}
				}
				if err := h.Unmount(t.Context(), types.UID(uid)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	pods.Wait()
	stop()
	runs.Wait()
	if n := c.followed(); n != 0 {
		t.Errorf("%d still followed", n)
	}
}
