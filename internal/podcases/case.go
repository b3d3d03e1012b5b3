package podcases

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed specs/*.yaml
var specs embed.FS

// Case is one pod and what it needs. The first comment of its file says what it shows; a line that starts with "# needs"
// names what a machine must have for it to run.
type Case struct {
	Name    string // of its file
	Needs   string // empty: nothing but a runtime in memory
	Pod     *v1.Pod
	Maps    []*v1.ConfigMap
	Secrets []*v1.Secret
	Service []*v1.Service
	Classes []*nodev1.RuntimeClass
}

// All are the cases by the names of their files.
func All() ([]*Case, error) {
	files, err := fs.Glob(specs, "specs/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*Case
	for _, f := range files {
		data, err := specs.ReadFile(f)
		if err != nil {
			return nil, err
		}
		c, err := Read(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		c.Name = strings.TrimSuffix(path.Base(f), ".yaml")
		c.Pod.UID = types.UID("uid-" + c.Name)
		all = append(all, c)
	}
	return all, nil
}

// Read reads a case. Its pod has the defaults, no UID, and nothing has a name but what the text gives it.
func Read(data []byte) (*Case, error) {
	c := new(Case)
	for line := range strings.Lines(string(data)) {
		if needs, ok := strings.CutPrefix(line, "# needs "); ok {
			c.Needs = strings.TrimSpace(needs)
		}
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF) && c.Pod == nil:
			return nil, errors.New("there is no pod")
		case errors.Is(err, io.EOF):
			setDefaults(c.Pod)
			return c, nil
		case err != nil:
			return nil, err
		}
		if err := c.take(doc); err != nil {
			return nil, err
		}
	}
}

// take adds one object. Its namespace is default if it names none.
func (c *Case) take(doc []byte) error {
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return err
	}
	var err error
	switch kind.Kind {
	case "Pod":
		c.Pod, err = decode(doc, func(o *v1.Pod) *string { return &o.Namespace })
	case "ConfigMap":
		c.Maps, err = more(c.Maps, doc, func(o *v1.ConfigMap) *string { return &o.Namespace })
	case "Secret":
		c.Secrets, err = more(c.Secrets, doc, func(o *v1.Secret) *string { return &o.Namespace })
	case "Service":
		c.Service, err = more(c.Service, doc, func(o *v1.Service) *string { return &o.Namespace })
	case "RuntimeClass":
		c.Classes, err = more(c.Classes, doc, func(*nodev1.RuntimeClass) *string { return new(string) })
	default:
		err = fmt.Errorf("kind %q is not one of those a case has", kind.Kind)
	}
	return err
}

// Pod reads one pod and sets its defaults.
func Pod(doc []byte) (*v1.Pod, error) {
	c, err := Read(doc)
	if err != nil {
		return nil, err
	}
	return c.Pod, nil
}

func decode[T any](doc []byte, namespace func(*T) *string) (*T, error) {
	o := new(T)
	if err := yaml.UnmarshalStrict(doc, o); err != nil {
		return nil, err
	}
	if n := namespace(o); *n == "" {
		*n = "default"
	}
	return o, nil
}

func more[T any](list []*T, doc []byte, namespace func(*T) *string) ([]*T, error) {
	o, err := decode(doc, namespace)
	return append(list, o), err
}
