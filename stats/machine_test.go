package stats

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMachine(t *testing.T) {
	for name, want := range map[string]Machine{
		"v1": {
			Cores: 2, Memory: 8000000 << 10, MachineID: "3d1219c7c4c5404aaa1f6d2a48adfda4",
			SystemUUID: "4C4C4544-0042-3510-8052-B4C04F4D3132", BootID: "87077705-432d-4b00-92dc-d88a38e3a054",
			Kernel: "6.1.0-18-amd64", OSImage: "Debian GNU/Linux 12 (bookworm)",
		},
		"v2": {
			Cores: 7, Memory: 16000000 << 10, Swap: 4000000 << 10, HugePages: map[int64]int64{2 << 20: 512, 1 << 30: 0}, UserNamespace: true,
			MachineID: "00000000000000000000000000000002", SystemUUID: "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", BootID: "b2",
			Kernel: "6.12.8", OSImage: "Talos (v1.9)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Config{Root: os.DirFS("testdata/" + name)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Machine()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMachineOfWhichLittleCanBeRead(t *testing.T) {
	memory := &fstest.MapFile{Data: []byte("MemTotal: 1024 kB\n")}
	online := &fstest.MapFile{Data: []byte("0\n")}
	for _, c := range []struct {
		rule  string
		files fstest.MapFS
		fails string // empty: it is a machine of one core
	}{
		{"CPUs and memory are enough", fstest.MapFS{"proc/meminfo": memory, "sys/devices/system/cpu/online": online}, ""},
		{"a list of CPUs that makes no sense: cpuinfo", fstest.MapFS{
			"proc/meminfo": memory, "sys/devices/system/cpu/online": {Data: []byte("3-1")}, "proc/cpuinfo": {Data: []byte("processor : 0\n")},
		}, ""},
		{"no memory", fstest.MapFS{"sys/devices/system/cpu/online": online}, "how much memory"},
		{"memory of unknown size", fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: much\n")}}, "MemTotal"},
		{"no CPUs", fstest.MapFS{"proc/meminfo": memory}, "how many CPUs"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			host, err := New(Config{Root: c.files})
			if err != nil {
				t.Fatal(err)
			}
			m, err := host.Machine()
			switch {
			case c.fails == "" && (err != nil || m.Cores != 1 || m.Memory != 1<<20 || m.OSImage != "Linux"):
				t.Errorf("%+v, %v", m, err)
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("error %v, want %q", err, c.fails)
			}
		})
	}
}

func TestWhatAMachineHasIsReadEachTimeAndWhatItIsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := fstest.MapFS{
			"proc/meminfo": {Data: []byte("MemTotal: 1024 kB\n")}, "sys/devices/system/cpu/online": {Data: []byte("0\n")},
			"etc/machine-id": {Data: []byte("first")},
		}
		host, err := New(Config{Root: files})
		if err != nil {
			t.Fatal(err)
		}
		is := func(cores int, id string) {
			t.Helper()
			if m, err := host.Machine(); err != nil || m.Cores != cores || m.MachineID != id {
				t.Errorf("%+v, %v; want %d cores of %s", m, err, cores, id)
			}
		}
		is(1, "first")
		files["sys/devices/system/cpu/online"].Data = []byte("0-3\n")
		files["etc/machine-id"].Data = []byte("second")
		is(4, "first")
		time.Sleep(nameAgain)
		is(4, "second")
	})
}

func TestStorage(t *testing.T) {
	t.Run("of a directory that is not made yet", func(t *testing.T) {
		var asked []string
		c, err := New(Config{RootDir: "/var/lib/kubelet", Disk: func(path string) (DiskUsage, error) {
			asked = append(asked, path)
			if path != "/var" {
				return DiskUsage{}, &fs.PathError{Op: "statfs", Path: path, Err: fs.ErrNotExist}
			}
			return DiskUsage{Capacity: 42}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Storage(); n != 42 || err != nil {
			t.Errorf("%d, %v after %q", n, err, asked)
		}
	})
	t.Run("that cannot be measured", func(t *testing.T) {
		bad := errors.New("I/O error")
		c, err := New(Config{Disk: func(string) (DiskUsage, error) { return DiskUsage{}, bad }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Storage(); !errors.Is(err, bad) {
			t.Error(err)
		}
	})
	t.Run("of a relative path is nobody's", func(t *testing.T) {
		if _, err := New(Config{RootDir: "kubelet"}); err == nil {
			t.Error("no error")
		}
	})
}

func FuzzCPUList(f *testing.F) {
	for _, s := range []string{"0-3,8", "0", "", "3-1", "0-65535,0-65535", "-", ",", "0-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := countList(s); err == nil && (n < 1 || n > maxCPUs) {
			t.Errorf("%q: %d", s, n)
		}
	})
}

func FuzzFiles(f *testing.F) {
	for _, name := range []string{"v1/proc/meminfo", "v2/sys/fs/cgroup/memory.stat", "v1/proc/1/net/dev", "v1/etc/os-release", "v1/proc/loadavg", "v2/proc/pressure/memory"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("hugepages-9999999999999kB")
	f.Fuzz(func(t *testing.T, s string) {
		for key, n := range parseMeminfo(s) {
			if n < 0 {
				t.Errorf("meminfo: %s is %d", key, n)
			}
		}
		for key, n := range parseFlat(s) {
			if n < 0 {
				t.Errorf("memory.stat: %s is %d", key, n)
			}
		}
		for _, v2 := range []bool{false, true} {
			if m := parseMemory([]byte(s), v2); min(m.anon, m.file, m.inactive, m.faults, m.majorFaults) < 0 {
				t.Errorf("memory.stat: %+v", m)
			}
		}
		if p := parsePressure(s); p != nil && min(p.Some.Avg10, p.Full.Avg300) < 0 {
			t.Errorf("pressure: %+v", p)
		}
		for _, i := range parseNetDev(s) {
			if i.Name == "" || strings.ContainsAny(i.Name, ":\n") {
				t.Errorf("interface %q", i.Name)
			}
		}
		if n, ok := tasks(s); ok && n < 0 {
			t.Errorf("%d tasks", n)
		}
		if size, ok := hugePageSize(s); ok && size < 1 {
			t.Errorf("huge pages of %d bytes", size)
		}
		if strings.Contains(osImage(s), "\n") {
			t.Errorf("OS %q", osImage(s))
		}
	})
}
