package runtimetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func busybox() runtime.Image {
	return runtime.Image{
		ID: "sha256:b0b0", Tags: []string{"example.com/busybox:1"}, Size: 4 << 20,
		Digests: []string{"example.com/busybox@sha256:d1d1"},
	}
}

func TestEngineKeepsTheContract(t *testing.T) {
	e := runtimetest.New(busybox())
	e.Logs = true
	runtimetest.Run(t, func() runtime.Engine { return e }, runtimetest.Able(func(runtime.Engine) runtimetest.Abilities {
		return runtimetest.Abilities{Notifier: e, LogReopener: e, Stats: e}
	}))
}
