package podruntime

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Kernel is what the kernel of this machine can do for containers. The zero value is one with cgroup v1 that can do
// nothing of it.
type Kernel struct {
	CgroupV2    bool
	SwapControl bool     // the swap of a cgroup can be limited
	Swap        int64    // of the machine in bytes
	Hugepages   []string // sizes of huge pages: 2MB, 1GB
	SELinux     bool     // files have labels; only then volumes are labelled anew
	Masked      []string // paths that tell of other users of this machine, beside those every machine has
}

// LookAtKernel reads what the kernel can do. root is the file system of the machine, os.DirFS("/"). What cannot be read is
// taken to be not there.
func LookAtKernel(root fs.FS) Kernel {
	k := Kernel{
		CgroupV2: exists(root, "sys/fs/cgroup/cgroup.controllers"), Swap: swapTotal(root),
		Hugepages: hugepageSizes(root), SELinux: exists(root, "sys/fs/selinux/enforce"),
	}
	k.SwapControl = exists(root, "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	if k.CgroupV2 { // the root of the tree has no such file
		k.SwapControl = exists(root, path.Join("sys/fs/cgroup", ownCgroup(root), "memory.swap.max"))
	}
	k.Masked, _ = fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle") // the pattern is good
	for i, p := range k.Masked {
		k.Masked[i] = "/" + p
	}
	return k
}

func exists(root fs.FS, name string) bool {
	_, err := fs.Stat(root, name)
	return err == nil
}

// ownCgroup is the cgroup of this process in the tree of cgroup v2, without a slash before it.
func ownCgroup(root fs.FS) string {
	data, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(data)) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok {
			return at
		}
	}
	return ""
}

func swapTotal(root fs.FS) int64 {
	data, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range bytes.Lines(data) {
		if f := bytes.Fields(line); len(f) >= 2 && string(f[0]) == "SwapTotal:" {
			kib, _ := strconv.ParseInt(string(f[1]), 10, 64) // 0 is none
			return kib << 10
		}
	}
	return 0
}

// hugepageSizes are named in the unit that says them shortest, as the kernel does in names of files.
func hugepageSizes(root fs.FS) (sizes []string) {
	entries, _ := fs.ReadDir(root, "sys/kernel/mm/hugepages")
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "hugepages-")
		size, err := strconv.ParseInt(strings.TrimSuffix(number, "kB"), 10, 64)
		if !ok || err != nil || size <= 0 {
			continue
		}
		unit := 0
		for units := "KMGT"; size >= 1024 && unit < len(units)-1; unit++ {
			size >>= 10
		}
		sizes = append(sizes, fmt.Sprintf("%d%cB", size, "KMGT"[unit]))
	}
	slices.Sort(sizes)
	return sizes
}
