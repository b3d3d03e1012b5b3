package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
)

func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }

// want compares a finding with its level and parts of what it says.
func want(t *testing.T, f finding, l level, parts ...string) {
	t.Helper()
	said := f.String()
	if f.level != l || (l == fine) != (f.remedy == "") {
		t.Errorf("want %v: %s", l, said)
	}
	for _, p := range parts {
		if !strings.Contains(said, p) {
			t.Errorf("%q is not said: %s", p, said)
		}
	}
}

// files makes a tree to look at in place of the root.
func files(t *testing.T, content map[string]string) host {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return host(dir)
}

func TestFindingsAreReadable(t *testing.T) {
	if got := ok("port", "%s is free", "127.0.0.1:1").String(); got != "ok   port: 127.0.0.1:1 is free" {
		t.Errorf("got %q", got)
	}
	if got := (finding{bad, "port", "in use", "stop it"}).String(); got != "FAIL port: in use\n     remedy: stop it" {
		t.Errorf("got %q", got)
	}
}

func TestCheckUser(t *testing.T) {
	want(t, checkUser(0), fine)
	want(t, checkUser(1000), bad, "1000", "sudo")
}

func TestCheckRuntime(t *testing.T) {
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "f")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := runtime.Info{Name: "containerd", Version: "v2", Ready: runtime.Condition{OK: true}}
	slow := runtime.Info{Name: "containerd", Version: "v2", Ready: runtime.Condition{Reason: "Starting"}}
	for _, tt := range []struct {
		name, endpoint string
		info           runtime.Info
		err            error
		level          level
		says           []string
	}{
		{"it is well", "unix://" + socket, good, nil, fine, []string{"containerd v2", socket}},
		{"no unix socket", "tcp://x", good, nil, bad, []string{"unix://"}},
		{"no socket", "unix://" + dir + "/none", good, nil, bad, []string{"there is no", "--container-runtime-endpoint"}},
		{"a file", "unix://" + file, good, nil, bad, []string{"is no socket"}},
		{"nobody answers", "unix://" + socket, good, fmt.Errorf("x: %w", runtime.ErrUnavailable), bad, []string{"nobody answers"}},
		{"it hangs", "unix://" + socket, good, context.DeadlineExceeded, bad, []string{"nobody answers"}},
		{"without CRI", "unix://" + socket, good, errors.ErrUnsupported, bad, []string{"disabled_plugins"}},
		{"it answers nonsense", "unix://" + socket, good, errors.New("nonsense"), bad, []string{"nonsense"}},
		{"it is not ready", "unix://" + socket, slow, nil, bad, []string{"not ready: Starting"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			info, f := checkRuntime(tt.endpoint, func() (runtime.Info, error) { return tt.info, tt.err })
			if len(f) != 1 {
				t.Fatalf("got %v", f)
			}
			want(t, f[0], tt.level, tt.says...)
			if answered := tt.level == fine || tt.info.Ready.Reason != ""; (info != nil) != answered {
				t.Errorf("info %v", info)
			}
		})
	}
}

func TestAskRuntimeEndsWhenNobodySpeaksCRI(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := askRuntime(t.Context(), "unix://"+socket); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestAskRuntimeHearsHowItIs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := criserver.New(runtimetest.New())
	defer s.Stop()
	go func() { _ = s.Serve(l) }() // ended by Stop
	info, f := checkRuntime("unix://"+socket, func() (runtime.Info, error) { return askRuntime(t.Context(), "unix://"+socket) })
	if len(f) != 1 || info == nil || !info.Network.OK {
		t.Fatalf("got %v, %v", info, f)
	}
	want(t, f[0], fine, socket)
}

