package podruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// own is a pod with users of its own.
func own(uid types.UID) *v1.Pod {
	p := pod(polite)
	p.UID, p.Name = uid, string(uid)
	p.Spec.HostUsers = new(false)
	return p
}

func (n *node) idsOf(t *testing.T, p *v1.Pod) (first uint32, err error) {
	t.Helper()
	if err := n.files.makePod(p.UID); err != nil {
		t.Fatal(err)
	}
	ids, err := n.users(t.Context(), p, "")
	if err != nil {
		return 0, err
	}
	if len(ids) != 1 || ids[0].Container != 0 || ids[0].Length != n.ranges.Each {
		t.Fatalf("%+v", ids)
	}
	return ids[0].Host, nil
}

func few(c *Config) { c.Users = Users{First: 3 << 16, Count: 3 << 16} }

func TestRangesOfUsers(t *testing.T) {
	n := newNode(t, few)
	for i, uid := range []types.UID{"a", "b", "c"} {
		if first, err := n.idsOf(t, own(uid)); err != nil || first != uint32(i+3)<<16 {
			t.Errorf("%s: %d, %v", uid, first>>16, err)
		}
	}
	if _, err := n.idsOf(t, own("d")); err == nil || !strings.Contains(err.Error(), "all 3 ranges are taken") {
		t.Errorf("a fourth of three: %v", err)
	}
	if first, err := n.idsOf(t, own("b")); err != nil || first != 4<<16 {
		t.Errorf("b asks again: %d, %v", first>>16, err)
	}
	if err := n.Remove(t.Context(), "b", runtime.Release); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(n.files.podDir("b"), "userns")); !os.IsNotExist(err) {
		t.Errorf("the file of one that was given back: %v", err)
	}
	if first, err := n.idsOf(t, own("d")); err != nil || first != 4<<16 {
		t.Errorf("d gets what b gave back: %d, %v", first>>16, err)
	}
}

func TestARangeIsUsedAgainAsLateAsCanBe(t *testing.T) {
	n := newNode(t, few)
	var got []uint32
	for _, uid := range []types.UID{"a", "b", "c", "d", "e"} {
		first, err := n.idsOf(t, own(uid))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, first>>16)
		if err := n.Remove(t.Context(), uid, runtime.Purge); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]uint32{3, 4, 5, 3, 4}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRangesOutliveTheAgent(t *testing.T) {
	n := newNode(t, few)
	a, errA := n.idsOf(t, own("a"))
	b, errB := n.idsOf(t, own("b"))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	file, err := os.ReadFile(filepath.Join(n.files.podDir("b"), "userns"))
	want := `{"uidMappings":[{"hostId":262144,"containerId":0,"length":65536}],"gidMappings":[{"hostId":262144,"containerId":0,"length":65536}]}`
	if err != nil || string(file) != want { // what the kubelet writes, and reads
		t.Errorf("%s, %v", file, err)
	}
	next := newNode(t, few, func(c *Config) { c.Root = n.cfg.Root })
	if first, err := next.idsOf(t, own("c")); err != nil || first == a || first == b {
		t.Errorf("another pod: %d, %v", first>>16, err)
	}
	if first, err := next.idsOf(t, own("b")); err != nil || first != b {
		t.Errorf("the same pod: %d, %v", first>>16, err)
	}
}

