package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubeletkit/kubeletkit/internal/asuser"
)

func TestAsAUserRunsIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		lines []string
	}{
		{"a runtime of its own", nil, []string{
			"default/web-cloud: Pending, 0 of 1 ready, 0 restarts ",
			"default/web-cloud: Running, 1 of 1 ready, 0 restarts ",
			"default/work-cloud: Running, 1 of 1 ready, 0 restarts ",
			"default/work-cloud: Succeeded, 0 of 1 ready, 0 restarts ",
			"default/work-cloud: has ended",
		}},
		{"a provider written for virtual-kubelet", []string{"-adapter"}, []string{
			"default/web-cloud: Pending, 0 of 1 ready, 0 restarts ",
			"default/web-cloud: Running, 1 of 1 ready, 0 restarts ProviderRuns",
			"default/work-cloud: Running, 1 of 1 ready, 0 restarts ProviderRuns",
			"default/work-cloud: Succeeded, 0 of 1 ready, 0 restarts ProviderDone",
			"default/work-cloud: has ended",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := asuser.Build(t)
			manifests, socket := p.Manifests("manifests", "1500ms", "8s"), filepath.Join(p.Dir, "api")
			r := p.Start(nil, append(c.args, "-socket", socket, manifests)...)
			r.Prints(c.lines...)
			if log, _ := p.Ask(socket, http.MethodGet, "/containerLogs/default/web-cloud/web"); log != "web begins to serve\n" {
				t.Errorf("log %q", log)
			}
			if err := os.Remove(filepath.Join(manifests, "web.yaml")); err != nil {
				t.Fatal(err)
			}
			r.Prints("default/web-cloud: has ended")
			if pods, _ := p.Ask(socket, http.MethodGet, "/runningpods/"); pods != `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`+"\n" && pods != `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}` {
				t.Errorf("still running: %s", pods)
			}
			r.Interrupt()
		})
	}
}
