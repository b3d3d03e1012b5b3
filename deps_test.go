package kubeletkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kubeletkit/kubeletkit"

// A rule says what a package may import besides the standard library, internal packages and the free ones.
type rule struct {
	own     string // packages of this module, "all" for any
	outside string // modules or packages of others, with what is below them
	budget  int    // packages in its closure, the standard library counted, itself too
}

// Short names for groups of outside packages.
const (
	free     = "golang.org/x/sync golang.org/x/sys"
	api      = "k8s.io/api k8s.io/apimachinery "
	anything = "*"
)

// uid is where types.UID comes from, part of the vocabulary: who may import runtime may name a pod.
const uid = "k8s.io/apimachinery/pkg/types"

// rules is the table of docs/design.md, one row a package.
func rules() map[string]rule {
	return map[string]rule{
		"": {"", "", 1},

		"observe":      {"", "", 80},
		"observe/prom": {"observe", "github.com/prometheus/client_golang", 245},
		"observe/otel": {"observe", "go.opentelemetry.io/otel", 90},

		"runtime":                       {"", uid, 80},
		"runtime/process":               {"runtime observe", "", 110},
		"runtime/runtimetest":           {"runtime observe", "", 110},
		"runtime/runtimetest/criserver": {"runtime runtime/runtimetest observe", "k8s.io/cri-api google.golang.org/grpc", 330},
		"runtime/logs":                  {"runtime", "github.com/fsnotify/fsnotify", 95},
		"runtime/plan":                  {"runtime", api, 280},
		"runtime/image":                 {"runtime observe", api + "github.com/distribution/reference", 290},
		"runtime/image/keyring":         {"runtime observe", api + "github.com/distribution/reference", 290},
		"runtime/podruntime":            {"runtime runtime/plan runtime/logs network observe", api + "github.com/google/renameio/v2", 300},
		"runtime/cri":                   {"runtime observe", "k8s.io/cri-api google.golang.org/grpc", 330},

		"pleg":    {"runtime observe", "", 100},
		"imagegc": {"runtime observe", "", 100},

		"probe":           {"", "", 195},
		"probe/grpcprobe": {"probe", "google.golang.org/grpc", 320},
		"probe/podprobe":  {"probe runtime observe", api, 285},
		"probe/manager":   {"probe probe/podprobe runtime observe", api, 285},

		"status":            {"runtime runtime/plan observe", api, 285},
		"status/nodestatus": {"runtime runtime/plan observe", api, 285},

		"syncloop":          {"runtime status observe", api + "k8s.io/component-helpers", 285},
		"syncloop/looptest": {"runtime pleg syncloop observe", api, 295},
		"syncloop/admit":    {"runtime status observe", api + "k8s.io/component-helpers", 300},
		"syncloop/offline":  {"runtime observe", api + "github.com/google/renameio/v2", 285},

		"syncloop/agent": {
			"imagegc observe pleg probe/manager probe/podprobe runtime runtime/logs runtime/podruntime status syncloop syncloop/admit syncloop/offline volume", api, 330,
		},

		"staticpod": {"observe", api + "sigs.k8s.io/yaml github.com/fsnotify/fsnotify", 290},

		"eviction":                 {"runtime observe", api + "k8s.io/kubelet/pkg/apis/stats", 285},
		"eviction/shutdown":        {"runtime observe", api, 285},
		"eviction/shutdown/logind": {"", "github.com/godbus/dbus/v5", 130},

		"server":        {"runtime runtime/logs observe", api + "k8s.io/kubelet/pkg/apis/stats", 300},
		"server/stream": {"server runtime runtime/logs observe", api + "k8s.io/kubelet/pkg/apis/stats", 300},

		"network":     {"", api, 280},
		"network/cni": {"runtime observe", "github.com/containernetworking/cni " + api, 310},

		"volume":     {"runtime observe", api + "k8s.io/mount-utils", 300},
		"volume/csi": {"volume runtime", api + "github.com/container-storage-interface/spec google.golang.org/grpc", 410},

		"resource":        {"runtime observe", api, 285},
		"resource/cgroup": {"observe", api, 300},
		"resource/device": {"resource runtime", api + "k8s.io/kubelet google.golang.org/grpc", 400},
		"resource/plugin": {"observe", "google.golang.org/grpc k8s.io/kubelet github.com/fsnotify/fsnotify", 330},

		"stats":               {"runtime observe", api + "k8s.io/kubelet/pkg/apis/stats", 310},
		"kubeapi":             {"runtime status observe", api + "k8s.io/client-go k8s.io/klog/v2 k8s.io/utils/clock github.com/go-logr/logr", 490},
		"kubeapi/access":      {"observe", api, 300},
		"kubeapi/certificate": {"observe", api + "k8s.io/client-go", 490},

		"examples/nodeagent":           {"all", anything, 720},
		"examples/nodeagent/config":    {"status/nodestatus", anything, 390},
		"examples/edge":                {"all", anything, 720},
		"examples/provider":            {"all", anything, 500},
		"examples/standalone":          {"all", anything, 335},
		"examples/probetest/cmd/probe": {"probe", "", 195},
		"examples/probetest":           {"probe", "", 195},
	}
}