func TestWhatAKilledAgentBeganToWriteGoesWithThePod(t *testing.T) {
	n := newNode(t, few)
	if _, err := n.idsOf(t, own("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.files.podDir("a"), ".userns123456"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(t.Context(), "a", runtime.Purge); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(n.files.podDir("a")); !os.IsNotExist(err) {
		t.Errorf("the directory of the pod: %v", err)
	}
}

func TestADamagedRangeKeepsOnlyItsPodBack(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": "{", "nothing": "", "two": `{"uidMappings":[{"hostId":262144,"length":65536},{}],"gidMappings":[{"hostId":262144,"length":65536},{}]}`,
		"root is not mapped":   `{"uidMappings":[{"hostId":262144,"containerId":1,"length":65536}],"gidMappings":[{"hostId":262144,"containerId":1,"length":65536}]}`,
		"groups differ":        `{"uidMappings":[{"hostId":262144,"length":65536}],"gidMappings":[{"hostId":196608,"length":65536}]}`,
		"another length":       `{"uidMappings":[{"hostId":262144,"length":131072}],"gidMappings":[{"hostId":262144,"length":131072}]}`,
		"not at a border":      `{"uidMappings":[{"hostId":262145,"length":65536}],"gidMappings":[{"hostId":262145,"length":65536}]}`,
		"not among those here": `{"uidMappings":[{"hostId":65536,"length":65536}],"gidMappings":[{"hostId":65536,"length":65536}]}`,
		"root of the machine":  `{"uidMappings":[{"hostId":0,"length":65536}],"gidMappings":[{"hostId":0,"length":65536}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, few)
			if err := n.files.makePod("a"); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(n.files.podDir("a"), "userns")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := n.idsOf(t, own("a")); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("its pod: %v", err)
			}
			if _, err := n.idsOf(t, own("b")); err != nil {
				t.Errorf("another: %v", err)
			}
			if err := n.Remove(t.Context(), "a", runtime.Release); err != nil {
				t.Fatal(err)
			}
			if _, err := n.idsOf(t, own("a")); err != nil {
				t.Errorf("its pod without the file: %v", err)
			}
		})
	}
}

func TestWhoSharesTheMachinesUsersHasNoRange(t *testing.T) {
	n := newNode(t, few)
	for name, said := range map[string]*bool{"nothing said": nil, "said": new(true)} {
		p := own("a")
		p.Spec.HostUsers = said
		if ids, err := n.users(t.Context(), p, ""); ids != nil || err != nil {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
	}
}

func TestARuntimeWithoutUserNamespaces(t *testing.T) {
	n := newNode(t)
	info, err := n.engine.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info.Handlers = []runtime.Handler{{Name: "micro"}, {RecursiveRO: true}}
	n.engine.SetInfo(info)
	for handler, want := range map[string]string{
		"":      "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
		"micro": "can't set `spec.hostUsers: false`, RuntimeClass handler \"micro\" does not support user namespaces",
		"other": "can't set `spec.hostUsers: false`, RuntimeClass handler \"other\" does not support user namespaces",
	} {
		if _, err := n.users(t.Context(), own("a"), handler); err == nil || err.Error() != want {
			t.Errorf("%q: %v", handler, err)
		}
	}
}

func TestUsersMustKeepPodsApart(t *testing.T) {
	for name, row := range map[string]struct {
		in   Users
		want Users
		bad  string
	}{
		"nothing said":                {Users{}, Users{1 << 16, 1<<32 - 2<<16, 1 << 16}, ""},
		"more for each":               {Users{Each: 2 << 16}, Users{2 << 16, 1<<32 - 4<<16, 2 << 16}, ""},
		"those of a user":             {Users{First: 5 << 16, Count: 7 << 16}, Users{5 << 16, 7 << 16, 1 << 16}, ""},
		"half a unit":                 {Users{Each: 1 << 15}, Users{}, "Users.Each is 32768"},
		"a range begins in another":   {Users{First: 3 << 15, Count: 1 << 16}, Users{}, "from 98304 on"},
		"ranges are not whole":        {Users{First: 1 << 16, Count: 3 << 15}, Users{}, "98304 IDs"},
		"beyond the last there is":    {Users{First: 1<<32 - 1<<16, Count: 2 << 16}, Users{}, "131072 IDs"},
		"up to the last there is":     {Users{First: 1<<32 - 2<<16, Count: 2 << 16}, Users{1<<32 - 2<<16, 1 << 16, 1 << 16}, ""}, // kubernetes/kubernetes#141345
		"all from where it begins on": {Users{First: 1<<32 - 3<<16}, Users{1<<32 - 3<<16, 2 << 16, 1 << 16}, ""},
		"only the last there is":      {Users{First: 1<<32 - 1<<16}, Users{}, "no 65536 IDs before 4294967295"},
		"only those of the last pod":  {Users{First: 1<<32 - 1<<16, Count: 1 << 16}, Users{}, "no 65536 IDs before 4294967295"},
	} {
		got, err := row.in.check()
		if row.bad != "" {
			if err == nil || !strings.Contains(err.Error(), row.bad) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || got != row.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestRangesOfOtherSettingsAreKeptOutOfTheWay(t *testing.T) {
	n := newNode(t, few)
	if err := n.files.makePod("old"); err != nil {
		t.Fatal(err)
	}
	const two = `{"uidMappings":[{"hostId":196608,"length":131072}],"gidMappings":[{"hostId":196608,"length":131072}]}` // the ranges 3 and 4
	if err := os.WriteFile(filepath.Join(n.files.podDir("old"), "userns"), []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	if first, err := n.idsOf(t, own("a")); err != nil || first != 5<<16 {
		t.Errorf("the free one: %d, %v", first>>16, err)
	}
	if _, err := n.idsOf(t, own("b")); err == nil || !strings.Contains(err.Error(), "all 3 ranges are taken") {
		t.Errorf("a second one while the old pod lives: %v", err)
	}
	if err := n.Remove(t.Context(), "old", runtime.Release); err != nil {
		t.Fatal(err)
	}
	if first, err := n.idsOf(t, own("b")); err != nil || first != 3<<16 {
		t.Errorf("once it has ended: %d, %v", first>>16, err)
	}
}
