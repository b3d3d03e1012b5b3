package bed

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/test/images"
)

func TestChooseNetwork(t *testing.T) {
	free := func(name, subnet string, links []string, taken ...netip.Prefix) {
		t.Helper()
		gotName, gotSubnet, err := chooseNetwork("0", links, taken)
		if err != nil || gotName != name || gotSubnet.String() != subnet {
			t.Errorf("chooseNetwork = %q %v, %v; want %q %s", gotName, gotSubnet, err, name, subnet)
		}
	}
	free("kk-0", "10.192.192.0/22", []string{"lo", "eth0"})
	free("kk-0-2", "10.192.192.0/22", []string{"kk-0", "kk-0-1"})
	// A single address of someone else in a block takes the block; the default route takes nothing.
	free("kk-0", "10.192.196.0/22", nil, netip.MustParsePrefix("10.192.193.7/32"))
	free("kk-0", "10.192.192.0/22", nil, netip.MustParsePrefix("0.0.0.0/0"))
	free("kk-0", "10.193.0.0/22", nil, netip.MustParsePrefix("10.192.0.0/16"))
	// The search goes round: the blocks before its beginning come last.
	free("kk-0", "10.192.0.0/22", nil, netip.MustParsePrefix("10.192.192.0/18"), netip.MustParsePrefix("10.192.128.0/17"),
		netip.MustParsePrefix("10.193.0.0/16"), netip.MustParsePrefix("10.194.0.0/15"), netip.MustParsePrefix("10.196.0.0/14"),
		netip.MustParsePrefix("10.200.0.0/13"), netip.MustParsePrefix("10.208.0.0/12"), netip.MustParsePrefix("10.224.0.0/11"))

	if _, _, err := chooseNetwork("0", nil, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}); err == nil {
		t.Error("a network was found where all are taken")
	}
}

func TestPrefixes(t *testing.T) {
	got := prefixes(`default via 192.0.2.1 dev eth0
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.2
broadcast 127.255.255.255 dev lo table local proto kernel scope link src 127.0.0.1
unreachable default dev lo metric 4294967295 error -101`)
	want := []string{"192.0.2.1/32", "192.0.2.0/24", "192.0.2.2/32", "127.255.255.255/32", "127.0.0.1/32"}
	var text []string
	for _, p := range got {
		text = append(text, p.String())
	}
	if !slices.Equal(text, want) {
		t.Errorf("prefixes = %v, want %v", text, want)
	}
}

func TestToolNames(t *testing.T) {
	for gomod, want := range map[string]string{
		"module m\n\ntool example.com/a\n": "a",
		"tool (\n\texample.com/x/cmd/b\n\texample.com/c // indirect\n)\nrequire (\n\tfoo v1\n)\n": "b c",
		"module m\n": "",
	} {
		if got := strings.Join(toolNames(gomod), " "); got != want {
			t.Errorf("toolNames(%q) = %q, want %q", gomod, got, want)
		}
	}
}

func TestMissingPackages(t *testing.T) {
	status := "gcc installed\nlibc6-dev config-files\niptables-persistent installed\n"
	got := missingPackages([]string{"gcc", "libc6-dev", "iptables", "c"}, status)
	if want := []string{"libc6-dev", "iptables", "c"}; !slices.Equal(got, want) {
		t.Errorf("missingPackages = %v, want %v", got, want)
	}
}

func TestMountPoints(t *testing.T) {
	mountinfo := `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /tmp/bed/state/shm rw - tmpfs shm rw
31 22 0:27 / /tmp/bed/a\040b rw - tmpfs x rw
32 22 0:28 / /tmp/bedroom/x rw - tmpfs x rw
`
	got := mountPoints(mountinfo, "/tmp/bed")
	if want := []string{"/tmp/bed/state/shm", "/tmp/bed/a b"}; !slices.Equal(got, want) {
		t.Errorf("mountPoints = %v, want %v", got, want)
	}
}