// never says what must not even be in the closure of a package, whoever brings it.
func never() map[string]string {
	const heavy = "google.golang.org/grpc k8s.io/client-go github.com/prometheus"
	return map[string]string{
		"eviction":           heavy,
		"imagegc":            heavy,
		"pleg":               heavy,
		"runtime/plan":       heavy,
		"runtime/podruntime": heavy,
		"stats":              heavy,
		"status":             heavy,
		"syncloop":           heavy,
		"syncloop/looptest":  heavy,
	}
}

// onlyExamples may import these: a program picks its runtime, its API and its metrics where it is assembled.
const onlyExamples = "kubeapi observe/prom resource/device runtime/cri volume/csi"

// listed is a package as go list shows it.
type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string // the closure without itself
	Standard   bool
}

// name is the path inside the module, empty for the root; ok is false for a package of others.
func name(importPath string) (inside string, ok bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func TestImportsAndBudgets(t *testing.T) {
	all := list(t)
	for path, p := range all {
		pkg, ok := name(path)
		if !ok {
			continue
		}
		t.Run(strings.ReplaceAll(path, "/", "."), func(t *testing.T) {
			for _, imported := range p.Imports {
				if problem := judge(pkg, imported, all[imported].Standard); problem != "" {
					t.Error(problem)
				}
			}
			if r, ok := rules()[pkg]; ok && len(p.Deps)+1 > r.budget {
				t.Errorf("%d packages in its closure, the budget is %d", len(p.Deps)+1, r.budget)
			}
			for _, dep := range p.Deps {
				if covers(never()[pkg], dep) {
					t.Errorf("its closure has %s", dep)
				}
				if pkg == "probe" && !all[dep].Standard {
					t.Errorf("probe is for everybody: standard library only, no %s", dep)
				}
			}
		})
	}
}

// judge says what is wrong with pkg importing the package at path; empty: nothing.
func judge(pkg, path string, standard bool) string {
	r, known := rules()[pkg]
	internal := isInternal(pkg)
	if !known && !internal {
		return "this package is in no row of the table in docs/design.md and deps_test.go"
	}
	target, own := name(path)
	owns := strings.Fields(r.own)
	switch {
	case standard, covers(free, path), r.own == "all", own && isInternal(target),
		path == uid && slices.Contains(owns, "runtime"):
		return ""
	case own && slices.Contains(strings.Fields(onlyExamples), target):
		return "only examples import " + target
	case internal:
		return "" // counted where it is used
	case own && !slices.Contains(owns, target):
		return "may not import " + target
	case !own && r.outside != anything && !covers(r.outside, path):
		return "may not import " + path
	}
	return ""
}

func isInternal(pkg string) bool { return slices.Contains(strings.Split(pkg, "/"), "internal") }

// covers tells whether path is one of the listed packages or below one.
func covers(listing, path string) bool {
	for prefix := range strings.FieldsSeq(listing) {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

// list asks go for all packages of the module and of their closures, as Linux sees them.
func list(t *testing.T) map[string]listed {
	t.Helper()
	lookAround(t)
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, complaints.Bytes())
	}
	all := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// lookAround reads all folders of packages. go test repeats an earlier result as long as what the test itself
// has looked at is unchanged, and what go list reads is not known to it.
func lookAround(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && (d.Name()[0] == '.' || d.Name() == "testdata" || path == "bin" || path == "test") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		rule, pkg, path string
		standard, fine  bool
	}{
		{rule: "the standard library is free", pkg: "probe", path: "net/http", standard: true, fine: true},
		{rule: "x/sync is free", pkg: "pleg", path: "golang.org/x/sync/errgroup", fine: true},
		{rule: "internal packages are free", pkg: "pleg", path: module + "/internal/podspec", fine: true},
		{rule: "a listed own package", pkg: "pleg", path: module + "/runtime", fine: true},
		{rule: "an own package that is not listed", pkg: "pleg", path: module + "/status"},
		{rule: "below a listed own package is another package", pkg: "pleg", path: module + "/runtime/plan"},
		{rule: "below a listed outside package is the same", pkg: "status", path: "k8s.io/api/core/v1", fine: true},
		{rule: "a name that only begins alike", pkg: "status", path: "k8s.io/apiserver"},
		{rule: "an outside package that is not listed", pkg: "pleg", path: "k8s.io/api/core/v1"},
		{rule: "a pod's UID is part of the vocabulary", pkg: "pleg", path: uid, fine: true},
		{rule: "examples import all", pkg: "examples/nodeagent", path: module + "/runtime/cri", fine: true},
		{rule: "internal packages reach no engine", pkg: "internal/x", path: module + "/runtime/cri"},
		{rule: "a package without a row", pkg: "util", path: "fmt", standard: true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if problem := judge(c.pkg, c.path, c.standard); (problem == "") != c.fine {
				t.Errorf("judge(%s imports %s) = %q", c.pkg, c.path, problem)
			}
		})
	}
}
