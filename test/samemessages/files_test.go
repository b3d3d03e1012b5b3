package samemessages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/podcases"
)

// ofVolumes are pods with all kinds of volumes of files, one for each way to say who it is.
func ofVolumes(t *testing.T) (cases []*podcases.Case) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "volumes.yaml"))
	must(t, err)
	for name, who := range map[string]string{
		"volumes":                       "{}",
		"volumes-of-a-group":            "{securityContext: {fsGroup: 77}}",
		"volumes-of-a-user":             "{securityContext: {runAsUser: 1000, runAsGroup: 2000}}",
		"volumes-of-group-and-user":     "{securityContext: {runAsUser: 1000, fsGroup: 77, supplementalGroups: [3]}}",
		"volumes-of-roots-group":        "{securityContext: {fsGroup: 0, fsGroupChangePolicy: OnRootMismatch}}",
		"volumes-of-a-namespace":        "{hostUsers: false}",
		"volumes-of-a-namespace-group":  "{hostUsers: false, securityContext: {fsGroup: 77}}",
		"volumes-of-a-namespaces-user":  "{hostUsers: false, securityContext: {runAsUser: 1000}}",
		"volumes-of-one-container-user": "{containers: [{name: c, securityContext: {runAsUser: 1000}}]}",
		"volumes-of-containers-user":    "{containers: [{name: c, securityContext: {runAsUser: 1000}}, {name: d, securityContext: {runAsUser: 1000}}]}",
		"volumes-of-different-users":    "{containers: [{name: c, securityContext: {runAsUser: 1000}}, {name: d, securityContext: {runAsUser: 1001}}]}",
	} {
		c, err := podcases.Read(data)
		must(t, err)
		var more v1.PodSpec
		must(t, yaml.Unmarshal([]byte(who), &more))
		c.Name, c.Pod.Name, c.Pod.UID = name, name, types.UID("uid-"+name)
		c.Pod.Spec.HostUsers = more.HostUsers
		if more.SecurityContext != nil {
			c.Pod.Spec.SecurityContext = more.SecurityContext
		}
		for i := range more.Containers {
			c.Pod.Spec.Containers[i].SecurityContext = more.Containers[i].SecurityContext
		}
		cases = append(cases, c)
	}
	return cases
}

// writeTime is the name of the directory that holds a volume's files as they are now.
var writeTime = regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\w+`)

var lastWords = regexp.MustCompile(`(/containers/[^/\n]+)/[0-9a-f]{8}\b`)

// describe says what a file is.
func describe(path string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	line := fmt.Sprintf("%s %d:%d", info.Mode(), owner.Uid, owner.Gid)
	switch {
	case d.Type() == fs.ModeSymlink:
		to, err := os.Readlink(path)
		return line + " -> " + to, err
	case d.Type().IsRegular():
		data, err := os.ReadFile(path)
		return fmt.Sprintf("%s %q", line, plain(string(data))), err
	}
	return line, nil
}

// plain takes from the content of a file what is never the same: the address that the runtime in memory gives, when the pod was
// first seen, the range of IDs of its user namespace, and a dot that ends a hostname: see allowed.
func plain(content string) string {
	for pattern, as := range map[string]string{`\b10\.88\.\d+\.\d+\b`: "IP", `(config\.seen=)".*"`: "${1}SEEN", `("hostId":)\d+`: "${1}ID", `\.svc\.\t`: ".svc\t"} {
		content = regexp.MustCompile(pattern).ReplaceAllString(content, as)
	}
	return content
}

// files is what lies in an agent's directories of a pod: each name with mode, owners, and what it holds or where it leads. Of
// containers there are logs and files for last words; the kubelet leaves such of each that could not be made. Directories
// above are each agent's own affair: nobody but root sees them.
func (s *stage) files(t *testing.T, c *podcases.Case, ofContainers bool) string {
	t.Helper()
	uid := string(s.record.UID(c.Pod.Namespace, c.Pod.Name))
	if uid == string(podcases.NoUID) {
		return "" // nothing was made
	}
	var out strings.Builder
	root, logs := s.path("root", "pods", uid), s.path("logs", c.Pod.Namespace+"_"+c.Pod.Name+"_"+uid)
	add := func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		below, _ := filepath.Rel(root, path)
		depth, log := strings.Count(below, "/"), within(path, logs)
		switch {
		case !ofContainers && (log || within(below, "containers")), within(below, "plugins"):
			return nil
		case d.IsDir() && !log && (depth < 2 || within(below, "volume-subpaths") && depth < 3):
			return nil
		}
		line, err := describe(path, d)
		name, _ := filepath.Rel(s.dir, path)
		fmt.Fprintf(&out, "%s %s\n", name, line)
		return err
	}
	must(t, filepath.WalkDir(root, add))
	must(t, filepath.WalkDir(logs, add))
	text := writeTime.ReplaceAllString(out.String(), "..TIME")
	text = lastWords.ReplaceAllString(text, "$1/LASTWORDS")
	return strings.NewReplacer(uid, "UID", s.dir, "STAGE").Replace(text)
}
