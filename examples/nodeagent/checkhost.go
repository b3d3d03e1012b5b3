package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// host is the root of the file system that is looked at: /, or a directory like it.
type host string

func (h host) read(path string) string {
	b, err := os.ReadFile(h.path(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (h host) path(path string) string { return filepath.Join(string(h), path) }

func (h host) exists(path string) bool {
	_, err := os.Stat(h.path(path))
	return err == nil
}

// checkNetwork says whether pods get addresses, and what is missing when the runtime has no network.
func (h host) checkNetwork(info runtime.Info) finding {
	const name = "pod network"
	if info.Network.OK {
		return ok(name, "the runtime has one")
	}
	f := finding{bad, name, "the runtime has none: " + said(info.Network), "look into the runtime's log for what is wrong with the files in /etc/cni/net.d"}
	if configs, _ := filepath.Glob(h.path("etc/cni/net.d/*.conf*")); len(configs) == 0 { // the pattern is good
		f.remedy = "put a network configuration into /etc/cni/net.d, or where the runtime's conf_dir says"
	}
	if !slices.ContainsFunc([]string{"opt/cni/bin", "usr/lib/cni", "usr/libexec/cni"}, h.exists) {
		f.remedy += "; and install the network plugins (apt-get install containernetworking-plugins)"
	}
	return f
}

// checkDriver finds a runtime that would ask a systemd which is not there.
func (h host) checkDriver(info runtime.Info) finding {
	const name = "cgroup driver"
	if info.CgroupDriver == "systemd" && !h.exists("run/systemd/system") {
		return finding{bad, name, "the runtime wants systemd, which does not run here", "set SystemdCgroup = false in the runtime's configuration and restart it"}
	}
	if info.CgroupDriver == "" {
		return ok(name, "the runtime does not say")
	}
	return ok(name, "%s", info.CgroupDriver)
}

// checkCgroups looks for the controllers that limit pods: those of a pure version 2, else the mounted ones of version 1.
func (h host) checkCgroups() []finding {
	const name = "cgroups"
	have := strings.Fields(h.read("sys/fs/cgroup/cgroup.controllers"))
	version := "version 2"
	if !h.exists("sys/fs/cgroup/cgroup.controllers") {
		version, have = "version 1", mountedControllers(h.read("proc/self/mountinfo"))
	}
	if len(have) == 0 {
		return []finding{{bad, name, "none are mounted", "mount -t cgroup2 none /sys/fs/cgroup"}}
	}
	need := []string{"cpu", "cpuset", "memory", "pids"}
	missing := slices.DeleteFunc(slices.Clone(need), func(c string) bool { return slices.Contains(have, c) })
	if len(missing) == 0 {
		return []finding{ok(name, "%s with %s", version, strings.Join(need, ", "))}
	}
	var out []finding
	for _, c := range missing {
		f := finding{warn, name, fmt.Sprintf("%s without controller %s: no limits of that kind", version, c), "enable it in the kernel"}
		if c == "memory" {
			f.remedy = "boot with cgroup_enable=memory"
		}
		if c == "cpu" || c == "memory" {
			f.level = bad
		}
		out = append(out, f)
	}
	return out
}

// mountedControllers are those of cgroup version 1 in a mountinfo file.
func mountedControllers(mountinfo string) (out []string) {
	for line := range strings.Lines(mountinfo) {
		_, tail, found := strings.Cut(line, " - ")
		f := strings.Fields(tail)
		if !found || len(f) < 3 || f[0] != "cgroup" {
			continue
		}
		for o := range strings.SplitSeq(f[2], ",") {
			if o != "rw" && o != "ro" && !strings.HasPrefix(o, "name=") {
				out = append(out, o)
			}
		}
	}
	return out
}

func (host) checkIPTables(look func(string) (string, error)) finding {
	const name = "iptables"
	path, err := look("iptables")
	if err != nil {
		return finding{warn, name, "not found", "apt-get install iptables; without it the network plugins open no host ports and hide no pod addresses"}
	}
	return ok(name, "%s", path)
}

func (h host) checkForwarding() finding {
	const name = "ip forwarding"
	if h.read("proc/sys/net/ipv4/ip_forward") == "1" {
		return ok(name, "on")
	}
	return finding{warn, name, "off: pods reach nobody beyond this node", "sysctl -w net.ipv4.ip_forward=1 (the bridge plugin does so by itself for the first pod)"}
}

// checkScore tries whether processes may be kept from the kernel's killer, as sandboxes are. The score is put back.
func checkScore(path string) finding {
	const name = "oom score"
	cannot := finding{
		warn, name, "may not be lowered here: sandboxes may die with \"can't get final child's PID from pipe\"",
		"set restrict_oom_score_adj = true in containerd's CRI plugin",
	}
	before, err := os.ReadFile(path)
	if err != nil {
		return finding{warn, name, err.Error(), "mount /proc"}
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(before)))
	if err != nil {
		return finding{warn, name, err.Error(), "mount /proc"}
	}
	if score <= -999 {
		return ok(name, "may be lowered")
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(score-1)), 0); err != nil {
		return cannot
	}
	if err := os.WriteFile(path, before, 0); err != nil {
		return finding{warn, name, "stays lower than it was: " + err.Error(), "nothing: it is this command's own"}
	}
	return ok(name, "may be lowered")
}

// portOwner names the process that listens on a TCP port; empty when that cannot be told.
func (h host) portOwner(port int) string {
	inodes := listeners(h.read("proc/net/tcp")+"\n"+h.read("proc/net/tcp6"), port)
	links, _ := filepath.Glob(h.path("proc/[0-9]*/fd/*")) // the pattern is good
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if inode, isSocket := strings.CutPrefix(to, "socket:["); isSocket && slices.Contains(inodes, strings.TrimSuffix(inode, "]")) {
			pid := filepath.Base(filepath.Dir(filepath.Dir(link)))
			return fmt.Sprintf("%s (pid %s)", h.read("proc/"+pid+"/comm"), pid)
		}
	}
	return ""
}

