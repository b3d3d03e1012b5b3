package agent

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// runner is a part that runs until its context ends.
type runner interface {
	Run(ctx context.Context) error
}

// run runs layers of parts, the first one lowest, until ctx ends or a part fails. A layer is told to stop when all above it
// have ended.
func run(ctx context.Context, layers ...[]runner) error {
	if len(layers) == 0 {
		<-ctx.Done()
		return nil
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	above, fail := context.WithCancel(ctx)
	defer fail()
	var g errgroup.Group
	for _, r := range layers[0] {
		g.Go(func() error {
			defer fail() // without this part there is no point in working on
			return r.Run(own)
		})
	}
	err := run(above, layers[1:]...)
	stop()
	return errors.Join(err, g.Wait())
}
