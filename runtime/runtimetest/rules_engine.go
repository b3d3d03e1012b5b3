package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func engineRules() map[string]func(*scene) {
	return map[string]func(*scene){
		"engine says who it is and that it is ready":          saysWhoItIs,
		"engine calls with an ended context return its error": endedContext,
		"engine says of what does not exist that it does not": doesNotExist,
		"engine is safe for concurrent use":                   concurrentPods,
		"engine gives a name to one of many who want it":      concurrentNames,
		"engine shows the next process what the last one left": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			container := s.start(sandbox, s.container("main", "sleep 3600", conf))
			s.Engine = s.open()
			if c := s.look(container); c.Pod != s.pod || c.State != runtime.Running || c.SandboxID != sandbox {
				s.Errorf("the next process sees %+v", c)
			}
			list, err := s.ListSandboxes(s.ctx, runtime.Filter{Pod: s.pod.UID})
			if err != nil || len(list) != 1 || list[0].ID != sandbox {
				s.Errorf("the next process lists %+v, %v", list, err)
			}
		},
	}
}

func saysWhoItIs(s *scene) {
	i, err := s.Info(s.ctx)
	if err != nil {
		s.Fatalf("Info: %v", err)
	}
	if i.Name == "" || i.Version == "" || !i.Ready.OK {
		s.Errorf("Info = %+v, want a name, a version, and that it is ready", i)
	}
	if !slices.ContainsFunc(i.Handlers, func(h runtime.Handler) bool { return h.Name == "" }) && len(i.Handlers) > 0 {
		s.Errorf("Info names handlers %+v, but not the default one", i.Handlers)
	}
}

// everyCall is each method of an engine, about something that does not exist.
func everyCall(s *scene) map[string]func(context.Context) error {
	e, none := s.Engine, nobody()
	conf := s.sandboxConfig(s.pod)
	return map[string]func(context.Context) error{
		"ListSandboxes":  func(ctx context.Context) error { _, err := e.ListSandboxes(ctx, runtime.Filter{}); return err },
		"ListContainers": func(ctx context.Context) error { _, err := e.ListContainers(ctx, runtime.Filter{}); return err },
		"Sandbox":        func(ctx context.Context) error { _, err := e.Sandbox(ctx, none); return err },
		"Container":      func(ctx context.Context) error { _, err := e.Container(ctx, none); return err },
		"RunSandbox":     func(ctx context.Context) error { _, err := e.RunSandbox(ctx, conf); return err },
		"UpdateSandbox": func(ctx context.Context) error {
			return e.UpdateSandbox(ctx, none, runtime.Resources{CPUShares: 2}, runtime.Resources{})
		},
		"StopSandbox":     func(ctx context.Context) error { return e.StopSandbox(ctx, none) },
		"RemoveSandbox":   func(ctx context.Context) error { return e.RemoveSandbox(ctx, none) },
		"StartContainer":  func(ctx context.Context) error { return e.StartContainer(ctx, none) },
		"UpdateContainer": func(ctx context.Context) error { return e.UpdateContainer(ctx, none, runtime.Resources{CPUShares: 2}) },
		"StopContainer":   func(ctx context.Context) error { return e.StopContainer(ctx, none, time.Second) },
		"RemoveContainer": func(ctx context.Context) error { return e.RemoveContainer(ctx, none) },
		"Exec":            func(ctx context.Context) error { _, err := e.Exec(ctx, none, []string{"true"}); return err },
		"Image":           func(ctx context.Context) error { _, err := e.Image(ctx, "example.invalid/none:1"); return err },
		"ListImages":      func(ctx context.Context) error { _, err := e.ListImages(ctx); return err },
		"RemoveImage":     func(ctx context.Context) error { return e.RemoveImage(ctx, "example.invalid/none:1") },
		"Info":            func(ctx context.Context) error { _, err := e.Info(ctx); return err },
		"PullImage": func(ctx context.Context) error {
			_, err := e.PullImage(ctx, runtime.PullRequest{Image: "example.invalid/none:1"})
			return err
		},
		"CreateContainer": func(ctx context.Context) error {
			_, err := e.CreateContainer(ctx, none, s.container("main", "true", conf))
			return err
		},
	}
}

func endedContext(s *scene) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	for name, call := range everyCall(s) {
		if err := call(ctx); !errors.Is(err, errors.ErrUnsupported) {
			s.want(name, err, context.Canceled)
		}
	}
}

func doesNotExist(s *scene) {
	calls := everyCall(s)
	for _, name := range []string{
		"Sandbox", "Container", "CreateContainer", "StartContainer", "UpdateContainer", "UpdateSandbox", "Exec", "Image",
	} {
		if err := calls[name](s.ctx); !errors.Is(err, errors.ErrUnsupported) {
			s.want(name, err, runtime.ErrNotFound)
		}
	}
	for _, name := range []string{"StopSandbox", "RemoveSandbox", "StopContainer", "RemoveContainer", "RemoveImage"} {
		if err := calls[name](s.ctx); !errors.Is(err, errors.ErrUnsupported) {
			s.fine(name, err)
		}
	}
}

func concurrentPods(s *scene) {
	const pods, containers = 3, 2
	var all sync.WaitGroup
	for range pods {
		conf := s.sandboxConfig(s.newPod())
		configs := make([]*runtime.ContainerConfig, containers)
		for i := range configs {
			configs[i] = s.container(fmt.Sprintf("c%d", i), "sleep 3600", conf)
		}
		all.Go(func() {
			if err := wholeLife(s, conf, configs); err != nil {
				s.Errorf("%v: %v", conf.Pod, err)
			}
		})
	}
	all.Wait()
}

// wholeLife is one pod from its sandbox to its removal, its containers side by side.
func wholeLife(s *scene, conf *runtime.SandboxConfig, configs []*runtime.ContainerConfig) error {
	sandbox, err := s.RunSandbox(s.ctx, conf)
	if err != nil {
		return err
	}
	errs := make([]error, len(configs))
	var all sync.WaitGroup
	for i, c := range configs {
		all.Go(func() {
			id, err := s.CreateContainer(s.ctx, sandbox, c)
			if err == nil {
				err = s.StartContainer(s.ctx, id)
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	running, err := s.ListContainers(s.ctx, runtime.Filter{Pod: conf.Pod.UID, OnlyAlive: true})
	if err != nil {
		return err
	}
	if len(running) != len(configs) {
		return fmt.Errorf("%d containers run, want %d", len(running), len(configs))
	}
	return errors.Join(s.StopSandbox(s.ctx, sandbox), s.RemoveSandbox(s.ctx, sandbox))
}

func concurrentNames(s *scene) {
	conf := s.sandboxConfig(s.pod)
	one := func(what string, try func() (string, error)) string {
		var (
			all sync.WaitGroup
			id  atomic.Value
			got atomic.Int32
		)
		for range 4 {
			all.Go(func() {
				if made, err := try(); err == nil {
					id.Store(made)
					got.Add(1)
				}
			})
		}
		all.Wait()
		if got.Load() != 1 {
			s.Fatalf("%s: %d of 4 were made, want 1", what, got.Load())
		}
		return id.Load().(string)
	}
	sandbox := one("sandbox", func() (string, error) { return s.RunSandbox(s.ctx, conf) })
	c := s.container("main", "sleep 3600", conf)
	one("container", func() (string, error) { return s.CreateContainer(s.ctx, sandbox, c) })
}