func TestCheckNetwork(t *testing.T) {
	none := runtime.Info{Network: runtime.Condition{Message: "cni plugin not initialized"}}
	want(t, files(t, nil).checkNetwork(runtime.Info{Network: runtime.Condition{OK: true}}), fine)
	want(t, files(t, nil).checkNetwork(none), bad, "not initialized", "/etc/cni/net.d", "containernetworking-plugins")
	f := files(t, map[string]string{"usr/lib/cni/bridge": "", "etc/cni/net.d/10-x.conflist": "{"}).checkNetwork(none)
	want(t, f, bad, "what is wrong with the files")
	if strings.Contains(f.remedy, "install") {
		t.Errorf("plugins are there: %s", f)
	}
}

func TestCheckDriver(t *testing.T) {
	systemd := runtime.Info{CgroupDriver: "systemd"}
	want(t, files(t, nil).checkDriver(systemd), bad, "SystemdCgroup = false")
	want(t, files(t, map[string]string{"run/systemd/system/x": ""}).checkDriver(systemd), fine)
	want(t, files(t, nil).checkDriver(runtime.Info{CgroupDriver: "cgroupfs"}), fine, "cgroupfs")
	want(t, files(t, nil).checkDriver(runtime.Info{}), fine)
}

func TestCheckCgroups(t *testing.T) {
	v1 := "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n" +
		"31 25 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n" +
		"32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
		"33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	more := v1 + "34 25 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n35 25 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	for _, tt := range []struct {
		name  string
		tree  map[string]string
		level []level
		says  string
	}{
		{"version 2 with all", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids\n"}, []level{fine}, "version 2"},
		{"version 2 without memory", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io pids\n"}, []level{bad}, "cgroup_enable=memory"},
		{"version 2 without pids", map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory\n"}, []level{warn}, "pids"},
		{"version 1 with all", map[string]string{"proc/self/mountinfo": more}, []level{fine}, "version 1"},
		{"version 1 with some", map[string]string{"proc/self/mountinfo": v1}, []level{warn, warn}, "cpuset"},
		{"none", nil, []level{bad}, "none are mounted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := files(t, tt.tree).checkCgroups()
			if len(f) != len(tt.level) {
				t.Fatalf("got %v", f)
			}
			for i := range f {
				want(t, f[i], tt.level[i])
			}
			want(t, f[0], tt.level[0], tt.says)
		})
	}
}

func TestCheckPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	me := fmt.Sprintf("(pid %d)", os.Getpid())
	want(t, checkPort("127.0.0.1", port, host("/").portOwner), bad, "in use by", me, "--port")
	want(t, checkPort("127.0.0.1", port, func(int) string { return "" }), bad, "another process")
	_ = l.Close()
	want(t, checkPort("127.0.0.1", port, nil), fine, strconv.Itoa(port)+" is free")
	want(t, checkPort("192.0.2.1", port, nil), bad, "is no address of this machine")
	want(t, checkPort("127.0.0.1", 0, nil), fine, "not served")
}

func TestListenersAreFoundByPort(t *testing.T) {
	table := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1\n" +
		"   1: 0100007F:280A 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 222 1\n" +
		"   2: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1\n"
	if got := fmt.Sprint(listeners(table, 10250)); got != "[111]" {
		t.Errorf("got %s", got)
	}
}

func TestCheckWritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, checkWritable("root directory", dir, "--root-dir"), fine, dir)
	want(t, checkWritable("root directory", filepath.Join(dir, "a", "b"), "--root-dir"), fine, "will be made")
	want(t, checkWritable("root directory", file, "--root-dir"), bad, "is no directory", "--root-dir")
	want(t, checkWritable("root directory", "/proc/1/x", "--root-dir"), bad, "cannot be written")
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("something was made: %v", left)
	}
}

func TestCheckManifests(t *testing.T) {
	dir := string(files(t, map[string]string{"web.yaml": "", ".hidden": "", "sub/x.yaml": ""}))
	want(t, checkManifests(""), warn, "--pod-manifest-path")
	want(t, checkManifests(dir), fine, "files: 1")
	want(t, checkManifests(dir+"/web.yaml"), fine, "the file")
	want(t, checkManifests(dir+"/none"), warn, "mkdir -p")
	want(t, checkManifests(dir+"/web.yaml/x"), bad)
}

