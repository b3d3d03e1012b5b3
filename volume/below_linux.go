package volume

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/below"
)

// openBelow opens what lies at a relative path below a volume, as a reference that stays with what was found. The kernel
// resolves it component by component: links are followed as long as they stay below the volume, also those from the root. What
// does not exist becomes a directory, with the permissions of the volume itself.
func openBelow(volume, name string) (*os.File, error) {
	root, err := os.OpenFile(volume, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := openAt(root, name, reference(0))
	if errors.Is(err, unix.EXDEV) { // a link from the root of this host may lead to something within, such as /var/run in /
		if within := leads(volume, name); within != "" {
			name = within
			f, err = openAt(root, name, reference(0))
		}
	}
	if errors.Is(err, unix.ENOENT) {
		if err := makeBelow(root, name); err != nil {
			return nil, err
		}
		f, err = openAt(root, name, reference(0))
	}
	return f, err
}

// leads is where a path below a volume leads by such links, also if the end of it is not there; empty if that is nowhere within.
func leads(volume, name string) string {
	for rest := "."; name != "."; name = path.Dir(name) {
		if within := below.Leads(volume, name); within != "" {
			return path.Join(within, rest)
		}
		rest = path.Join(path.Base(name), rest)
	}
	return ""
}

func reference(flags uint64) unix.OpenHow {
	return unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
}

// makeBelow makes the directories of a path that are missing. Each is made in, and opened from, the one before it, so that
// nobody can put a link in its place.
func makeBelow(root *os.File, name string) error {
	info, err := root.Stat()
	if err != nil {
		return err
	}
	at, err := openAt(root, ".", reference(unix.O_DIRECTORY))
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	var done string
	for element := range strings.SplitSeq(name, "/") {
		done = path.Join(done, element)
		next, err := openAt(root, done, reference(unix.O_DIRECTORY))
		if errors.Is(err, unix.ENOENT) {
			next, err = makeIn(at, element, info.Mode())
		}
		if err != nil {
			return err
		}
		at.Close()
		at = next
	}
	return nil
}

// makeIn makes a directory in another one. One that is there by now keeps its permissions; a link is refused.
func makeIn(dir *os.File, name string, mode os.FileMode) (*os.File, error) {
	err := retry(func() error { return unix.Mkdirat(int(dir.Fd()), name, 0o700) })
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "make directory", Path: path.Join(dir.Name(), name), Err: err}
	}
	made, openErr := openDir(dir, name)
	if openErr != nil || err != nil {
		return made, openErr
	}
	if err := made.Chmod(mode & (os.ModePerm | os.ModeSetgid | os.ModeSetuid | os.ModeSticky)); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

// words says in words for users why openBelow refused a path, empty where the error itself is good enough.
func words(err error) string {
	switch {
	case errors.Is(err, unix.EXDEV):
		return "leads out of the volume"
	case errors.Is(err, unix.ELOOP):
		return "goes through links in a circle"
	case errors.Is(err, unix.ENOTDIR):
		return "goes through something that is no directory, nor a link to one within the volume"
	}
	return ""
}
