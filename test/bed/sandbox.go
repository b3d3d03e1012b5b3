package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// trySandbox runs one sandbox and removes it. Some machines, often those that are containers or small VMs
// themselves, refuse to lower oom_score_adj, and every sandbox dies there. If the first try fails, a
// second is made with containerd told to live with that; a machine that can do without is not told.
func (b *Bed) trySandbox(ctx context.Context) error {
	s, err := b.load(ctx)
	if err != nil || s.Tried {
		return err
	}
	first := b.runSandbox(ctx)
	if first != nil {
		b.say("a sandbox did not start; trying again with restrict_oom_score_adj")
		s.RestrictOOM = true
		if err := errors.Join(b.Stop(ctx), b.save(s), b.Start(ctx)); err != nil {
			return err
		}
		if err := b.runSandbox(ctx); err != nil {
			return errors.Join(fmt.Errorf("try a sandbox: %w", first), fmt.Errorf("and with restrict_oom_score_adj: %w", err))
		}
	}
	s.Tried = true
	return b.save(s)
}

func (b *Bed) runSandbox(ctx context.Context) error {
	config := b.path("try.json")
	text := `{"metadata": {"name": "try", "namespace": "bed", "uid": "try"}, "linux": {}}`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	defer os.Remove(config)
	id, err := b.crictl(ctx, "runp", config)
	if err != nil {
		return err
	}
	_, err = b.crictl(ctx, "rmp", "--force", strings.TrimSpace(id))
	return err
}