func TestUndoRules(t *testing.T) {
	saved := `*nat
:POSTROUTING ACCEPT [0:0]
:CNI-1a - [0:0]
-A POSTROUTING -s 10.192.0.2/32 -m comment --comment "name: \"kk-a\" id: \"x\"" -j CNI-1a
-A POSTROUTING -s 10.193.0.2/32 -m comment --comment "name: \"kk-b\" id: \"y\"" -j CNI-1b
-A CNI-1a -d 10.192.0.0/22 -m comment --comment "name: \"kk-a\" id: \"x\"" -j ACCEPT
COMMIT
`
	want := `*nat
-D POSTROUTING -s 10.192.0.2/32 -m comment --comment "name: \"kk-a\" id: \"x\"" -j CNI-1a
-D CNI-1a -d 10.192.0.0/22 -m comment --comment "name: \"kk-a\" id: \"x\"" -j ACCEPT
-F CNI-1a
-X CNI-1a
COMMIT
`
	if got := undoRules(saved, "kk-a"); got != want {
		t.Errorf("undoRules = %s", got)
	}
	if got := undoRules(saved, "kk-c"); got != "" {
		t.Errorf("undoRules of a network without rules = %s", got)
	}
}

func TestHolds(t *testing.T) {
	listing := "REF TYPE DIGEST SIZE PLATFORMS LABELS\nexample.com/a:1 application/x sha256:aa 4 KiB linux/amd64 -\n"
	for _, c := range []struct {
		rule string
		a    images.Archive
		want bool
	}{
		{"the same content", images.Archive{Ref: "example.com/a:1", Digest: "sha256:aa"}, true},
		{"other content under the name", images.Archive{Ref: "example.com/a:1", Digest: "sha256:bb"}, false},
		{"another name", images.Archive{Ref: "example.com/a:2", Digest: "sha256:aa"}, false},
	} {
		if got := holds(listing, c.a); got != c.want {
			t.Errorf("%s: holds = %v", c.rule, got)
		}
	}
}

// Everything containerd would share with another one on this machine must lie in the bed.
func TestConfigIsPrivate(t *testing.T) {
	files, err := render("/tmp/b", state{Bridge: "kk-x", Subnet: "10.192.0.0/22", RestrictOOM: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]string{
		"containerd.toml": {
			`root = "/tmp/b/root"`, `state = "/tmp/b/state"`, `address = "/tmp/b/containerd.sock"`,
			`socket_dir = "/run/kubeletkit/` + key("/tmp/b") + `"`, `Root = "/tmp/b/runc"`,
			`netns_mounts_under_state_dir = true`, `restrict_oom_score_adj = true`, `conf_dir = "/tmp/b/cni"`,
		},
		"cni/10-bed.conflist": {`"bridge": "kk-x"`, `"subnet": "10.192.0.0/22"`, `"dataDir": "/tmp/b/ipam"`},
		"crictl.yaml":         {"runtime-endpoint: unix:///tmp/b/containerd.sock"},
	} {
		for _, line := range lines {
			if !strings.Contains(files[name], line) {
				t.Errorf("%s has no %s:\n%s", name, line, files[name])
			}
		}
	}
	if len(socketDir("/tmp/b")) > 42 {
		t.Error("containerd allows 42 bytes for the directory of shim sockets")
	}
}

func TestOpenRefusesLongPaths(t *testing.T) {
	if _, err := Open("/tmp/" + strings.Repeat("x", 100)); err == nil {
		t.Error("no error for a path too long for a socket")
	}
}

func TestCleanRefusesWhatIsNoBed(t *testing.T) {
	dir := t.TempDir()
	b := &Bed{dir: dir}
	if err := b.Clean(t.Context()); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
	writeFile(t, dir+"/precious", "x")
	if err := b.Clean(t.Context()); err == nil {
		t.Error("a directory with somebody's files was cleaned")
	}
}
