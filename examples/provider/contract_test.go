package main

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/looptest"
)

// A runtime of one's own is tested like this: open gives it a world, and says what runs there.
func TestRuntimeKeepsTheContract(t *testing.T) {
	looptest.Run(t, func(*testing.T) looptest.Fixture {
		c := &Cloud{Boot: 20 * time.Millisecond, Shutdown: 20 * time.Millisecond}
		return looptest.Fixture{
			Runtime:   Runtime{c},
			Next:      func() syncloop.Runtime { return Runtime{c} },
			Container: app("serve"),
			Ends:      func(code int32) v1.Container { return app("work", "50ms", fmt.Sprint(code)) },
		}
	})
}

func TestAdapterKeepsTheContract(t *testing.T) {
	looptest.Run(t, func(*testing.T) looptest.Fixture {
		l := newLegacy(&Cloud{Boot: 20 * time.Millisecond, Shutdown: 20 * time.Millisecond})
		return looptest.Fixture{
			Runtime:   Adapt(l),
			Next:      func() syncloop.Runtime { return Adapt(l) },
			Container: app("serve"),
			Ends:      func(code int32) v1.Container { return app("work", "50ms", fmt.Sprint(code)) },
			Except:    except(),
		}
	})
}

func app(command ...string) v1.Container {
	return v1.Container{Image: "example.com/app:1", Command: command}
}

// What virtual-kubelet's interface cannot say, and what its providers do by themselves.
func except() map[string]string {
	return map[string]string{
		"what ended is started again as its restart policy says": "restarts are the provider's own, and this one has none",
		"what its liveness probe gives up is started again":      "no call of a provider is for that",
		"release leaves what ended to be read":                   "a provider forgets a pod that it deletes",
	}
}