// listeners are the inodes of sockets that listen on a port, in the format of /proc/net/tcp.
func listeners(table string, port int) (inodes []string) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}

// checkWritable looks at a directory, or at the nearest one above it: the agent makes what is missing.
func checkWritable(name, dir, flag string) finding {
	at := dir
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	if err == nil && !info.IsDir() {
		return finding{bad, name, at + " is no directory", "give another " + flag}
	}
	if err == nil {
		err = unix.Access(at, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return finding{bad, name, fmt.Sprintf("%s cannot be written: %v", at, err), "run as root, mount it read-write, or give another " + flag}
	}
	if at != dir {
		return ok(name, "%s will be made", dir)
	}
	return ok(name, "%s", dir)
}

// space of a file system.
type space struct {
	id                    uint64
	free, size            uint64 // bytes
	freeInodes, allInodes uint64 // zero where there are no such things
}

// statfs looks at the file system of a directory, or of the nearest one above it.
func statfs(dir string) (space, error) {
	var s unix.Statfs_t
	err := unix.Statfs(dir, &s)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &s)
	}
	if err != nil {
		return space{}, err
	}
	unit := uint64(s.Bsize)
	id := uint64(uint32(s.Fsid.Val[0]))<<32 | uint64(uint32(s.Fsid.Val[1]))
	return space{id, s.Bavail * unit, s.Blocks * unit, s.Ffree, s.Files}, nil
}

// checkDisks looks at the file systems of directories, once each.
func checkDisks(look func(dir string) (space, error), dirs ...string) (out []finding) {
	const name, least = "disk space", 100 << 20
	seen := map[uint64]bool{}
	for _, dir := range dirs {
		s, err := look(dir)
		if err != nil {
			out = append(out, finding{warn, name, fmt.Sprintf("%s: %v", dir, err), "look at it by hand: df " + dir})
			continue
		}
		if seen[s.id] {
			continue
		}
		seen[s.id] = true
		text := fmt.Sprintf("%s has %d of %d MiB free", dir, s.free>>20, s.size>>20)
		switch {
		case s.free < least:
			out = append(out, finding{bad, name, text, "free some"})
		case s.free < s.size/10:
			out = append(out, finding{warn, name, text, "free some: a kubelet would evict pods below 10 %"})
		case s.freeInodes < s.allInodes/20:
			out = append(out, finding{warn, name, fmt.Sprintf("%s has %d of %d inodes free", dir, s.freeInodes, s.allInodes), "remove some of many small files"})
		default:
			out = append(out, ok(name, "%s", text))
		}
	}
	return out
}

// checkShared says whether mounts below a directory, which need not be there yet, are seen on both sides of a container's edge.
func (h host) checkShared(dir string) finding {
	const name = "mount propagation"
	at, options := "", []string(nil)
	for line := range strings.Lines(h.read("proc/self/mountinfo")) {
		f := strings.Fields(line)
		if len(f) < 7 {
			continue
		}
		if point := f[4]; len(point) >= len(at) && strings.HasPrefix(dir+"/", strings.TrimSuffix(point, "/")+"/") {
			at, options = point, f[6:]
		}
	}
	if slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "shared:") }) {
		return ok(name, "%s is shared", at)
	}
	return finding{
		warn, name, fmt.Sprintf("%s, on which %s lies, is not shared: containers with a mountPropagation do not start", at, dir),
		"mount --make-rshared " + at,
	}
}
