package bed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
	"github.com/kubeletkit/kubeletkit/test/internal/process"
)

// RemovePods stops and removes all pods of the bed, whoever made them. Containerd refuses a container that has ended while it
// still has to write that down, which it tries again after one second, two, four: so does this.
func (b *Bed) RemovePods(ctx context.Context) error {
	for wait := 250 * time.Millisecond; ; wait *= 2 {
		err := b.removePods(ctx)
		if err == nil || wait > 8*time.Second {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

func (b *Bed) removePods(ctx context.Context) error {
	ids, err := b.crictl(ctx, "pods", "-q")
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var errs []error
	for id := range strings.FieldsSeq(ids) {
		if _, err := b.crictl(ctx, "rmp", "--force", id); err != nil {
			errs = append(errs, fmt.Errorf("remove pod: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Clean removes everything the bed ever made: pods, processes, mounts, network, agents' cgroups, and the directory itself.
// It refuses a directory that is no bed; one that does not exist is clean.
func (b *Bed) Clean(ctx context.Context) error {
	if _, err := os.Stat(b.path("bed.json")); errors.Is(err, fs.ErrNotExist) {
		if entries, err := os.ReadDir(b.dir); err == nil && len(entries) > 0 {
			return fmt.Errorf("clean %s: this directory is no bed", b.dir)
		}
		return nil
	}
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	s, err := b.load(ctx)
	if err != nil {
		return err
	}
	unlock, err := lock(b.path("lock"))
	if err != nil {
		return err
	}
	defer unlock()

	// The runtime takes its pods away in good order. What it cannot is ended without it, so its own
	// complaints matter only if something is left then.
	orderly := b.Start(ctx)
	if orderly == nil {
		orderly = b.RemovePods(ctx)
	}
	if orderly != nil {
		b.say("removing what is left by hand: %v", orderly)
	}
	if err := b.Stop(ctx); err != nil {
		return err
	}
	b.deleteContainers(ctx)
	for _, pid := range process.Find(b.isShim) {
		if err := process.End(ctx, pid, b.isShim, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if err := cgroups.Remove(ctx, cgroups.Of(b.Endpoint())); err != nil {
		return err
	}
	if err := unmountUnder(b.dir); err != nil {
		return err
	}
	if _, err := net.InterfaceByName(s.Bridge); err == nil {
		if _, err := output(ctx, nil, "ip", "link", "delete", s.Bridge); err != nil {
			return err
		}
	}
	if err := removeRules(ctx, s.Bridge); err != nil {
		return err
	}
	leases, _ := filepath.Glob("/var/lib/cni/results/" + s.Bridge + "-*") // the pattern is well-formed
	for _, path := range append(leases, socketDir(b.dir), b.dir) {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clean %s: %w", b.dir, err)
		}
	}
	return nil
}

// deleteContainers ends containers that containerd no longer knows or could not remove.
func (b *Bed) deleteContainers(ctx context.Context) {
	roots, _ := filepath.Glob(b.path("runc", "*")) // one a containerd namespace
	for _, root := range roots {
		ids, _ := filepath.Glob(filepath.Join(root, "*"))
		for _, id := range ids {
			if _, err := output(ctx, nil, "runc", "--root", root, "delete", "--force", filepath.Base(id)); err != nil {
				b.say("%v", err)
			}
		}
	}
}

// removeRules takes away the masquerading of a network's pods.
func removeRules(ctx context.Context, network string) error {
	rules, err := output(ctx, nil, "iptables-save", "-t", "nat")
	if err != nil {
		return err
	}
	undo := undoRules(rules, network)
	if undo == "" {
		return nil
	}
	_, err = output(ctx, []byte(undo), "iptables-restore", "--noflush")
	return err
}

// undoRules turns a saved nat table into commands that remove the rules of a network, which carry its name
// in a comment, and the chains they lead to.
func undoRules(saved, network string) string {
	var rules, chains strings.Builder
	for line := range strings.Lines(saved) {
		added, ok := strings.CutPrefix(line, "-A ")
		if !ok || !strings.Contains(line, `name: \"`+network+`\"`) {
			continue
		}
		rules.WriteString("-D " + added)
		f := strings.Fields(line)
		if chain := f[len(f)-1]; strings.HasPrefix(chain, "CNI-") {
			fmt.Fprintf(&chains, "-F %[1]s\n-X %[1]s\n", chain)
		}
	}
	if rules.Len() == 0 {
		return ""
	}
	return "*nat\n" + rules.String() + chains.String() + "COMMIT\n"
}

// unmountUnder takes away all mounts below a directory, the deepest first.
func unmountUnder(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	points := mountPoints(string(data), dir)
	for _, p := range slices.Backward(points) {
		if err := syscall.Unmount(p, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}

// mountPoints finds the mount points below dir in a mountinfo file, in the order they were made.
func mountPoints(mountinfo, dir string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		if p := unescape.Replace(f[4]); strings.HasPrefix(p, dir+"/") {
			points = append(points, p)
		}
	}
	return points
}
