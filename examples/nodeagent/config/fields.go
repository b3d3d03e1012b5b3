package config

import (
	"encoding/json"
	"iter"
	"reflect"
	"strings"
)

// member is a field of a struct with its name in files.
type member struct {
	reflect.StructField
	name string
}

// fieldsOf goes over the fields of a struct as files know them: those of embedded structs are its own.
func fieldsOf(t reflect.Type) iter.Seq[member] {
	return func(yield func(member) bool) {
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" || name == "-" || !f.IsExported() {
				continue
			}
			if name == "" {
				name = f.Name
			}
			if !yield(member{f, name}) {
				return
			}
		}
	}
}

// leaves goes over all settings below v, a struct: path and value. Maps, lists and types that read themselves are one
// setting each, whatever they hold.
func leaves(path string, v reflect.Value, yield func(path string, v reflect.Value)) {
	t := v.Type()
	for t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && !readsItself(t.Elem()) {
		t = t.Elem()
		if v.IsNil() {
			v = reflect.Zero(t)
		} else {
			v = v.Elem()
		}
	}
	if t.Kind() != reflect.Struct || readsItself(t) {
		yield(path, v)
		return
	}
	for f := range fieldsOf(t) {
		leaves(join(path, f.name), v.FieldByIndex(f.Index), yield)
	}
}

func readsItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}
