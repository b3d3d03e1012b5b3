package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// runner is a part that runs until its context ends.
type runner interface {
	Run(ctx context.Context) error
}

// layers runs groups of parts, the first one lowest, until ctx ends or a part fails. A group is told to stop when all above
// it have ended: the last statuses are made while the loop stops.
func layers(ctx context.Context, groups ...[]runner) error {
	if len(groups) == 0 {
		<-ctx.Done()
		return nil
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	above, fail := context.WithCancel(ctx)
	defer fail()
	var g errgroup.Group
	for _, r := range groups[0] {
		g.Go(func() error {
			defer fail() // without this part there is no point in working on
			return r.Run(own)
		})
	}
	err := layers(above, groups[1:]...)
	stop()
	return errors.Join(err, g.Wait())
}
