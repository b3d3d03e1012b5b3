package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/imagegc"
	"github.com/kubeletkit/kubeletkit/server"
)

// heap is a collector that writes down what it was asked for.
type heap struct {
	name  string
	asked *[]string
	steps []imagegc.Step
	fail  error
}

func (h heap) ask(what string) ([]imagegc.Step, error) {
	*h.asked = append(*h.asked, what+" "+h.name)
	return h.steps, h.fail
}

func (h heap) Plan(context.Context) ([]imagegc.Step, error)        { return h.ask("plan") }
func (h heap) PlanReclaim(context.Context) ([]imagegc.Step, error) { return h.ask("plan all") }

func (h heap) Collect(context.Context) error {
	_, err := h.ask("collect")
	return err
}

func (h heap) Reclaim(context.Context) error {
	_, err := h.ask("reclaim")
	return err
}

func TestGC(t *testing.T) {
	dead := []imagegc.Step{{Kind: "container", Name: "default/job(u1) work#0", Remove: true, Why: "its pod is no more"}}
	images := []imagegc.Step{
		{Kind: "image", Name: "old:1", Size: 300 << 20, Remove: true, Why: "nobody has used it for 1h"},
		{Kind: "image", Name: "app:2", Size: 5 << 10, Why: "2 containers use it"},
	}
	table := strings.TrimPrefix(`
DOES    KIND       NAME                    SIZE   WHY
remove  container  default/job(u1) work#0  -      its pod is no more
remove  image      old:1                   300Mi  nobody has used it for 1h
keep    image      app:2                   5Ki    2 containers use it
`, "\n")
	const sum = ": 1 containers, 0 sandboxes, 1 images of 300Mi (layers that several share are counted in each)\n"
	for _, tt := range []struct {
		rule, args, asked, last string
		fail                    error
	}{
		{"a dry run only asks", "--dry-run", "plan dead,plan images", "to be removed" + sum, nil},
		{"otherwise the agent's round comes now, dead containers first", "", "plan dead,collect dead,plan images,collect images", "removed" + sum, nil},
		{"all is the round of a full disk", "--all", "plan all dead,reclaim dead,plan all images,reclaim images", "removed" + sum, nil},
		{"and may be tried dry", "--all --dry-run", "plan all dead,plan all images", "to be removed" + sum, nil},
		{"trouble with one does not keep the other", "--dry-run", "plan dead,plan images", "to be removed" + sum, errors.New("the runtime does not answer")},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			var asked []string
			root, s := agent(t, nil, func(c *server.Config) {
				c.Garbage = garbage{heap{"dead", &asked, dead, tt.fail}, heap{"images", &asked, images, nil}}
			})
			var out strings.Builder
			err := gcCommand(t.Context(), append(strings.Fields(tt.args), "--root-dir", root, "--server", s.URL), &out)
			if (err == nil) != (tt.fail == nil) || err != nil && err.Error() != tt.fail.Error() {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.asked, strings.Join(asked, ",")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(table+tt.last, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGCSaysWhatIsWrong(t *testing.T) {
	root, s := agent(t, nil)
	for _, tt := range []struct{ args, want string }{
		{"web", "gc takes flags only"},
		{"--server http://127.0.0.1:1", "is no https URL"},
		{"--root-dir " + t.TempDir() + " --server " + s.URL, "does it run with this --root-dir"},
		{"--root-dir " + root + " --server " + s.URL, "/debug/gc: unsupported operation"},
	} {
		if err := gcCommand(t.Context(), strings.Fields(tt.args), &strings.Builder{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
	}
}
