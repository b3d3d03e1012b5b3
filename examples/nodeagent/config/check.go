package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// check compares a document with the fields of a KubeletConfiguration: unknown ones are warnings, values of a wrong type
// are errors, all at once.
func check(doc object) ([]Warning, error) {
	var c checker
	c.value("", doc, reflect.TypeFor[v1beta1.KubeletConfiguration]())
	return c.warnings, errors.Join(c.errs...)
}

type checker struct {
	warnings []Warning
	errs     []error
}

func (c *checker) value(path string, v any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case v == nil: // as if it were not there
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		c.own(path, v, t)
	case t.Kind() == reflect.Struct:
		c.fields(path, v, t)
	case t.Kind() == reflect.Map:
		m, ok := v.(object)
		if !ok {
			c.bad(path, v, t)
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			c.value(join(path, key), m[key], t.Elem())
		}
	case t.Kind() == reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			c.bad(path, v, t)
		}
		for i, item := range list {
			c.value(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())
		}
	case !fits(v, t):
		c.bad(path, v, t)
	}
}

// own asks a type that reads itself.
func (c *checker) own(path string, v any, t reflect.Type) {
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, reflect.New(t).Interface())
	}
	if err != nil {
		c.bad(path, v, t)
	}
}

func (c *checker) fields(path string, v any, t reflect.Type) {
	m, ok := v.(object)
	if !ok {
		c.bad(path, v, t)
		return
	}
	known := members(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if f, ok := known[key]; ok {
			c.value(join(path, key), m[key], f)
			continue
		}
		message := "is no field of " + kind + " v1beta1; it has no effect"
		if near := nearest(key, maps.Keys(known)); near != "" {
			message += ". Is " + join(path, near) + " meant?"
		}
		c.warnings = append(c.warnings, Warning{Field: join(path, key), Message: message, Loose: true})
	}
}

func (c *checker) bad(path string, v any, t reflect.Type) {
	c.errs = append(c.errs, fmt.Errorf("%s: is %s; it must be %s", path, show(v), wanted(t)))
}

// members are the fields of a struct by their names in files.
func members(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range fieldsOf(t) {
		out[f.name] = f.Type
	}
	return out
}

// fits tells whether a plain value can be stored as t.
func fits(v any, t reflect.Type) bool {
	to := reflect.New(t).Elem()
	switch v := v.(type) {
	case string:
		return to.Kind() == reflect.String
	case bool:
		return to.Kind() == reflect.Bool
	case int64:
		return to.CanInt() && !to.OverflowInt(v) || to.CanUint() && v >= 0 && !to.OverflowUint(uint64(v)) || to.CanFloat()
	case float64:
		return to.CanFloat()
	}
	return false
}

// wanted says in words what a field takes.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return `a duration with its unit, such as "10s" or "1h30m"`
	}
	switch t.Kind() {
	case reflect.String:
		return "a text; put it in quotes"
	case reflect.Bool:
		return "true or false, without quotes"
	case reflect.Int32, reflect.Int64, reflect.Uint32:
		return fmt.Sprintf("a whole number (%s), without quotes", t.Kind())
	case reflect.Float64:
		return "a number, without quotes"
	case reflect.Slice:
		return "a list, each item " + wanted(t.Elem())
	case reflect.Map:
		return "names with values, each value " + wanted(t.Elem())
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Struct:
		return "an object with fields of its own: " + strings.Join(slices.Sorted(maps.Keys(members(t))), ", ")
	default:
		return "a " + t.String()
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
