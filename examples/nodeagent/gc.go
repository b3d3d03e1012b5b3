package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/imagegc"
)

// collector removes what nobody needs, or only says what that is. imagegc has two.
type collector interface {
	Plan(ctx context.Context) ([]imagegc.Step, error)
	PlanReclaim(ctx context.Context) ([]imagegc.Step, error)
	Collect(ctx context.Context) error
	Reclaim(ctx context.Context) error
}

// garbage shows what the agent would remove if its round came now, and with POST has it come now. With all=1 that is the round
// of a disk that runs full. Only the agent can tell: it knows which pods are wanted, which images are about to be used, and
// since when each was not.
type garbage []collector

// leftovers is the answer.
type leftovers struct {
	Steps   []imagegc.Step `json:"steps"`
	Trouble string         `json:"trouble,omitempty"` // what could not be removed, or not be looked at
}

// ServeHTTP asks one collector after the other: images are free once their dead containers are gone.
func (g garbage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := leftovers{Steps: []imagegc.Step{}}
	var errs []error
	for _, c := range g {
		plan, do := c.Plan, c.Collect
		if r.URL.Query().Get("all") == "1" {
			plan, do = c.PlanReclaim, c.Reclaim
		}
		steps, err := plan(r.Context())
		errs = append(errs, err)
		answer.Steps = append(answer.Steps, steps...)
		if r.Method == http.MethodPost {
			errs = append(errs, do(r.Context()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		answer.Trouble = err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // who went away does not need it
}

// gcCommand has a running agent remove what nobody needs, or with --dry-run say what that is.
func gcCommand(ctx context.Context, args []string, out io.Writer) error {
	c := &client{}
	f, port, dry, all := gcFlags(c)
	f.SetOutput(out)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("gc takes flags only, not %q", f.Arg(0))
	}
	if err := c.at(*port); err != nil {
		return err
	}
	defer c.close()
	path, method := "/debug/gc", http.MethodPost
	if *all {
		path += "?all=1"
	}
	if *dry {
		method = http.MethodGet
	}
	var answer leftovers
	if err := c.ask(ctx, method, path, &answer); err != nil {
		return err
	}
	if _, err := io.WriteString(out, planTable(answer.Steps, *dry)); err != nil {
		return fmt.Errorf("show what goes: %w", err)
	}
	if answer.Trouble != "" {
		return errors.New(answer.Trouble)
	}
	return nil
}

func gcFlags(c *client) (f *flag.FlagSet, port *int, dry, all *bool) {
	f = flag.NewFlagSet("nodeagent gc", flag.ContinueOnError)
	port = c.flags(f)
	dry = f.Bool("dry-run", false, "remove nothing, only say what would be removed, what stays, and why")
	all = f.Bool("all", false, "as if the disk ran full: all images that nobody uses, all that is dead of pods that have ended")
	return f, port, dry, all
}

// planTable shows steps, and what they come to.
func planTable(steps []imagegc.Step, dry bool) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DOES\tKIND\tNAME\tSIZE\tWHY")
	count, size := map[string]int{}, int64(0)
	for _, s := range steps {
		does := "keep"
		if s.Remove {
			does = "remove"
			count[s.Kind]++
			size += s.Size
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", does, s.Kind, s.Name, bytesText(s.Size), s.Why)
	}
	_ = w.Flush() // a builder takes everything
	verb := "removed"
	if dry {
		verb = "to be removed"
	}
	fmt.Fprintf(&b, "%s: %d containers, %d sandboxes, %d images of %s (layers that several share are counted in each)\n",
		verb, count["container"], count["sandbox"], count["image"], bytesText(size))
	return b.String()
}

// bytesText is an amount for people; nothing is known of zero.
func bytesText(n int64) string {
	const mib = 1 << 20
	switch {
	case n <= 0:
		return "-"
	case n < mib:
		return resource.NewQuantity(n>>10<<10, resource.BinarySI).String()
	}
	return fmt.Sprintf("%dMi", n/mib)
}
