package podruntime

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// maxEnvFile is how much of a file with variables is read.
const maxEnvFile = 1 << 20

// fileKey is a variable that another container wrote into a file of a volume. An empty one counts as missing.
func (g *gathering) fileKey(r *v1.FileKeySelector) (string, bool, error) {
	v, ok := g.m.in.Volumes[r.VolumeName]
	if !ok || v.Path == "" {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", r.VolumeName)
	}
	value, err := readEnvFile(v.Path, r.Path, r.Key)
	switch {
	case err != nil: // what is wrong with the file may be secret
		g.cfg.Observe.Logger().Warn("a file with environment variables could not be read",
			"pod", refOf(g.m.pod), "container", g.m.spec.Name, "volume", r.VolumeName, "file", r.Path, "err", err)
		return "", false, errors.New("couldn't parse env file")
	case value != "":
		return value, true, nil
	case isTrue(r.Optional):
		return "", false, nil
	}
	return "", false, fmt.Errorf("environment variable key %q not found in file %q", r.Key, filepath.Join(v.Path, r.Path))
}

// readEnvFile finds one variable in a file within dir. A container may have put anything in the file's place: a link that
// leads out, a pipe that never answers.
func readEnvFile(dir, path, key string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	} else if info.Size() > maxEnvFile {
		return "", fmt.Errorf("it has %d bytes, at most %d are read", info.Size(), maxEnvFile)
	}
	return envFileValue(io.LimitReader(f, maxEnvFile), key)
}

// envFileValue reads lines of the form NAME='value' and answers the first value of key, empty if there is none. A value is
// literal and goes on over lines to its closing quote. After it, and in lines of their own, comments begin with #. Blanks
// before NAME do not matter, before = they are an error, and after = they make the value empty, as a shell has it.
func envFileValue(r io.Reader, key string) (string, error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", fmt.Errorf("line %d: no =", n)
		case name == "":
			return "", fmt.Errorf("line %d: no name before =", n)
		case strings.HasSuffix(name, " ") || strings.HasSuffix(name, "\t"):
			return "", fmt.Errorf("line %d: a blank before =", n)
		}
		value := ""
		if rest == strings.TrimLeft(rest, " \t") {
			begun := n
			if value, ok = quoted(rest, func() (string, bool) {
				n++
				more := lines.Scan()
				return lines.Text(), more
			}); !ok {
				return "", fmt.Errorf("line %d: the value is not in single quotes, or something but a comment follows it", begun)
			}
		}
		if name == key {
			return value, nil
		}
	}
	return "", lines.Err()
}

// quoted reads a value in single quotes; next gives the lines after the first.
func quoted(line string, next func() (string, bool)) (value string, ok bool) {
	line, ok = strings.CutPrefix(line, "'")
	if !ok {
		return "", false
	}
	var b strings.Builder
	for {
		text, after, closed := strings.Cut(line, "'")
		b.WriteString(text)
		if closed {
			after = strings.TrimLeft(after, " \t")
			return b.String(), after == "" || after[0] == '#'
		}
		b.WriteByte('\n')
		if line, ok = next(); !ok {
			return "", false
		}
	}
}
