package syncloop

import (
	"testing"
	"testing/synctest"
)

func TestBusyIsWhoIsInAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Roster
		if r.Busy("nobody") != nil {
			t.Error("nobody works on a pod that nobody knows")
		}
		r.init()
		w := r.enter("u", nil, "")
		if r.Busy("u") != nil {
			t.Error("nobody works on it yet")
		}
		w.stepping, w.stepped = true, make(chan struct{})
		busy := r.Busy("u")
		select {
		case <-busy:
			t.Error("the step has not ended")
		default:
		}
		w.stepping = false
		close(w.stepped)
		<-busy
		if r.Busy("u") != nil {
			t.Error("nobody works on it any more")
		}
	})
}
