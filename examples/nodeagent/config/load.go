package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
)

// Options says where a configuration lies. Its zero value gives the defaults.
type Options struct {
	File   string // a KubeletConfiguration in YAML or JSON; empty: as if it had no fields
	Dir    string // a directory of drop-ins, laid over the file; empty: none
	Strict bool   // unknown fields and fields given twice are errors
}

// Warning is something odd in a file, or a flag without effect.
type Warning struct {
	File    string // empty: the command line
	Field   string // path of the field, or the flag; empty: the file as a whole
	Message string
	Loose   bool // fatal with Strict: the file says something that is not heard
}

// String is the warning as one line.
func (w Warning) String() string {
	var parts []string
	for _, s := range []string{w.File, w.Field} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ") + map[bool]string{true: ": ", false: " "}[w.Field != ""] + w.Message
}

// Load reads the file and its drop-ins and fills in defaults. Warnings are in the order of the files, and are given beside an error
// too. Values are of the right types, whether they make sense is asked with Validate.
func Load(o Options) (*v1beta1.KubeletConfiguration, []Warning, error) {
	c, warnings, err := loadFile(o.File)
	if err != nil {
		return nil, warnings, err
	}
	if o.Dir != "" {
		var odd []Warning
		c, odd, err = mergeDir(c, o.Dir)
		warnings = append(warnings, odd...)
		if err != nil {
			return nil, warnings, err
		}
	}
	if o.Strict {
		err = strict(warnings)
	}
	if err != nil {
		return nil, warnings, err
	}
	sockets(c)
	c.APIVersion, c.Kind = v1beta1.SchemeGroupVersion.String(), kind
	return c, warnings, nil
}

func loadFile(path string) (*v1beta1.KubeletConfiguration, []Warning, error) {
	doc := object{}
	var warnings []Warning
	if path != "" {
		var err error
		if path, err = filepath.Abs(path); err != nil {
			return nil, nil, fmt.Errorf("--config %s: %w", path, err)
		}
		if doc, warnings, err = readDocument(path); err != nil {
			return nil, warnings, fmt.Errorf("read the configuration: %w", err)
		}
	}
	c, err := typed(doc)
	if err != nil {
		return nil, warnings, inFile(path, err)
	}
	Default(c)
	defaultEviction(c)
	if path != "" {
		absolute(c, filepath.Dir(path))
	}
	return c, warnings, nil
}

// paths are the fields that name files of the host.
func paths() []string {
	return []string{
		"staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf", "volumePluginDir", "podLogsDir",
	}
}

// absolute makes paths count from the folder of the file that names them.
func absolute(c *v1beta1.KubeletConfiguration, dir string) {
	for _, path := range paths() {
		v := reflect.Indirect(field(c, path))
		if p := v.String(); p != "" && !filepath.IsAbs(p) {
			v.SetString(filepath.Join(dir, p))
		}
	}
}

// relative warns of paths in a drop-in that are not absolute: the kubelet makes them count from the folder it was started in, so
// they stay as they are.
func relative(file string, doc object) (out []Warning) {
	for _, path := range paths() {
		var v any = doc
		for name := range strings.SplitSeq(path, ".") {
			below, _ := v.(object)
			v = below[name]
		}
		if p, ok := v.(string); ok && p != "" && !filepath.IsAbs(p) {
			out = append(out, Warning{File: file, Field: path, Message: "is relative, and in a drop-in counts from the folder the agent is started in; write it from /"})
		}
	}
	return out
}

// sockets gives endpoints that are bare paths, as very old files have them, their scheme.
func sockets(c *v1beta1.KubeletConfiguration) {
	for _, endpoint := range []*string{&c.ContainerRuntimeEndpoint, &c.ImageServiceEndpoint} {
		if filepath.IsAbs(*endpoint) {
			*endpoint = "unix://" + *endpoint
		}
	}
}

// mergeDir lays the drop-ins over a configuration that has its defaults already: what one of them takes away is as
// if no file had said it.
func mergeDir(c *v1beta1.KubeletConfiguration, dir string) (*v1beta1.KubeletConfiguration, []Warning, error) {
	files, warnings, err := dropIns(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("look for drop-ins in --config-dir: %w", err)
	}
	base, err := untyped(c)
	if err != nil {
		return nil, warnings, err
	}
	for _, path := range files {
		doc, odd, err := readDocument(path)
		warnings = append(warnings, odd...)
		if err != nil {
			return nil, warnings, fmt.Errorf("read a drop-in: %w", err)
		}
		warnings = append(warnings, relative(path, doc)...)
		base = merge(base, doc)
	}
	if c, err = typed(base); err != nil {
		return nil, warnings, inFile(dir, err)
	}
	Default(c)
	return c, warnings, nil
}

// dropIns lists the files of a directory and its folders by name.
func dropIns(dir string) (files []string, warnings []Warning, err error) {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
		case filepath.Ext(path) == ".conf":
			files = append(files, path)
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			warnings = append(warnings, Warning{File: path, Message: "is not read: a drop-in's name ends in .conf"})
		}
		return nil
	})
	return files, warnings, err
}

// merge lays one document over another (RFC 7396): objects key by key, everything else as a whole, null takes away.
func merge(base, over object) object {
	for key, v := range over {
		switch v := v.(type) {
		case nil:
			delete(base, key)
		case object:
			below, ok := base[key].(object)
			if !ok {
				below = object{}
			}
			base[key] = merge(below, v)
		default:
			base[key] = v
		}
	}
	return base
}

func typed(doc object) (*v1beta1.KubeletConfiguration, error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	c := &v1beta1.KubeletConfiguration{}
	return c, kjson.UnmarshalCaseSensitivePreserveInts(data, c)
}

func untyped(c *v1beta1.KubeletConfiguration) (object, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	doc := object{}
	return doc, kjson.UnmarshalCaseSensitivePreserveInts(data, &doc)
}

// strict makes errors of the warnings that mean a lost setting.
func strict(warnings []Warning) error {
	var errs []error
	for _, w := range warnings {
		if w.Loose {
			errs = append(errs, errors.New(w.String()))
		}
	}
	return errors.Join(errs...)
}

// inFile says for each of joined errors which file it is about.
func inFile(path string, err error) error {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", path, err)
	}
	errs := slices.Clone(many.Unwrap())
	for i := range errs {
		errs[i] = fmt.Errorf("%s: %w", path, errs[i])
	}
	return errors.Join(errs...)
}
