package runtimetest

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Scripts for the ways a process takes a stop signal. Each prints "ready" when it may be stopped.
const (
	polite = `trap "exit 7" TERM; echo ready; sleep 3600 & wait`
	deaf   = `trap "" TERM; echo ready; sleep 3600`
)

func stopRules() map[string]func(*scene) {
	// started runs a script and returns when it is ready.
	started := func(s *scene, script string) string {
		conf := s.sandboxConfig(s.pod)
		c := s.container("main", script, conf)
		id := s.start(s.run(conf), c)
		s.untilLogged(conf, c, "ready")
		return id
	}
	return map[string]func(*scene){
		"stop asks first and returns when the container has ended": func(s *scene) {
			id := started(s, polite)
			begin := time.Now()
			s.fine("StopContainer", s.StopContainer(s.ctx, id, time.Minute))
			if c := s.look(id); c.State != runtime.Exited || c.ExitCode != 7 || c.Finished.IsZero() {
				s.Errorf("after the stop: %v, code %d, finished %v", c.State, c.ExitCode, c.Finished)
			}
			if d := time.Since(begin); d > 30*time.Second {
				s.Errorf("it took %v of a minute although the container ended at once", d)
			}
		},
		"stop kills after the grace, not before": func(s *scene) {
			id := started(s, deaf)
			begin := time.Now()
			s.fine("StopContainer", s.StopContainer(s.ctx, id, 2*time.Second))
			if d := time.Since(begin); d < 2*time.Second || d > 30*time.Second {
				s.Errorf("it took %v with 2s of grace", d)
			}
			if c := s.look(id); c.State != runtime.Exited || c.ExitCode != killed {
				s.Errorf("after the stop: %v, code %d", c.State, c.ExitCode)
			}
		},
		"stop without grace kills at once": func(s *scene) {
			id := started(s, polite)
			s.fine("StopContainer", s.StopContainer(s.ctx, id, 0))
			if c := s.look(id); c.State != runtime.Exited || c.ExitCode != killed {
				s.Errorf("after the stop: %v, code %d", c.State, c.ExitCode)
			}
		},
		"stop may be repeated, also when the container is gone": func(s *scene) {
			id := started(s, polite)
			for range 2 {
				s.fine("StopContainer", s.StopContainer(s.ctx, id, time.Minute))
			}
			for range 2 {
				s.fine("RemoveContainer", s.RemoveContainer(s.ctx, id))
			}
			s.fine("StopContainer", s.StopContainer(s.ctx, id, time.Minute))
			_, err := s.Container(s.ctx, id)
			s.want("Container", err, runtime.ErrNotFound)
		},
		"stop under way can be shortened by another": func(s *scene) {
			id := started(s, deaf)
			ctx, cancel := context.WithCancel(s.ctx)
			first := make(chan error, 1)
			go func() { first <- s.StopContainer(ctx, id, time.Hour) }()
			s.fine("second StopContainer", s.StopContainer(s.ctx, id, time.Second))
			if c := s.look(id); c.State != runtime.Exited {
				s.Errorf("after the second stop: %v", c.State)
			}
			s.fine("first StopContainer", <-first)
			cancel()
		},
		"stop may be asked for by many at once": func(s *scene) {
			id := started(s, polite)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { s.fine("StopContainer", s.StopContainer(s.ctx, id, time.Minute)) })
			}
			all.Wait()
			if c := s.look(id); c.State != runtime.Exited || c.ExitCode != 7 {
				s.Errorf("after the stops: %v, code %d", c.State, c.ExitCode)
			}
		},
		"stop returns soon after its context ends": func(s *scene) {
			id := started(s, deaf)
			ctx, cancel := context.WithTimeout(s.ctx, time.Second)
			defer cancel()
			begin := time.Now()
			s.want("StopContainer", s.StopContainer(ctx, id, time.Hour), context.DeadlineExceeded)
			if d := time.Since(begin); d > 20*time.Second {
				s.Errorf("it took %v with a second to live", d)
			}
		},
		"remove kills what runs and leaves the log": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			c := s.container("main", polite, conf)
			id := s.start(s.run(conf), c)
			s.untilLogged(conf, c, "ready")
			s.fine("RemoveContainer", s.RemoveContainer(s.ctx, id))
			_, err := s.Container(s.ctx, id)
			s.want("Container", err, runtime.ErrNotFound)
			if _, err := os.Stat(conf.LogDir + "/" + c.LogPath); err != nil {
				s.Errorf("its log: %v", err)
			}
		},
	}
}

func execRules() map[string]func(*scene) {
	running := func(s *scene) string {
		conf := s.sandboxConfig(s.pod)
		return s.start(s.run(conf), s.container("main", "sleep 3600", conf))
	}
	return map[string]func(*scene){
		"exec gives output and exit code": func(s *scene) {
			id := running(s)
			for script, want := range map[string]runtime.ExecResult{
				"true":                        {},
				"echo out; exit 3":            {Code: 3, Output: []byte("out\n")},
				"echo both >&2; false":        {Code: 1, Output: []byte("both\n")},
				"echo one; echo two; exit 99": {Code: 99, Output: []byte("one\ntwo\n")},
			} {
				got, err := s.Exec(s.ctx, id, []string{"sh", "-c", script})
				if err != nil || got.Code != want.Code || string(got.Output) != string(want.Output) {
					s.Errorf("%q: %d %q, %v, want %d %q", script, got.Code, got.Output, err, want.Code, want.Output)
				}
			}
		},
		"exec of a command that is not there says so": func(s *scene) {
			_, err := s.Exec(s.ctx, running(s), []string{"no-such-command"})
			s.want("Exec of no command", err, runtime.ErrNoCommand)
		},
		"exec has the environment of its container": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			c := s.container("main", "sleep 3600", conf)
			c.Env = []runtime.Env{{Name: "WHO", Value: "world"}}
			r, err := s.Exec(s.ctx, s.start(s.run(conf), c), []string{"sh", "-c", "echo hello $WHO"})
			if err != nil || string(r.Output) != "hello world\n" {
				s.Errorf("Exec = %d %q, %v", r.Code, r.Output, err)
			}
		},
		"exec ends with its context": func(s *scene) {
			id := running(s)
			short, cancel := context.WithTimeout(s.ctx, time.Second)
			defer cancel()
			begin := time.Now()
			_, err := s.Exec(short, id, []string{"sleep", "3600"})
			s.want("Exec past its deadline", err, context.DeadlineExceeded)
			cut, cancel := context.WithCancel(s.ctx)
			time.AfterFunc(500*time.Millisecond, cancel)
			_, err = s.Exec(cut, id, []string{"sleep", "3600"})
			s.want("Exec cut", err, context.Canceled)
			if d := time.Since(begin); d > 30*time.Second {
				s.Errorf("it took %v", d)
			}
			if c := s.look(id); c.State != runtime.Running {
				s.Errorf("the container is %v", c.State)
			}
		},
		"exec in what does not run is an error": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			id := s.start(s.run(conf), s.container("main", "true", conf))
			s.exited(id)
			if r, err := s.Exec(s.ctx, id, []string{"true"}); err == nil {
				s.Errorf("Exec = %+v", r)
			}
		},
	}
}
