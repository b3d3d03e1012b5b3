package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/kubeletkit/kubeletkit/test/bed"
)

// A program is built from a package of one of the modules in test/tools.
type program struct {
	name   string // of the file in bed.BinDir
	module string // folder in test/tools
	path   string // import path of the package
	test   bool   // the package's tests are wanted, as a program
}

// programs are all that a cluster and its judges need, in the order in which most is shared by the next.
func programs() []program {
	return []program{
		{name: "kubelet", module: "kubernetes", path: "k8s.io/kubernetes/cmd/kubelet"},
		{name: "kubectl", module: "kubernetes", path: "k8s.io/kubernetes/cmd/kubectl"},
		{name: "kube-apiserver", module: "kubernetes", path: "k8s.io/kubernetes/cmd/kube-apiserver"},
		{name: "kube-controller-manager", module: "kubernetes", path: "k8s.io/kubernetes/cmd/kube-controller-manager"},
		{name: "kube-scheduler", module: "kubernetes", path: "k8s.io/kubernetes/cmd/kube-scheduler"},
		{name: "kube-proxy", module: "kubernetes", path: "k8s.io/kubernetes/cmd/kube-proxy"},
		{name: "etcd", module: "etcd", path: "go.etcd.io/etcd/server/v3"},
		{name: "coredns", module: "coredns", path: "github.com/coredns/coredns"},
		{name: "agnhost", module: "kubernetes", path: "k8s.io/kubernetes/test/images/agnhost"},
		{name: "resource-consumer", module: "kubernetes", path: "k8s.io/kubernetes/test/images/resource-consumer"},
		{name: "consume-cpu", module: "kubernetes", path: "k8s.io/kubernetes/test/images/resource-consumer/consume-cpu"},
		{name: "sample-device-plugin", module: "kubernetes", path: "k8s.io/kubernetes/test/images/sample-device-plugin"},
		{name: "sample-apiserver", module: "kubernetes", path: "k8s.io/sample-apiserver"},
		{name: "ginkgo", module: "kubernetes", path: "github.com/onsi/ginkgo/v2/ginkgo"},
		{name: "e2e.test", module: "kubernetes", path: "k8s.io/kubernetes/test/e2e", test: true},
		{name: "e2e_node.test", module: "kubernetes", path: "k8s.io/kubernetes/test/e2e_node", test: true},
	}
}

// ControlPlanePrograms are the names of the programs a cluster runs on, without its node agent.
func ControlPlanePrograms() []string {
	return []string{"kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns"}
}

// ImagePrograms are the names of the programs that go into images.
func ImagePrograms() []string {
	return []string{"agnhost", "resource-consumer", "consume-cpu", "sample-apiserver", "sample-device-plugin", "etcd", "coredns"}
}

// JudgePrograms are the names of the programs that run upstream's specs.
func JudgePrograms() []string { return []string{"ginkgo", "e2e.test"} }

// Programs are the names of all programs that can be built.
func Programs() []string {
	var names []string
	for _, p := range programs() {
		names = append(names, p.name)
	}
	return names
}

// EnsurePrograms builds those of the programs that are missing in bed.BinDir or older than the module they
// come from. On empty caches all of them together take half an hour on two cores. log may be nil.
func EnsurePrograms(ctx context.Context, log io.Writer, names ...string) error {
	root, err := testModule()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(bed.BinDir(), 0o755); err != nil {
		return err
	}
	for _, name := range names {
		p, err := find(name)
		if err != nil {
			return err
		}
		if err := p.ensure(ctx, log, filepath.Join(root, "tools", p.module)); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

func find(name string) (program, error) {
	for _, p := range programs() {
		if p.name == name {
			return p, nil
		}
	}
	return program{}, fmt.Errorf("there is no program %q", name)
}

func (p program) file() string { return filepath.Join(bed.BinDir(), p.name) }

func (p program) ensure(ctx context.Context, log io.Writer, module string) error {
	want, err := p.stamp(module)
	if err != nil {
		return err
	}
	stamp := filepath.Join(filepath.Dir(bed.BinDir()), p.name+".program")
	fits := func() bool {
		have, _ := os.ReadFile(stamp) // unreadable: as good as none
		_, err := os.Stat(p.file())
		return err == nil && string(have) == want
	}
	if fits() {
		return nil
	}
	unlock, err := lock(stamp + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if fits() { // another process built it meanwhile
		return nil
	}
	if log != nil {
		fmt.Fprintf(log, "cluster: building %s, which takes minutes the first time\n", p.name)
	}
	fresh := p.file() + ".new"
	cmd := exec.CommandContext(ctx, "go", p.command(fresh)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(msg))
	}
	if err := os.Rename(fresh, p.file()); err != nil { // one that runs is not disturbed
		return err
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// command is how the go command builds the program.
func (p program) command(out string) []string {
	args := []string{"build"}
	if p.test {
		args = []string{"test", "-c"}
	}
	return append(args, "-trimpath", "-buildvcs=false", "-ldflags="+p.linkFlags(), "-o", out, p.path)
}

// linkFlags say the version, which clients of the API server and the specs parse.
func (p program) linkFlags() string {
	flags := "-s -w"
	if p.module == "kubernetes" {
		const variable = " -X k8s.io/component-base/version."
		flags += variable + "gitVersion=v1.37.2" + variable + "gitMajor=1" + variable + "gitMinor=37"
	}
	return flags
}

// stamp says what the program is built from.
func (p program) stamp(module string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, p.command(""))
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, file))
		if err != nil {
			return "", err
		}
		h.Write(data)
	}
	return fmt.Sprintf("%x\n", h.Sum(nil)), nil
}

// testModule finds the directory of this module from anywhere inside the checkout.
func testModule() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "tools", "kubernetes", "go.mod")); err == nil {
			return filepath.Join(dir, "test"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find test/tools: run this inside the checkout")
		}
		dir = filepath.Dir(dir)
	}
}

// lock takes turns with other processes that work on the same thing.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
