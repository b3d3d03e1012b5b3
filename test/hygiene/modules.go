package hygiene

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tidy asks whether go mod tidy would change anything.
func tidy(ctx context.Context, r *Repo) (string, error) {
	dirs, err := r.modules()
	if err != nil {
		return "", err
	}
	var errs []error
	for _, dir := range dirs {
		if _, err := r.golang(ctx, dir, "mod", "tidy", "-diff"); err != nil {
			errs = append(errs, fmt.Errorf("%s is not tidy; make tidy mends it: %w", dir, err))
		}
	}
	return fmt.Sprintf("%d modules", len(dirs)), errors.Join(errs...)
}

// verify has the go command compare modules in the cache with their sums: those of the module for strangers and of the
// tests always, those of the tools once for each go.sum, since they come to gigabytes.
func verify(ctx context.Context, r *Repo) (string, error) {
	dirs, err := r.modules()
	if err != nil {
		return "", err
	}
	var errs []error
	looked := 0
	for _, dir := range dirs {
		check := func() error {
			looked++
			_, err := r.golang(ctx, dir, "mod", "verify")
			return err
		}
		if !strings.HasPrefix(dir, filepath.Join("test", "tools")) {
			errs = append(errs, check())
			continue
		}
		sums, err := os.ReadFile(filepath.Join(r.Root, dir, "go.sum"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		key := fmt.Sprintf("%x", sha256.Sum256(sums))
		errs = append(errs, r.once("verified-"+filepath.Base(dir), key, check))
	}
	return fmt.Sprintf("%d modules, %d of them before", len(dirs), len(dirs)-looked), errors.Join(errs...)
}
