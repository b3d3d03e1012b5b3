package staticpod

import (
	"encoding/hex"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DecodeList reads a list of pods for a source of your own: a PodList, YAML or JSON, of which kind and apiVersion may be left
// out, {"items": [...]}. Each pod is read as [Decode] reads it. One without a namespace is in "default", and one without a
// uid gets it from what its item says: the same for the same, and another pod when the item changes.
//
// A list with one bad pod, or with two of one name or uid, is refused as a whole: half a list would look like pods that were
// taken away. The error is then [Problems] with what is wrong in all of its pods.
func DecodeList(b []byte) (pods []*v1.Pod, warnings []string, err error) {
	content, warnings, err := contentOf(b)
	if err != nil {
		return nil, warnings, err
	}
	list, _ := content.(map[string]any)
	if list["items"] == nil {
		return nil, warnings, whole(`holds %s without items; a list of pods is {"items": [...]}, and of none {"items": []}`, shown(content))
	}
	if kind := named(list, "PodList")["kind"]; kind != "PodList" {
		return nil, warnings, whole("is of kind %s; a list of pods is a PodList", shown(kind))
	}
	all, warnings, err := readList(list, warnings)
	if err != nil {
		return nil, warnings, err
	}
	var found Problems
	taken := map[string]bool{}
	for i, m := range all {
		setZero(&m.pod.Namespace, metav1.NamespaceDefault)
		setZero(&m.pod.UID, types.UID(hex.EncodeToString(m.sum[:16])))
		name, id := "name "+m.pod.Namespace+"/"+m.pod.Name, "uid "+string(m.pod.UID)
		if taken[name] || taken[id] {
			at := field.NewPath("items").Index(i).Child("metadata").String()
			found = append(found, Problem{Field: at, Text: "is the name or uid of a pod before it in the list; each has its own"})
		}
		taken[name], taken[id] = true, true
		pods = append(pods, m.pod)
	}
	if len(found) > 0 {
		return nil, warnings, found[:min(len(found), maxProblems)]
	}
	return pods, warnings, nil
}

// readAll reads the manifests of a document that is one Pod or a PodList. A list with one bad pod is refused as a whole,
// with the problems of all of its pods: half a list would look like pods that were taken away.
func readAll(b []byte) (all []manifest, warnings []string, err error) {
	content, warnings, err := contentOf(b)
	if err != nil {
		return nil, warnings, err
	}
	list, _ := content.(map[string]any)
	if list["kind"] == "List" {
		return nil, warnings, whole("is of kind List; write PodList")
	}
	if list["kind"] != "PodList" {
		object, err := podObject(content)
		if err != nil {
			return nil, warnings, err
		}
		m, err := readObject(object, warnings)
		return []manifest{m}, m.warnings, err
	}
	return readList(list, warnings)
}

// readList reads the manifests of a PodList.
func readList(list map[string]any, warnings []string) (all []manifest, _ []string, err error) {
	if version, _ := list["apiVersion"].(string); version != "v1" {
		return nil, warnings, whole("has apiVersion %s; a PodList is apiVersion: v1", quote(version))
	}
	items, ok := list["items"].([]any)
	if !ok && list["items"] != nil {
		return nil, warnings, whole("has items that are no list: %s", shown(list["items"]))
	}
	var found Problems
	for i, item := range items {
		at := field.NewPath("items").Index(i).String()
		m, err := readItem(item)
		for _, w := range m.warnings {
			warnings = append(warnings, at+"."+w)
		}
		problems, _ := errors.AsType[Problems](err)
		for _, p := range problems {
			found = append(found, Problem{Field: strings.TrimSuffix(at+"."+p.Field, "."), Text: p.Text})
		}
		if len(found) >= maxProblems {
			break
		}
		all = append(all, m)
	}
	warnings = warnings[:min(len(warnings), maxProblems)]
	if len(found) > 0 {
		return nil, warnings, found[:min(len(found), maxProblems)]
	}
	return all, warnings, nil
}

// readItem reads one pod of a list. There kind and apiVersion may be left out.
func readItem(item any) (manifest, error) {
	object, ok := item.(map[string]any)
	if !ok {
		return manifest{}, whole("holds %s, not a Pod", shown(item))
	}
	object, err := podObject(named(object, "Pod"))
	if err != nil {
		return manifest{}, err
	}
	return readObject(object, nil)
}

// named gives an object the kind that its place says it has.
func named(object map[string]any, kind string) map[string]any {
	for name, value := range map[string]string{"kind": kind, "apiVersion": "v1"} {
		if object[name] == nil {
			object[name] = value
		}
	}
	return object
}
