package runtimetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func containerRules() map[string]func(*scene) {
	return map[string]func(*scene){
		"container keeps what it was made with": containerKeeps,
		"container lists are filtered":          containerFilters,
		"container goes from created to running to exited": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			id := s.create(s.run(conf), s.container("main", "sleep 1; exit 3", conf))
			c := s.look(id)
			if c.State != runtime.Created || !c.Started.IsZero() || !c.Finished.IsZero() {
				s.Errorf("before its start: %v, started %v, finished %v", c.State, c.Started, c.Finished)
			}
			s.fine("StartContainer", s.StartContainer(s.ctx, id))
			if c = s.look(id); c.State != runtime.Running || c.Started.Before(c.Created) || !c.Finished.IsZero() {
				s.Errorf("after its start: %v, started %v, finished %v", c.State, c.Started, c.Finished)
			}
			if c = s.exited(id); c.ExitCode != 3 || c.Finished.Before(c.Started) || c.Reason == "" {
				s.Errorf("at its end: code %d, started %v, finished %v, reason %q", c.ExitCode, c.Started, c.Finished, c.Reason)
			}
		},
		"container exit codes are those of the process": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			for _, code := range []int32{0, 1, 42, 255} {
				id := s.start(sandbox, s.container(fmt.Sprintf("code%d", code), fmt.Sprintf("exit %d", code), conf))
				if c := s.exited(id); c.ExitCode != code {
					s.Errorf("exit code %d, want %d", c.ExitCode, code)
				}
			}
		},
		"container of the same name and attempt is refused, the next attempt is not": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			c := s.container("main", "exit 1", conf)
			first := s.start(sandbox, c)
			s.exited(first)
			if id, err := s.CreateContainer(s.ctx, sandbox, c); err == nil {
				s.Errorf("a second container %s was made", id)
			}
			next := *c
			next.Attempt, next.LogPath = 1, "main/1.log"
			second := s.look(s.create(sandbox, &next))
			if second.Restarts != 1 || second.ID == first || second.Created.Before(s.look(first).Created) {
				s.Errorf("the next attempt: %+v", second)
			}
		},
		"container name is free again after its removal, its ID is not": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			c := s.container("main", "true", conf)
			first := s.start(sandbox, c)
			s.exited(first)
			s.fine("RemoveContainer", s.RemoveContainer(s.ctx, first))
			if second := s.look(s.create(sandbox, c)); second.ID == first || second.State != runtime.Created {
				s.Errorf("made anew after %s: %+v", first, second)
			}
		},
		"container is started once": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			for name, script := range map[string]string{"running": "sleep 3600", "ended": "true"} {
				id := s.start(sandbox, s.container(name, script, conf))
				if name == "ended" {
					s.exited(id)
				}
				if err := s.StartContainer(s.ctx, id); err == nil {
					s.Errorf("a second start of a container that is %s is no error", name)
				}
			}
		},
		"container from an image that is not there is refused": func(s *scene) {
			if s.image == "" {
				return
			}
			conf := s.sandboxConfig(s.pod)
			c := s.container("main", "true", conf)
			c.Image = "example.invalid/none:1"
			_, err := s.CreateContainer(s.ctx, s.run(conf), c)
			s.want("CreateContainer", err, runtime.ErrNotFound)
		},
		"container sizes can be changed": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			c := s.container("main", "sleep 3600", conf)
			c.Resources = runtime.Resources{CPUShares: 128, Memory: 64 << 20}
			id := s.start(s.run(conf), c)
			err := s.UpdateContainer(s.ctx, id, runtime.Resources{CPUShares: 256, Memory: 96 << 20})
			if errors.Is(err, errors.ErrUnsupported) {
				return
			}
			s.fine("UpdateContainer", err)
			if r := s.look(id).Resources; r != nil && (r.CPUShares != 256 || r.Memory != 96<<20) {
				s.Errorf("resources after the change: %+v", *r)
			}
		},
	}
}

func containerKeeps(s *scene) {
	before := time.Now().Add(-5 * time.Second)
	conf := s.sandboxConfig(s.pod)
	sandbox := s.run(conf)
	want := s.container("main", "sleep 3600", conf)
	want.Attempt, want.LogPath = 2, "main/2.log"
	id := s.start(sandbox, want)
	list, err := s.ListContainers(s.ctx, runtime.Filter{Pod: s.pod.UID})
	if err != nil || len(list) != 1 {
		s.Fatalf("ListContainers = %+v, %v, want one", list, err)
	}
	whole := s.look(id)
	for how, c := range map[string]runtime.Container{"list": list[0], "look": whole} {
		if c.Pod != s.pod || c.ID != id || c.Name != "main" || c.SandboxID != sandbox || c.Restarts != 2 ||
			c.State != runtime.Running || c.Image != s.image || c.Hash() != "1a2b3c" {
			s.Errorf("%s: %+v", how, c)
		}
		if c.Created.Before(before) || c.Created.After(time.Now().Add(5*time.Second)) {
			s.Errorf("%s: created %v", how, c.Created)
		}
		s.fine(how+": labels", includes(c.Labels, want.Labels))
		s.fine(how+": annotations", includes(c.Annotations, want.Annotations))
	}
	if path := conf.LogDir + "/" + want.LogPath; whole.LogPath != path {
		s.Errorf("log path %q, want %q", whole.LogPath, path)
	}
	if s.imageless {
		return
	}
	image, err := s.Image(s.ctx, s.image)
	s.fine("Image", err)
	if list[0].ImageID != image.ID || whole.ImageID != image.ID {
		s.Errorf("image ID %q in the list, %q in the look, want %q", list[0].ImageID, whole.ImageID, image.ID)
	}
	byRef, err := s.Image(s.ctx, whole.ImageRef)
	if err != nil || byRef.ID != image.ID {
		s.Errorf("image ref %q leads to %q, %v, want %q", whole.ImageRef, byRef.ID, err, image.ID)
	}
}

func containerFilters(s *scene) {
	conf, foreignConf := s.sandboxConfig(s.pod), s.sandboxConfig(s.newPod())
	sandbox := s.run(conf)
	ended := s.start(sandbox, s.container("ended", "true", conf))
	created := s.create(sandbox, s.container("created", "true", conf))
	alive := s.start(sandbox, s.container("alive", "sleep 3600", conf))
	foreign := s.start(s.run(foreignConf), s.container("alive", "sleep 3600", foreignConf))
	s.exited(ended)

	ids := func(f runtime.Filter) map[string]bool {
		list, err := s.ListContainers(s.ctx, f)
		s.fine("ListContainers", err)
		m := map[string]bool{}
		for _, c := range list {
			m[c.ID] = true
		}
		return m
	}
	if m := ids(runtime.Filter{}); !m[ended] || !m[created] || !m[alive] || !m[foreign] {
		s.Errorf("all: %v", m)
	}
	if m := ids(runtime.Filter{OnlyAlive: true}); m[ended] || m[created] || !m[alive] || !m[foreign] {
		s.Errorf("only alive: %v", m)
	}
	if m := ids(runtime.Filter{Pod: s.pod.UID}); len(m) != 3 || m[foreign] {
		s.Errorf("of the pod: %v", m)
	}
	if m := ids(runtime.Filter{Pod: s.pod.UID, OnlyAlive: true}); len(m) != 1 || !m[alive] {
		s.Errorf("of the pod, only alive: %v", m)
	}
	if m := ids(runtime.Filter{Pod: "nobody"}); len(m) != 0 {
		s.Errorf("of nobody: %v", m)
	}
}
