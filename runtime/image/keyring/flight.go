package keyring

import (
	"context"
	"time"
)

// flight is one question under way, and those who wait for its answer.
type flight struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiting int
	r       *response
	err     error
}

// shared asks, or waits for the answer somebody else has already asked for. The question ends with the last who waits.
func (p *plugin) shared(ctx context.Context, key string, q request) (*response, error) {
	f := p.board(ctx, key, q)
	select {
	case <-f.done:
	case <-ctx.Done():
		if last := p.leave(key, f); last {
			f.cancel()
			<-f.done
		}
		return nil, context.Cause(ctx)
	}
	p.leave(key, f)
	return f.r, f.err
}

func (p *plugin) board(ctx context.Context, key string, q request) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flights[key]
	if f == nil {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{done: make(chan struct{}), cancel: cancel}
		p.flights[key] = f
		go func() {
			defer cancel()
			defer close(f.done)
			f.r, f.err = p.run(own, q)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.land(key, f)
		}()
	}
	f.waiting++
	return f
}

// run asks, and counts it.
func (p *plugin) run(ctx context.Context, q request) (*response, error) {
	start := time.Now()
	r, err := p.ask(ctx, q)
	p.metrics.duration.Record(time.Since(start).Seconds(), p.Name)
	if err != nil {
		p.metrics.errors.Record(1, p.Name)
	}
	return r, err
}

// leave says whether nobody waits any more.
func (p *plugin) leave(key string, f *flight) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		p.land(key, f)
		return true
	}
	return false
}

// land makes the next who asks begin anew. The caller holds mu.
func (p *plugin) land(key string, f *flight) {
	if p.flights[key] == f {
		delete(p.flights, key)
	}
}
