package staticpod

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// shape compares a generic value with the Go type it is to become. It finds all wrong types and unknown
// fields with their whole path, where decoding stops at the first.
type shape struct {
	*report
	fields map[reflect.Type]map[string]reflect.Type // of the struct types met so far, by JSON name
}

func (s *shape) check(t reflect.Type, v any, at *field.Path) {
	if v == nil {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s.special(t, v, at) {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		s.object(t, v, at)
	case reflect.Map:
		m, ok := v.(map[string]any)
		if !ok {
			s.wrong(at, "a mapping", v)
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			s.check(t.Elem(), m[k], at.Key(short(k)))
		}
	case reflect.Slice:
		l, ok := v.([]any)
		if !ok {
			s.wrong(at, "a list", v)
		}
		for i := range l {
			s.check(t.Elem(), l[i], at.Index(i))
		}
	default:
		s.scalar(t, v, at)
	}
}

func (s *shape) object(t reflect.Type, v any, at *field.Path) {
	m, ok := v.(map[string]any)
	if !ok {
		s.wrong(at, "a mapping of fields", v)
		return
	}
	known := s.fieldsOf(t)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if ft, ok := known[k]; ok {
			s.check(ft, m[k], at.Child(k))
			continue
		}
		hint := ""
		for name := range known {
			if strings.EqualFold(name, k) {
				hint = "; did you mean " + name + "?"
			}
		}
		s.warn(at, "there is no field %s; it is ignored%s", quote(k), hint)
	}
}

// fieldsOf are the fields of a struct type by JSON name, those of embedded structs among them.
func (s *shape) fieldsOf(t reflect.Type) map[string]reflect.Type {
	if f, ok := s.fields[t]; ok {
		return f
	}
	f := make(map[string]reflect.Type, t.NumField())
	for sf := range t.Fields() {
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case name == "-" || !sf.IsExported():
		case sf.Anonymous && name == "":
			maps.Copy(f, s.fieldsOf(sf.Type))
		default:
			f[name] = sf.Type
		}
	}
	s.fields[t] = f
	return f
}

// special handles types that read their JSON themselves.
func (s *shape) special(t reflect.Type, v any, at *field.Path) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		if err := quantity(v); err != nil {
			s.add(at, "%s is not an amount (%v); write 500m, 1.5 or 64Mi", shown(v), err)
		}
		return true
	case reflect.TypeFor[intstr.IntOrString]():
		if _, text := v.(string); !text && !wholeNumber(v, 32) {
			s.wrong(at, "a number or a name", v)
		}
		return true
	}
	if !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return false
	}
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, reflect.New(t).Interface())
	}
	if err != nil {
		s.wrong(at, "a "+strings.ToLower(t.Name()), v)
	}
	return true
}

// quantity says what is wrong with an amount. It bounds length and exponent before the library computes with
// them: 1e-99999999 takes it a minute.
func quantity(v any) error {
	var text string
	switch v := v.(type) {
	case string:
		text = strings.TrimSpace(v)
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return errors.New("neither text nor number")
	}
	if len(text) > 32 {
		return errors.New("too long")
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 && len(strings.TrimLeft(text[i+1:], "+-0")) > 2 {
		return errors.New("exponent out of range")
	}
	if _, err := resource.ParseQuantity(text); err != nil {
		return errors.New("bad number or unit")
	}
	return nil
}

func (s *shape) scalar(t reflect.Type, v any, at *field.Path) {
	switch t.Kind() {
	case reflect.String:
		if _, ok := v.(string); !ok {
			s.wrong(at, "text (put it in quotes)", v)
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			s.wrong(at, "true or false without quotes", v)
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if !wholeNumber(v, t.Bits()) {
			s.wrong(at, fmt.Sprintf("a whole number of at most %d bits", t.Bits()), v)
		}
	default: // floats and the like stand in no pod
		b, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(b, reflect.New(t).Interface())
		}
		if err != nil {
			s.wrong(at, "a "+t.Kind().String(), v)
		}
	}
}

func wholeNumber(v any, bits int) bool {
	n, ok := v.(int64)
	return ok && (bits == 64 || n >= math.MinInt32 && n <= math.MaxInt32)
}

func (s *shape) wrong(at *field.Path, want string, got any) {
	s.add(at, "must be %s, but is %s", want, shown(got))
}

// shown describes a generic value in a few words.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return "the text " + quote(v)
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	default:
		return fmt.Sprintf("%v", v)
	}
}
