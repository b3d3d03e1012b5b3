package staticpod

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
	for name, value := range map[string]string{"kind": "Pod", "apiVersion": "v1"} {
		if written, ok := object[name]; !ok || written == nil {
			object[name] = value
		}
	}
	object, err := podObject(object)
	if err != nil {
		return manifest{}, err
	}
	return readObject(object, nil)
}
