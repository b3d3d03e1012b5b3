package runtimetest

import (
	"errors"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func sandboxRules() map[string]func(*scene) {
	return map[string]func(*scene){
		"sandbox keeps what it was made with":        sandboxKeeps,
		"sandbox lists are filtered":                 sandboxFilters,
		"sandbox in the network of the host says so": hostNetwork,
		"sandbox of the same pod and attempt is refused, the next attempt is not": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			s.run(conf)
			if id, err := s.RunSandbox(s.ctx, conf); err == nil {
				s.Errorf("a second sandbox %s was made", id)
			}
			next := *conf
			next.Attempt = 1
			s.run(&next)
		},
		"sandbox name is free again after its removal": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			s.fine("RemoveSandbox", s.RemoveSandbox(s.ctx, s.run(conf)))
			s.run(conf)
		},
		"sandbox stopped is not ready and nothing runs in it": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			container := s.start(sandbox, s.container("main", "sleep 3600", conf))
			for range 2 { // the second has nothing to do
				s.fine("StopSandbox", s.StopSandbox(s.ctx, sandbox))
			}
			b, err := s.Sandbox(s.ctx, sandbox)
			if err != nil || b.Ready {
				s.Errorf("Sandbox = %+v, %v, want one that is not ready", b, err)
			}
			if c := s.look(container); c.State != runtime.Exited || c.ExitCode == 0 {
				s.Errorf("its container is %v with code %d, want killed", c.State, c.ExitCode)
			}
			if _, err := s.CreateContainer(s.ctx, sandbox, s.container("late", "true", conf)); err == nil {
				s.Error("a container was made in a stopped sandbox")
			}
		},
		"sandbox removed takes its containers along, running or not": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			running := s.start(sandbox, s.container("running", "sleep 3600", conf))
			ended := s.start(sandbox, s.container("ended", "true", conf))
			created := s.create(sandbox, s.container("created", "true", conf))
			s.exited(ended)
			for range 2 {
				s.fine("RemoveSandbox", s.RemoveSandbox(s.ctx, sandbox))
			}
			_, err := s.Sandbox(s.ctx, sandbox)
			s.want("Sandbox", err, runtime.ErrNotFound)
			for _, id := range []string{running, ended, created} {
				_, err := s.Container(s.ctx, id)
				s.want("Container", err, runtime.ErrNotFound)
			}
		},
	}
}

func sandboxKeeps(s *scene) {
	before := time.Now().Add(-5 * time.Second)
	conf := s.sandboxConfig(s.pod)
	conf.Attempt = 3
	id := s.run(conf)
	whole, err := s.Sandbox(s.ctx, id)
	if err != nil {
		s.Fatalf("Sandbox: %v", err)
	}
	list, err := s.ListSandboxes(s.ctx, runtime.Filter{Pod: s.pod.UID})
	if err != nil || len(list) != 1 {
		s.Fatalf("ListSandboxes = %+v, %v, want one", list, err)
	}
	for how, b := range map[string]runtime.Sandbox{"list": list[0], "look": whole} {
		if b.PodRef != s.pod || b.ID != id || b.Attempt != 3 || !b.Ready || b.Handler != "" {
			s.Errorf("%s: %+v", how, b)
		}
		if b.Created.Before(before) || b.Created.After(time.Now().Add(5*time.Second)) {
			s.Errorf("%s: created %v", how, b.Created)
		}
		s.fine(how+": labels", includes(b.Labels, conf.Labels))
		s.fine(how+": annotations", includes(b.Annotations, conf.Annotations))
	}
	if whole.NetworkKnown && !whole.HostNetwork && len(whole.IPs) == 0 {
		s.Errorf("a network of its own is known, but no address: %+v", whole)
	}
}

func hostNetwork(s *scene) {
	conf := s.sandboxConfig(s.pod)
	conf.Hostname, conf.Namespaces.HostNetwork = "", true
	id, err := s.RunSandbox(s.ctx, conf)
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil {
		s.Fatalf("RunSandbox: %v", err)
	}
	if b, err := s.Sandbox(s.ctx, id); err != nil || !b.HostNetwork {
		s.Errorf("Sandbox = %+v, %v, want HostNetwork", b, err)
	}
}

func sandboxFilters(s *scene) {
	other := s.newPod()
	stopped := s.run(s.sandboxConfig(s.pod))
	s.fine("StopSandbox", s.StopSandbox(s.ctx, stopped))
	next := s.sandboxConfig(s.pod)
	next.Attempt = 1
	alive := s.run(next)
	foreign := s.run(s.sandboxConfig(other))

	ids := func(f runtime.Filter) map[string]bool {
		list, err := s.ListSandboxes(s.ctx, f)
		s.fine("ListSandboxes", err)
		m := map[string]bool{}
		for _, b := range list {
			m[b.ID] = true
		}
		return m
	}
	if m := ids(runtime.Filter{}); !m[stopped] || !m[alive] || !m[foreign] {
		s.Errorf("all: %v", m)
	}
	if m := ids(runtime.Filter{OnlyAlive: true}); m[stopped] || !m[alive] || !m[foreign] {
		s.Errorf("only alive: %v", m)
	}
	if m := ids(runtime.Filter{Pod: s.pod.UID}); len(m) != 2 || !m[stopped] || !m[alive] {
		s.Errorf("of the pod: %v", m)
	}
	if m := ids(runtime.Filter{Pod: s.pod.UID, OnlyAlive: true}); len(m) != 1 || !m[alive] {
		s.Errorf("of the pod, only alive: %v", m)
	}
}
