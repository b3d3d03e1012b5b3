package stats

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Machine is what a host is and has. What could not be read is empty.
type Machine struct {
	Cores     int             // logical ones that are online
	Memory    int64           // bytes
	Swap      int64           // bytes; 0: none
	HugePages map[int64]int64 // number of pages by their size in bytes

	UserNamespace bool // this process is root only in a user namespace

	MachineID, SystemUUID, BootID string
	Kernel, OSImage               string
}

// identify reads what a machine is.
func identify(root fs.FS) Machine {
	return Machine{
		MachineID:  first(root, "etc/machine-id", "var/lib/dbus/machine-id"),
		SystemUUID: first(root, "sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"),
		BootID:     first(root, "proc/sys/kernel/random/boot_id"),
		Kernel:     first(root, "proc/sys/kernel/osrelease"),
		OSImage:    osImage(first(root, "etc/os-release", "usr/lib/os-release")),

		UserNamespace: inUserNamespace(root),
	}
}

// measure reads what a machine has. One of which neither CPUs nor memory can be read is an error.
func (m *Machine) measure(root fs.FS) error {
	m.HugePages = hugePages(root)
	memory, err := meminfo(root)
	if err != nil {
		return err
	}
	m.Memory, m.Swap = memory["MemTotal"], memory["SwapTotal"]
	if m.Memory <= 0 {
		return errors.New("proc/meminfo says no MemTotal")
	}
	m.Cores, err = cores(root)
	return err
}

// first is the trimmed content of the first of these files that has any.
func first(root fs.FS, names ...string) string {
	for _, name := range names {
		if b, err := fs.ReadFile(root, name); err == nil {
			if text := strings.Trim(string(b), " \t\r\n\x00"); text != "" {
				return text
			}
		}
	}
	return ""
}

// inUserNamespace says that the IDs of users are not those of the host. An unknown mapping is taken for none.
func inUserNamespace(root fs.FS) bool {
	b, err := fs.ReadFile(root, "proc/self/uid_map")
	return err == nil && !slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}

// cores counts the CPUs that are online.
func cores(root fs.FS) (int, error) {
	online := first(root, "sys/devices/system/cpu/online")
	if n, err := countList(online); err == nil && n > 0 {
		return n, nil
	}
	n := 0
	for line := range strings.Lines(first(root, "proc/cpuinfo")) {
		if key, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "processor" {
			n++
		}
	}
	if n == 0 {
		return 0, errors.New("neither sys/devices/system/cpu/online nor proc/cpuinfo says how many CPUs there are")
	}
	return n, nil
}

const maxCPUs = 1 << 16 // more than any kernel supports

// countList counts what the kernel writes as a list: "0-3,8".
func countList(list string) (int, error) {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("list of CPUs %q: %w", list, err)
		}
		b := a
		if isRange {
			if b, err = strconv.ParseUint(to, 10, 16); err != nil || b < a {
				return 0, fmt.Errorf("list of CPUs %q: bad range %q", list, part)
			}
		}
		if n += int(b-a) + 1; n > maxCPUs {
			return 0, fmt.Errorf("list of CPUs %q: too many", list)
		}
	}
	return n, nil
}

// hugePages are the pages set aside, by size.
func hugePages(root fs.FS) map[int64]int64 {
	const dir = "sys/kernel/mm/hugepages"
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil // a kernel without them
	}
	out := map[int64]int64{}
	for _, e := range entries {
		size, ok := hugePageSize(e.Name())
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(first(root, dir+"/"+e.Name()+"/nr_hugepages"), 10, 64); err == nil && n >= 0 {
			out[size] = n
		}
	}
	return out
}

// hugePageSize reads the name of a directory: "hugepages-2048kB".
func hugePageSize(name string) (int64, bool) {
	text, ok := strings.CutPrefix(name, "hugepages-")
	if !ok {
		return 0, false
	}
	text, ok = strings.CutSuffix(text, "kB")
	kB, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || kB <= 0 || kB > 1<<40 {
		return 0, false
	}
	return kB << 10, true
}

// osImage finds how a distribution calls itself in its os-release.
func osImage(release string) string {
	for line := range strings.Lines(release) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return "Linux"
}

// meminfo is /proc/meminfo in bytes.
func meminfo(root fs.FS) (map[string]int64, error) {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("read how much memory there is: %w", err)
	}
	return parseMeminfo(string(b)), nil
}

func parseMeminfo(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		key, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) != 2 || f[1] != "kB" {
			continue // numbers of pages, not bytes
		}
		if kB, err := strconv.ParseInt(f[0], 10, 64); err == nil && kB >= 0 && kB < 1<<50 {
			out[strings.TrimSpace(key)] = kB << 10
		}
	}
	return out
}
