package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Remove takes away what is left of an ended pod. Release keeps dead containers and their logs, so that they can be read,
// Renew only the logs; Purge removes every trace.
func (r *Runtime) Remove(ctx context.Context, uid types.UID, what runtime.Removal) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	if what == runtime.Release {
		if err := r.removeCgroup(ctx, uid); err != nil {
			return err
		}
		return r.ranges.release(r.files, uid)
	}
	sandboxes, containers, err := r.remains(ctx, uid)
	if err != nil {
		return err
	}
	var errs []error
	goes := map[string]bool{} // sandboxes, with all that is in them
	for _, s := range sandboxes {
		goes[s.ID] = true
	}
	for _, c := range containers {
		seen, known := r.pictures.log(uid, c.ID)
		along := known && goes[c.SandboxID] && seen.State == runtime.Exited
		switch {
		case what == runtime.Renew:
			if errs = append(errs, r.files.removeLink(&c)); !along {
				errs = append(errs, r.removeContainer(ctx, c.ID, false))
			}
		case known:
			errs = append(errs, r.removeWithLog(ctx, &seen, along))
		default:
			errs = append(errs, r.removeContainer(ctx, c.ID, true))
		}
	}
	for _, s := range sandboxes {
		if r.memory.did(uid, sandboxStopped, s.ID) {
			errs = append(errs, r.cfg.Engine.RemoveSandbox(ctx, s.ID))
		} else {
			errs = append(errs, r.removeSandbox(ctx, s.ID))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := r.removeCgroup(ctx, uid); err != nil {
		return err
	}
	errs = append(errs, r.ranges.release(r.files, uid))
	for _, dir := range r.files.logDirs(uid) {
		if what == runtime.Purge {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	if r.cfg.Root != "" {
		errs = append(errs, r.files.removePod(uid))
	}
	r.memory.forget(uid)
	r.pictures.forget(uid)
	r.applied.Forget(uid)
	return errors.Join(errs...)
}

// remains are what the engine has of a pod: as the look has shown it that came after its end, if that was a short time ago.
func (r *Runtime) remains(ctx context.Context, uid types.UID) (sandboxes []runtime.Sandbox, containers []runtime.Container, err error) {
	if seen, good := r.pictures.all(uid, time.Now()); good {
		return seen.Sandboxes, seen.Containers, nil
	}
	f := runtime.Filter{Pod: uid}
	if containers, err = r.cfg.Engine.ListContainers(ctx, f); err != nil {
		return nil, nil, fmt.Errorf("list containers of pod %s: %w", uid, err)
	}
	if sandboxes, err = r.cfg.Engine.ListSandboxes(ctx, f); err != nil {
		return nil, nil, fmt.Errorf("list sandboxes of pod %s: %w", uid, err)
	}
	return sandboxes, containers, nil
}

// RemoveInstance removes one container that has ended, with its log, the link to it and its last words. One that is gone is no error.
func (r *Runtime) RemoveInstance(ctx context.Context, id string) error {
	return r.removeContainer(ctx, id, true)
}

// removeContainer forgets one instance, with its log or without.
func (r *Runtime) removeContainer(ctx context.Context, id string, logs bool) error {
	if logs {
		c, err := r.cfg.Engine.Container(ctx, id)
		switch {
		case errors.Is(err, runtime.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("look at container %s: %w", id, err)
		}
		return r.removeWithLog(ctx, &c, false)
	}
	if err := r.cfg.Engine.RemoveContainer(ctx, id); err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}

// removeWithLog forgets one instance that was looked at; its log goes first, so that none is left without an owner. One that
// goes with its sandbox is left to that.
func (r *Runtime) removeWithLog(ctx context.Context, c *runtime.Container, goes bool) error {
	if err := r.files.removeLog(c); err != nil {
		return fmt.Errorf("remove log of container %s: %w", c.Name, err)
	}
	r.files.removeLastWords(c.Pod.UID, c.Name, c.Mounts)
	if goes {
		return nil
	}
	return r.removeContainer(ctx, c.ID, false)
}

// removeSandbox stops a sandbox before it goes: one that died by itself still has its network.
func (r *Runtime) removeSandbox(ctx context.Context, id string) error {
	if err := r.cfg.Engine.StopSandbox(ctx, id); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	if err := r.cfg.Engine.RemoveSandbox(ctx, id); err != nil {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}

// Sweep removes directories of pods that are no more, and forgets what it remembered of them. Links to logs are put right.
func (r *Runtime) Sweep(ctx context.Context, keep func(types.UID) bool) error {
	pods, err := r.Pods(ctx)
	if err != nil {
		return err
	}
	exists := map[types.UID]bool{}
	var lives []runtime.Container
	for _, p := range pods {
		exists[p.UID] = true
		for _, c := range p.Containers {
			if c.State == runtime.Running || c.State == runtime.Unknown {
				lives = append(lives, c)
			}
		}
	}
	gone := func(uid types.UID) bool { return !exists[uid] && !keep(uid) }
	var errs []error
	r.files.eachLogDir(func(uid types.UID, dir string) {
		if gone(uid) {
			errs = append(errs, os.RemoveAll(dir))
		}
	})
	errs = append(errs, r.files.tidyLinks(lives))
	if r.cfg.Root != "" {
		entries, err := os.ReadDir(r.files.podDir(""))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if uid := types.UID(e.Name()); gone(uid) {
				errs = append(errs, r.ranges.release(r.files, uid), r.files.removePod(uid))
			}
		}
	}
	for _, uid := range r.memory.known() {
		if gone(uid) {
			r.memory.forget(uid)
			r.pictures.forget(uid)
		}
	}
	r.applied.Keep(func(uid types.UID) bool { return !gone(uid) })
	return errors.Join(errs...)
}
