package syncloop

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNext(t *testing.T) {
	for _, tt := range []struct {
		name string
		from phase
		e    event
		want phase
		do   action
	}{
		{"a held pod begins when it is admitted", held, admitted, syncing, work},
		{"a refused pod goes through its end, for something of it may run", held, refused, terminating, work},
		{"a held pod that is deleted goes the same way", held, ended, terminating, work},
		{"an end cuts the step under way", syncing, ended, terminating, cut},
		{"a shorter grace cuts the stop under way", terminating, shorter, terminating, cut},
		{"to end twice changes nothing", terminating, ended, terminating, nothing},
		{"what is still is given back", terminating, still, terminated, work},
		{"it cannot be hurried any more", terminated, shorter, terminated, nothing},
		{"what is given back has finished", terminated, returned, finished, work},
		{"only a finished pod is forgotten", finished, gone, forgotten, nothing},
		{"a running one is not", syncing, gone, syncing, nothing},
		{"nothing comes after", forgotten, admitted, forgotten, nothing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if p, do := next(tt.from, tt.e); p != tt.want || do != tt.do {
				t.Errorf("got %v %v, want %v %v", p, do, tt.want, tt.do)
			}
		})
	}
}

func TestAPodHoldsResourcesUntilItsLastStatusMayBeTold(t *testing.T) {
	for p, holds := range map[phase]bool{held: false, syncing: true, terminating: true, terminated: false, finished: false, forgotten: false} {
		w := &worker{pod: new(v1.Pod), phase: p}
		if w.active() != holds {
			t.Errorf("%v: holds resources: %v", p, w.active())
		}
	}
}
