package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// limit is how large a file may be: no honest one comes near it.
const limit = 4 << 20

const kind = "KubeletConfiguration"

// object is a JSON object whose whole numbers are int64.
type object = map[string]any

// readDocument reads one file. A file of the wrong kind or with wrong values is an error, what is only odd is a warning.
func readDocument(path string) (object, []Warning, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	doc, warnings, err := parseDocument(data)
	for i := range warnings {
		warnings[i].File = path
	}
	if err != nil {
		return nil, warnings, inFile(path, err)
	}
	return doc, warnings, nil
}

// readFile reads a regular file: a pipe or a device would keep the agent waiting for ever.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file; put the configuration into one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, fmt.Errorf("%s is larger than %d MiB; it is hardly a configuration", path, limit>>20)
	}
	return data, nil
}

// parseDocument understands JSON and YAML.
func parseDocument(data []byte) (object, []Warning, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, errors.New("is empty; write at least " + header())
	}
	content, warnings, err := toJSON(data)
	if err != nil {
		return nil, nil, err
	}
	var value any
	twice, err := kjson.UnmarshalStrict(content, &value, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, nil, err
	}
	for _, problem := range twice {
		var field string
		if at, ok := errors.AsType[kjson.FieldError](problem); ok {
			field = at.FieldPath()
		}
		warnings = append(warnings, Warning{Field: field, Message: "is given twice; the last one counts", Loose: true})
	}
	doc, ok := value.(object)
	if !ok {
		return nil, warnings, errors.New("holds no fields; write at least " + header())
	}
	if err := checkKind(doc); err != nil {
		return nil, warnings, err
	}
	odd, err := check(doc)
	return doc, append(warnings, odd...), err
}

func header() string {
	return fmt.Sprintf("%q and %q", "apiVersion: "+v1beta1.SchemeGroupVersion.String(), "kind: "+kind)
}

// toJSON turns YAML into JSON and leaves JSON as it is.
func toJSON(data []byte) ([]byte, []Warning, error) {
	if json.Valid(data) {
		return data, nil, nil
	}
	var warnings []Warning
	content, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, nil, fmt.Errorf("is neither JSON nor YAML: %w", err)
	}
	if _, err := yaml.YAMLToJSONStrict(data); err != nil {
		warnings = repeated(err)
	}
	if severalDocuments(data) {
		warnings = append(warnings, Warning{Message: "holds more than one document; only the first counts"})
	}
	return content, warnings, nil
}

// severalDocuments tells whether something follows the first document of a YAML file.
func severalDocuments(data []byte) bool {
	content := false
	for line := range bytes.Lines(data) {
		switch rest, marker := bytes.CutPrefix(line, []byte("---")); {
		case marker && len(bytes.TrimSpace(rest)) == 0:
			if content {
				return true
			}
		case len(bytes.TrimSpace(line)) > 0 && line[0] != '#':
			content = true
		}
	}
	return false
}

// repeated turns what a strict reader of YAML says of keys that come twice into warnings.
func repeated(err error) (out []Warning) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		at, rest, found := strings.Cut(strings.TrimSpace(line), ": key ")
		key, ok := strings.CutSuffix(rest, " already set in map")
		if found && ok {
			out = append(out, Warning{Field: strings.Trim(key, `"`), Message: "is given twice, again in " + at + "; the last one counts", Loose: true})
		}
	}
	return out
}

func checkKind(doc object) error {
	want := v1beta1.SchemeGroupVersion.String()
	if doc["kind"] != kind {
		return fmt.Errorf("kind: is %s; it must be %s", show(doc["kind"]), kind)
	}
	if doc["apiVersion"] != want {
		return fmt.Errorf("apiVersion: is %s; it must be %s", show(doc["apiVersion"]), want)
	}
	return nil
}

// show writes a value of a file shortly.
func show(v any) string {
	if v == nil {
		return "missing"
	}
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(out) > 60 {
		out = append(bytes.ToValidUTF8(out[:57], nil), "..."...)
	}
	return string(out)
}
