package staticpod

import (
	"strings"
	"testing"
)

func item(name, more string) string {
	return `{"metadata":{"name":"` + name + `"` + more + `},"spec":{"containers":[{"name":"c","image":"i"}]}}`
}

func TestDecodeList(t *testing.T) {
	for _, c := range []struct{ rule, text, want, refused string }{
		{rule: "items alone are a list", text: `{"items":[` + item("a", "") + `,` + item("b", `,"namespace":"n"`) + `]}`, want: "default/a n/b"},
		{rule: "a PodList in YAML", text: "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n", want: "default/a"},
		{rule: "no pods are a list", text: `{"items":[]}`},
		{rule: "one bad pod spoils it, at its place", text: `{"items":[` + item("a", "") + `,` + item("B", "") + `]}`, refused: "items[1].metadata.name: "},
		{rule: "two of one name", text: `{"items":[` + item("a", "") + `,` + item("a", `,"labels":{"x":"y"}`) + `]}`, refused: "items[1].metadata: is the name or uid"},
		{rule: "two of one uid", text: `{"items":[` + item("a", `,"uid":"u"`) + `,` + item("b", `,"uid":"u"`) + `]}`, refused: "items[1].metadata: is the name or uid"},
		{rule: "an object that lost its items", text: `{"kind":"PodList","apiVersion":"v1"}`, refused: "without items"},
		{rule: "items of null", text: `{"items":null}`, refused: "without items"},
		{rule: "no object", text: `[]`, refused: "holds a list without items"},
		{rule: "half a document", text: `{"items":[`, refused: " "},
		{rule: "a list of other things", text: `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`, refused: "a list of pods is a PodList"},
		{rule: "another version", text: `{"apiVersion":"v2","items":[]}`, refused: "apiVersion: v1"},
		{rule: "items that are no list", text: `{"items":{}}`, refused: "items that are no list"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			pods, _, err := DecodeList([]byte(c.text))
			var names []string
			for _, p := range pods {
				names = append(names, p.Namespace+"/"+p.Name)
			}
			switch got := strings.Join(names, " "); {
			case got != c.want, (err != nil) != (c.refused != ""):
				t.Errorf("%s, %v; want %s, an error: %t", got, err, c.want, c.refused != "")
			case err != nil && !strings.Contains(err.Error(), c.refused):
				t.Errorf("error %q, want %q in it", err, c.refused)
			}
		})
	}
}

func FuzzDecodeList(f *testing.F) {
	f.Add([]byte(`{"items":[` + item("a", "") + `,` + item("b", `,"uid":"u"`) + `]}`))
	f.Add([]byte(`{"items":[{"metadata":{"name":"b"}},null,7,[],{}]}`))
	f.Add([]byte("items:\n- kind: Pod\n  metadata: {name: a, namespace: n}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		pods, _, err := DecodeList(b)
		if err != nil {
			if len(pods) > 0 || len(err.Error()) > 4<<10 {
				t.Errorf("%d pods, error of %d bytes", len(pods), len(err.Error()))
			}
			return
		}
		taken := map[string]bool{}
		for _, p := range pods {
			if p.UID == "" || p.Name == "" || p.Namespace == "" || taken[string(p.UID)] || taken[p.Namespace+"/"+p.Name] {
				t.Errorf("pod %+v", p.ObjectMeta)
			}
			taken[string(p.UID)], taken[p.Namespace+"/"+p.Name] = true, true
		}
	})
}

func TestDecodeListNamesPodsByWhatTheySay(t *testing.T) {
	uid := func(text string) string {
		pods, _, err := DecodeList([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return string(pods[0].UID)
	}
	a := uid(`{"items":[` + item("a", "") + `]}`)
	if b := uid(`{ "kind": "PodList", "apiVersion": "v1", "items" : [ ` + item("a", "") + `]}`); a == "" || a != b {
		t.Errorf("one content has uids %q and %q", a, b)
	}
	if b := uid(`{"items":[` + item("a", `,"labels":{"x":"y"}`) + `]}`); a == b {
		t.Errorf("another content has the uid %q, too", b)
	}
	if b := uid(`{"items":[` + item("a", `,"uid":"mine"`) + `]}`); b != "mine" {
		t.Errorf("uid %q, want mine", b)
	}
}
