// Package layers runs the parts of an agent, and ends them in the right order.
package layers

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// A Part runs until its context ends.
type Part interface {
	Run(ctx context.Context) error
}

// Run runs groups of parts, the first one lowest, until ctx ends or a part fails. They start from the ground up and stop
// from the top down: a group is told to stop when all above it have ended.
func Run(ctx context.Context, groups ...[]Part) error {
	if len(groups) == 0 {
		<-ctx.Done()
		return nil
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	above, fail := context.WithCancel(ctx)
	defer fail()
	var g errgroup.Group
	for _, p := range groups[0] {
		g.Go(func() error {
			defer fail() // without this part there is no point in working on
			return p.Run(own)
		})
	}
	err := Run(above, groups[1:]...)
	stop()
	return errors.Join(err, g.Wait())
}