func TestCheckIPTablesAndForwarding(t *testing.T) {
	h := files(t, map[string]string{"proc/sys/net/ipv4/ip_forward": "1\n"})
	want(t, h.checkIPTables(func(string) (string, error) { return "/sbin/iptables", nil }), fine)
	want(t, h.checkIPTables(func(string) (string, error) { return "", os.ErrNotExist }), warn, "apt-get install iptables")
	want(t, h.checkForwarding(), fine)
	want(t, files(t, nil).checkForwarding(), warn, "sysctl")
}

func TestCheckShared(t *testing.T) {
	h := files(t, map[string]string{"proc/self/mountinfo": "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n" +
		"30 22 8:2 / /var/lib rw,relatime shared:7 - ext4 /dev/sda2 rw\n" + "31 30 8:3 / /var/lib/kube rw - ext4 /dev/sda3 rw\n"})
	want(t, h.checkShared("/var/lib/kubelet"), fine, "/var/lib is shared")
	want(t, h.checkShared("/var/lib"), fine)
	want(t, h.checkShared("/srv/kubelet"), warn, "mount --make-rshared /")
	want(t, h.checkShared("/var/lib/kube/x"), warn, "mount --make-rshared /var/lib/kube")
}

func TestCheckScorePutsItBack(t *testing.T) {
	path := string(files(t, map[string]string{"score": "5\n"})) + "/score"
	want(t, checkScore(path), fine)
	if b, _ := os.ReadFile(path); string(b) != "5\n" {
		t.Errorf("left %q", b)
	}
	want(t, checkScore("/proc/version"), warn)
	want(t, checkScore("/none"), warn)
}

func TestCheckDisks(t *testing.T) {
	const gib = 1 << 30
	look := func(dir string) (space, error) {
		switch dir {
		case "/full":
			return space{1, gib / 100, 100 * gib, 10, 10}, nil
		case "/tight":
			return space{2, 5 * gib, 100 * gib, 10, 10}, nil
		case "/many":
			return space{3, 50 * gib, 100 * gib, 1, 100}, nil
		case "/good", "/good/too":
			return space{4, 50 * gib, 100 * gib, 0, 0}, nil
		}
		return space{}, errors.New("no such disk")
	}
	f := checkDisks(look, "/full", "/tight", "/many", "/good", "/good/too", "/none")
	if len(f) != 5 {
		t.Fatalf("got %v", f)
	}
	want(t, f[0], bad, "10 of 102400 MiB")
	want(t, f[1], warn, "10 %")
	want(t, f[2], warn, "inodes")
	want(t, f[3], fine)
	want(t, f[4], warn, "no such disk")
	if _, err := statfs("/no/such/place"); err != nil {
		t.Errorf("the nearest directory above counts: %v", err)
	}
}

func TestCheckCommandSaysAllAndFails(t *testing.T) {
	var out strings.Builder
	err := checkCommand(t.Context(), []string{"--container-runtime-endpoint=unix:///none/x.sock", "--port=0", "--root-dir=" + t.TempDir(), "--pod-logs-dir=" + t.TempDir()}, &out)
	if err == nil || !strings.Contains(err.Error(), "checks failed: ") {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"user", "container runtime", "cgroups", "iptables", "ip forwarding", "oom score", "port", "root directory", "pod logs", "manifests", "disk space"} {
		if !strings.Contains(out.String(), " "+name+": ") {
			t.Errorf("%s is not in\n%s", name, &out)
		}
	}
	if err := checkCommand(t.Context(), []string{"--port=99999", "--pod-manifest-path=/x"}, io.Discard); err == nil {
		t.Error("a flag that cannot be was taken")
	}
}
