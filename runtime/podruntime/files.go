package podruntime

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// layout is where files of pods lie. The names are the kubelet's: log shippers and people look there.
type layout struct {
	root  string // state of pods
	logs  string // log files
	links string // links to log files by container; empty: none
}

// checkUID refuses a uid that would lead out of the directories named for it.
func checkUID(uid types.UID) error {
	s := string(uid)
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("uid %q cannot name a directory", s)
	}
	return nil
}

func (l layout) podDir(uid types.UID) string { return filepath.Join(l.root, "pods", string(uid)) }

func (l layout) containerDir(uid types.UID, name string) string {
	return filepath.Join(l.podDir(uid), "containers", name)
}

func (l layout) hosts(uid types.UID) string { return filepath.Join(l.podDir(uid), "etc-hosts") }

func (l layout) logDir(p runtime.PodRef) string {
	return filepath.Join(l.logs, p.Namespace+"_"+p.Name+"_"+string(p.UID))
}

// logFile is relative to the log directory of its pod.
func logFile(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// link is the name under which shippers find the log of one container instance.
func (l layout) link(p runtime.PodRef, container, id string) string {
	name := p.Name + "_" + p.Namespace + "_" + container + "-" + id
	return filepath.Join(l.links, name[:min(len(name), 251)]+".log")
}

func (l layout) makePod(uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	if err := os.MkdirAll(l.podDir(uid), 0o750); err != nil {
		return fmt.Errorf("make pod directory: %w", err)
	}
	return nil
}

// writeShared writes a file that every user in containers may read, whatever the umask. One that has the content already is left
// alone: other containers of the pod may just be reading it.
func writeShared(path string, content []byte) error {
	if has, err := os.ReadFile(path); err != nil || !bytes.Equal(has, content) {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return os.Chmod(path, 0o644)
}

// terminationFile makes the file a container writes its last words to.
func (l layout) terminationFile(uid types.UID, container string) (string, error) {
	dir := l.containerDir(uid, container)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make container directory: %w", err)
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	path := filepath.Join(dir, hex.EncodeToString(b[:]))
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return "", fmt.Errorf("make termination message file: %w", err)
	}
	return path, os.Chmod(path, 0o666) // whatever the umask
}

// removeLastWords removes the file that a container instance wrote its last words to, or would have written, had it been made. Each
// instance and each try has one.
func (l layout) removeLastWords(uid types.UID, container string, mounts []runtime.Mount) {
	for _, m := range mounts {
		if filepath.Dir(m.HostPath) == l.containerDir(uid, container) {
			_ = os.Remove(m.HostPath) // it costs an inode
		}
	}
}

// hookFile holds, as long as it is there, the ID of the instance of a container whose postStart hook is to be run.
func (l layout) hookFile(uid types.UID, container string) string {
	return filepath.Join(l.containerDir(uid, container), "poststart")
}

// lastAttempt is the number behind the newest log file of a container: what it was restarted before the runtime forgot.
func (l layout) lastAttempt(p runtime.PodRef, container string) (next uint32) {
	entries, err := os.ReadDir(filepath.Join(l.logDir(p), container))
	if err != nil {
		return 0
	}
	for _, e := range entries {
		number, rest, _ := strings.Cut(e.Name(), ".")
		n, err := strconv.ParseUint(number, 10, 31)
		if err == nil && strings.HasPrefix(rest, "log") {
			next = max(next, uint32(n)+1)
		}
	}
	return next
}

// removePod removes what this package put into a pod's directory, and the directory when nothing else is in it. Volumes
// are never touched: something may still be mounted there.
func (l layout) removePod(uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	dir := l.podDir(uid)
	errs := []error{os.RemoveAll(filepath.Join(dir, "containers")), os.RemoveAll(l.hosts(uid))}
	begun, _ := filepath.Glob(filepath.Join(globQuote(dir), "."+usersFile+"*")) // by an agent that was killed as it wrote
	for _, f := range begun {
		errs = append(errs, os.Remove(f))
	}
	for _, d := range []string{filepath.Join(dir, "volumes"), filepath.Join(dir, "plugins"), dir} {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) && !isNotEmpty(d) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func isNotEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

// logDirs are the log directories of a pod, whatever its name and namespace.
func (l layout) logDirs(uid types.UID) []string {
	var out []string
	l.eachLogDir(func(owner types.UID, dir string) {
		if owner == uid {
			out = append(out, dir)
		}
	})
	return out
}

// eachLogDir tells of each log directory and whose it is: <namespace>_<name>_<uid>.
func (l layout) eachLogDir(tell func(uid types.UID, dir string)) {
	entries, err := os.ReadDir(l.logs)
	if err != nil {
		return
	}
	for _, e := range entries {
		if parts := strings.Split(e.Name(), "_"); e.IsDir() && len(parts) == 3 && parts[2] != "" {
			tell(types.UID(parts[2]), filepath.Join(l.logs, e.Name()))
		}
	}
}

// removeLog removes the log file of a container instance with its rotated ones, and the link to it.
func (l layout) removeLog(c *runtime.Container) error {
	var errs []error
	if c.LogPath != "" {
		files, _ := filepath.Glob(globQuote(c.LogPath) + "*") // a bad pattern cannot come out of globQuote
		for _, f := range files {
			errs = append(errs, os.Remove(f))
		}
	}
	return errors.Join(append(errs, l.removeLink(c))...)
}

// removeLink removes the link to the log of a container instance.
func (l layout) removeLink(c *runtime.Container) error {
	if l.links == "" {
		return nil
	}
	if err := os.Remove(l.link(c.Pod, c.Name, c.ID)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeLink makes the log of a container instance be found by the container's name. Without a log there is no link, but no error.
func (l layout) makeLink(p runtime.PodRef, container, id, log string) error {
	if l.links == "" {
		return nil
	}
	_, err := os.Stat(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // this engine writes no file there
	}
	if err == nil {
		err = os.MkdirAll(l.links, 0o755)
	}
	if err == nil {
		err = os.Symlink(log, l.link(p, container, id))
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// tidyLinks makes the links that instances miss which run, as nobody was there to make them, and removes those whose logs are gone, as
// when somebody removed an instance by hand. The log of one that lives is but being rotated.
func (l layout) tidyLinks(lives []runtime.Container) error {
	if l.links == "" {
		return nil
	}
	var errs []error
	names := map[string]bool{}
	for i := range lives {
		c := &lives[i]
		names[filepath.Base(l.link(c.Pod, c.Name, c.ID))] = true
		errs = append(errs, l.makeLink(c.Pod, c.Name, c.ID, filepath.Join(l.logDir(c.Pod), logFile(c.Name, uint32(c.Restarts)))))
	}
	entries, err := os.ReadDir(l.links)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink || names[e.Name()] {
			continue
		}
		link := filepath.Join(l.links, e.Name())
		if log, err := os.Readlink(link); err != nil || !strings.HasPrefix(log, filepath.Clean(l.logs)+"/") {
			continue // someone else's
		}
		if _, err := os.Stat(link); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
