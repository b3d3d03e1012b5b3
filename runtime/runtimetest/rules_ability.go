package runtimetest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func abilityRules() map[string]func(*scene) {
	return map[string]func(*scene){
		"events tell of containers until their context ends": eventsTell,
		"reopened log goes on in a new file":                 reopened,
		"stats are of running containers": func(s *scene) {
			stats := s.able(s.Engine).Stats
			if stats == nil {
				return
			}
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			id := s.start(sandbox, s.container("main", "sleep 3600", conf))
			s.until("stats have the container alone", func() bool {
				list, err := stats.ContainerStats(s.ctx, runtime.Filter{Pod: s.pod.UID})
				s.fine("ContainerStats", err)
				return len(list) == 1 && list[0].Container == id && list[0].Sandbox == sandbox && !list[0].At.IsZero()
			})
			fs, err := stats.ImageFS(s.ctx)
			if err != nil || len(fs) == 0 || fs[0].Mountpoint == "" {
				s.Errorf("ImageFS = %+v, %v", fs, err)
			}
		},
	}
}

func eventsTell(s *scene) {
	notifier := s.able(s.Engine).Notifier
	if notifier == nil {
		return
	}
	var (
		mu   sync.Mutex
		seen []runtime.Event
	)
	told := func(ids ...string) bool { // of one of these
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(seen, func(e runtime.Event) bool {
			return e.Pod == s.pod && slices.Contains(ids, e.Container) && !e.At.IsZero()
		})
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- notifier.Events(ctx, func(e runtime.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e)
		})
	}()
	conf := s.sandboxConfig(s.pod)
	sandbox := s.run(conf)
	var early []string
	s.until("the stream is open", func() bool { // nobody says when: make changes until one is told
		c := s.container("early", "true", conf)
		c.Attempt = uint32(len(early))
		c.LogPath = fmt.Sprintf("early/%d.log", c.Attempt)
		early = append(early, s.create(sandbox, c))
		return told(early...)
	})
	id := s.start(sandbox, s.container("main", "sleep 1", conf))
	s.until("the end of a container is told", func() bool { return told(id) })
	cancel()
	s.fine("Events", <-done)
}

func reopened(s *scene) {
	logs := s.able(s.Engine).LogReopener
	if logs == nil {
		return
	}
	conf := s.sandboxConfig(s.pod)
	c := s.container("main", "echo before; sleep 2; echo after; sleep 3600", conf)
	id := s.start(s.run(conf), c)
	s.untilLogged(conf, c, "before")
	path := conf.LogDir + "/" + c.LogPath
	s.fine("rename", os.Rename(path, path+".1"))
	s.fine("ReopenLog", logs.ReopenLog(s.ctx, id))
	s.untilLogged(conf, c, "after")
	s.want("ReopenLog of nobody", logs.ReopenLog(s.ctx, nobody()), runtime.ErrNotFound)
}
