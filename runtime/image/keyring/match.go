package keyring

import (
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// hub is the registry that is meant when a name tells none.
const hub = "index.docker.io"

// ring is credentials by the name of what they open.
type ring map[string][]runtime.Credential

// add puts the entries of one docker configuration in. whose says the owner, nothing for the node's own.
func (r ring) add(entries map[string]login, whose runtime.Credential) {
	for _, name := range sorted(entries) {
		key, ok := keyOf(name)
		if !ok {
			continue // such a name opens nothing
		}
		l, c := entries[name], whose
		c.Auth = runtime.Auth{Username: l.Username, Password: l.Password}
		c.Hash = l.hash()
		r[key] = append(r[key], c)
	}
}

// find is what may open a repository, most specific first: a longer name sorts after a shorter one it begins with.
func (r ring) find(repository string) []runtime.Credential {
	var out []runtime.Credential
	for _, key := range slices.Backward(sorted(r)) {
		if matches(key, repository) {
			out = append(out, r[key]...)
		}
	}
	if len(out) == 0 && onHub(repository) {
		return r[hub]
	}
	return out
}

// keyOf is a name as users write it, without scheme and without the API version that docker puts behind the host.
func keyOf(name string) (string, bool) {
	if !strings.HasPrefix(name, "https://") && !strings.HasPrefix(name, "http://") {
		name = "https://" + name
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", false
	}
	way := u.Path
	if strings.HasPrefix(way, "/v1/") || strings.HasPrefix(way, "/v2/") {
		way = way[len("/v1"):]
	}
	if way == "/" {
		way = ""
	}
	return u.Host + way, true
}

// matches says whether a pattern names a repository: as many labels in the host, each equal or by glob, the same port, and
// the path as a beginning.
func matches(pattern, repository string) bool {
	p, err := url.Parse("https://" + pattern)
	if err != nil {
		return false
	}
	r, err := url.Parse("https://" + repository)
	if err != nil {
		return false
	}
	globs, port := labels(p.Host)
	names, realPort := labels(r.Host)
	if port != realPort || len(globs) != len(names) || !strings.HasPrefix(r.Path, p.Path) {
		return false
	}
	for i, glob := range globs {
		if ok, err := path.Match(glob, names[i]); glob != names[i] && (err != nil || !ok) {
			return false
		}
	}
	return true
}

func labels(host string) (list []string, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, ""
	}
	return strings.Split(name, "."), port
}

// onHub says that a repository lies on Docker Hub: it says so, or nothing in its first part looks like a host.
func onHub(repository string) bool {
	first, _, more := strings.Cut(repository, "/")
	switch {
	case first == "":
		return false
	case !more, first == "docker.io", first == hub:
		return true
	default:
		return !strings.ContainsAny(first, ".:")
	}
}
