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

// Who reads that a pod is over gives away what it holds (kubelet: a terminal phase is delayed until nothing can run).
func TestAPodIsOverForOthersWhenNothingOfItCanRun(t *testing.T) {
	done := v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "m", Conditions: []v1.PodCondition{{Type: v1.PodReady}, {Type: v1.DisruptionTarget}}}
	running := v1.PodStatus{Phase: v1.PodRunning, Reason: "r"}
	for name, tt := range map[string]struct {
		shown, source, want v1.PodStatus
	}{
		"nothing was told yet":                    {want: v1.PodStatus{Phase: v1.PodPending}},
		"it was told to run":                      {shown: running, want: running},
		"its source has it running":               {source: running, want: running},
		"others know already":                     {source: v1.PodStatus{Phase: v1.PodFailed}, want: done},
		"what was told counts, not an old source": {shown: running, source: v1.PodStatus{Phase: v1.PodPending}, want: running},
	} {
		w := &worker{pod: &v1.Pod{Status: tt.source}, shown: tt.shown}
		got := w.delayed(done)
		if got.Phase != tt.want.Phase || got.Reason != tt.want.Reason || len(got.Conditions) != max(1, len(tt.want.Conditions)) || len(done.Conditions) != 2 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
