package syncloop_test

import (
	"testing"
	"testing/synctest"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// What cannot be removed, though nothing of it runs, keeps no newer version waiting, and is removed when that works again.
func TestWhatCannotBeRemovedKeepsNobodyWaiting(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		steps []string
	}{
		{"the old version of an edited file", []string{"edit web app=sleep_1000 uid=web-2 grace=5"}},
		{"a stranger", []string{"edit web app=sleep_1000 uid=web-2 grace=5", "restart"}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.start()
				defer n.stop()
				play := func(steps ...string) {
					for _, s := range steps {
						n.do(s)
						synctest.Wait()
					}
				}
				runs := func() (uids []string) {
					_, all := n.engine.Truth()
					for _, c := range all {
						if c.State == runtime.Running {
							uids = append(uids, string(c.Pod.UID))
						}
					}
					return uids
				}
				play("add web app=sleep_1000 grace=5", "down RemoveContainer", "down RemoveSandbox")
				play(tt.steps...)
				play("advance 20s")
				if got := runs(); len(got) != 1 || got[0] != "web-2" {
					t.Errorf("these run: %v", got)
				}
				play("up RemoveContainer", "up RemoveSandbox", "advance 1m")
				if _, all := n.engine.Truth(); len(all) != 1 || len(runs()) != 1 {
					t.Errorf("containers are left: %v", all)
				}
			})
		})
	}
}
