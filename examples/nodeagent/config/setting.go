package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// flagField is a flag that goes over a field.
type flagField struct{ name, path string }

func (f flagField) usage() string {
	what := honoured()[f.path]
	if what == "" {
		what = "has no effect: " + ignored()[f.path]
	}
	return what + " (" + f.path + ")"
}

// over is the flag.Value of a flagField: it keeps what was given until there is a configuration to put it over.
type over struct {
	flagField
	o *Overrides
}

func (v *over) String() string { return "" }

// Set refuses at once what will not be understood later.
func (v *over) Set(value string) error {
	if err := v.set(&v1beta1.KubeletConfiguration{}, []string{value}); err != nil {
		return err
	}
	v.o.given[v.name] = append(v.o.given[v.name], value)
	return nil
}

// IsBoolFlag lets the flag stand without a value.
func (v *over) IsBoolFlag() bool {
	t := field(&v1beta1.KubeletConfiguration{}, v.path).Type()
	return t == reflect.TypeFor[bool]() || t == reflect.TypeFor[*bool]()
}

// set puts the values of a flag into its field. A list or map is what all values together say, and replaces what was there;
// feature gates are laid over those of the file. Otherwise the last value counts.
func (f flagField) set(c *v1beta1.KubeletConfiguration, values []string) error {
	to := field(c, f.path)
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	switch to := to.Addr().Interface().(type) {
	case *[]string:
		*to = items(values)
		return nil
	case *[]v1.Taint:
		return taints(to, values)
	case *map[string][]string:
		return headers(to, values)
	case *map[string]bool:
		return gates(to, values)
	case *map[string]string:
		separator := "="
		if f.path == "evictionHard" || f.path == "evictionSoft" {
			separator = "<"
		}
		m, err := pairs(values, separator)
		*to = m
		return err
	}
	return scalar(to, values[len(values)-1])
}

// scalar reads one value.
func scalar(to reflect.Value, value string) error {
	switch {
	case to.Type() == reflect.TypeFor[metav1.Duration]():
		d, err := time.ParseDuration(value)
		if err != nil {
			return errors.New("it must be a duration such as 10s or 1h30m")
		}
		to.Set(reflect.ValueOf(metav1.Duration{Duration: d}))
	case to.Kind() == reflect.String:
		to.SetString(value)
	case to.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("it must be true or false")
		}
		to.SetBool(b)
	case to.CanInt():
		n, err := strconv.ParseInt(value, 0, to.Type().Bits())
		if err != nil {
			return errors.New("it must be a whole number")
		}
		to.SetInt(n)
	case to.CanUint():
		n, err := strconv.ParseUint(value, 0, to.Type().Bits())
		if err != nil {
			return errors.New("it must be a whole number of 0 or more")
		}
		to.SetUint(n)
	default:
		return fmt.Errorf("a %s cannot be given as a flag", to.Type())
	}
	return nil
}

// items splits lists at commas. No items are an empty list, which is not the same as none given.
func items(values []string) []string {
	out := []string{}
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		}
	}
	return out
}

func pairs(values []string, separator string) (map[string]string, error) {
	out := map[string]string{}
	for _, item := range items(values) {
		key, value, ok := strings.Cut(item, separator)
		if key = strings.TrimSpace(key); !ok || key == "" {
			return nil, fmt.Errorf("%q must be a name and a value with %s between", item, separator)
		}
		out[key] = strings.TrimSpace(value)
	}
	return out, nil
}

func gates(to *map[string]bool, values []string) error {
	given, err := pairs(values, "=")
	if err != nil {
		return err
	}
	if *to == nil {
		*to = map[string]bool{}
	}
	for name, value := range given {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%s=%s: it must be true or false", name, value)
		}
		(*to)[name] = on
	}
	return nil
}

func headers(to *map[string][]string, values []string) error {
	out := map[string][]string{}
	for _, item := range items(values) {
		name, value, ok := strings.Cut(item, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Errorf("%q must be a name and a value with : between", item)
		}
		out[name] = append(out[name], strings.TrimSpace(value))
	}
	*to = out
	return nil
}

func taints(to *[]v1.Taint, values []string) error {
	var out []v1.Taint
	for _, item := range items(values[len(values)-1:]) {
		name, effect, ok := strings.Cut(item, ":")
		key, value, _ := strings.Cut(name, "=")
		taint := v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)}
		var p problems
		p.taint("taint", taint)
		if !ok || len(p.errs) > 0 {
			return fmt.Errorf("%q must be key=value:effect, with NoSchedule, PreferNoSchedule or NoExecute as the effect", item)
		}
		out = append(out, taint)
	}
	*to = out
	return nil
}

// field finds a field by its path. A path that is not there is a mistake in this package's tables.
func field(c *v1beta1.KubeletConfiguration, path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
next:
	for name := range strings.SplitSeq(path, ".") {
		for f := range fieldsOf(v.Type()) {
			if f.name == name {
				v = v.FieldByIndex(f.Index)
				continue next
			}
		}
		panic("config: no field " + path)
	}
	return v
}

// deaf is the flag.Value of a flag without effect.
type deaf struct {
	name string
	o    *Overrides
}

func (d *deaf) String() string { return "" }

// Set remembers that the flag was given.
func (d *deaf) Set(string) error {
	d.o.ignored = append(d.o.ignored, d.name)
	return nil
}

// IsBoolFlag lets the flag stand without a value.
func (d *deaf) IsBoolFlag() bool {
	switch d.name {
	case "exit-on-lock-contention", "experimental-allocatable-ignore-eviction", "log-text-split-stream", "log-json-split-stream":
		return true
	}
	return false
}
