package eviction

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Threshold is met while less than Value is available.
type Threshold struct {
	Signal     Signal
	Value      Value
	Grace      time.Duration // it must have been met for so long before a pod is ended; zero makes it a hard one
	MinReclaim Value         // once it counts it counts until so much more than Value is available; zero: nothing more
}

// Value is an amount of what a signal is about: a quantity, or a part of its capacity where Quantity is nil.
type Value struct {
	Quantity *resource.Quantity
	Percent  float32 // 10 is a tenth
}

// of is the value in units of the signal.
func (v Value) of(capacity int64) int64 {
	if v.Quantity != nil {
		return v.Quantity.Value()
	}
	return int64(float64(capacity) * float64(v.Percent/100))
}

func (v Value) String() string {
	if v.Quantity != nil {
		return v.Quantity.String()
	}
	return strconv.FormatFloat(float64(v.Percent), 'g', -1, 32) + "%"
}

// check finds what no threshold can be. Parse knows better what people write.
func (t Threshold) check() error {
	v := t.Value
	switch _, ok := t.Signal.kind(); {
	case !ok:
		return fmt.Errorf("there is no signal %q", t.Signal)
	case v.Quantity != nil && v.Quantity.Sign() <= 0, v.Quantity == nil && !(v.Percent > 0 && v.Percent < 100):
		return fmt.Errorf("the threshold of %s is %s; it must be above zero and less than all there is", t.Signal, v)
	case t.Grace < 0:
		return fmt.Errorf("the threshold of %s has a grace period of %v, which must not be negative", t.Signal, t.Grace)
	}
	return nil
}

// hard says that there is no grace period.
func (t Threshold) hard() bool { return t.Grace == 0 }

// met says that too little is available: less than the value, or with reclaim less than that and MinReclaim together.
func (t Threshold) met(l Level, reclaim bool) bool {
	want := t.Value.of(l.Capacity)
	if reclaim {
		want += t.MinReclaim.of(l.Capacity)
	}
	return want > l.Available
}

// Defaults are the hard thresholds of a kubelet on Linux whose configuration file says nothing of them.
func Defaults() map[string]string {
	return map[string]string{
		string(MemoryAvailable): "100Mi",
		string(NodeFsAvailable): "10%", string(NodeFsInodesFree): "5%",
		string(ImageFsAvailable): "15%", string(ImageFsInodesFree): "5%",
	}
}

// Parse reads thresholds as a KubeletConfiguration has them: amounts by signal, each a quantity ("100Mi") or a percentage of
// the capacity ("10%"; "0%" and "100%" are no threshold). Each soft threshold needs a grace period; a minimum reclaim goes
// with the hard and the soft one of its signal. The error names all that is wrong. Hard ones come first, in order of signals.
func Parse(hard, soft, softGrace, minReclaim map[string]string) ([]Threshold, error) {
	var p parser
	list := p.thresholds("evictionHard", hard)
	grace := map[Signal]time.Duration{}
	for signal, text := range p.each("evictionSoftGracePeriod", softGrace) {
		d, err := time.ParseDuration(text)
		if err == nil && d < 0 {
			err = errors.New("must not be negative")
		}
		p.note("evictionSoftGracePeriod", signal, text, err)
		grace[signal] = d
	}
	for _, t := range p.thresholds("evictionSoft", soft) {
		var known bool
		if t.Grace, known = grace[t.Signal]; !known {
			p.errs = append(p.errs, fmt.Errorf("eviction: evictionSoft has %s, but evictionSoftGracePeriod has no grace period for it", t.Signal))
		}
		list = append(list, t)
	}
	for signal, text := range p.each("evictionMinimumReclaim", minReclaim) {
		v, err := parseValue(text)
		switch {
		case err != nil:
		case v.Quantity == nil && v.Percent <= 0:
			err = errors.New("a percentage must be above zero")
		case v.Quantity != nil && v.Quantity.Sign() < 0:
			err = errors.New("must not be negative")
		}
		p.note("evictionMinimumReclaim", signal, text, err)
		for i := range list {
			if list[i].Signal == signal {
				list[i].MinReclaim = v
			}
		}
	}
	return list, errors.Join(p.errs...)
}

// Allocatable adds to each hard threshold for memory of the node one for memory of all pods: what a kubelet does that
// enforces a limit for them.
func Allocatable(list []Threshold) []Threshold {
	out := slices.Clone(list)
	for _, t := range list {
		if t.Signal == MemoryAvailable && t.hard() {
			t.Signal = AllocatableMemoryAvailable
			out = append(out, t)
		}
	}
	return out
}

// parser gathers what is wrong.
type parser struct{ errs []error }

// each goes through one of the maps in order of signals, unknown ones left out.
func (p *parser) each(field string, m map[string]string) func(func(Signal, string) bool) {
	return func(yield func(Signal, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if _, ok := Signal(name).kind(); !ok {
				p.errs = append(p.errs, fmt.Errorf("eviction: %s: there is no signal %q", field, name))
				continue
			}
			if !yield(Signal(name), m[name]) {
				return
			}
		}
	}
}

func (p *parser) note(field string, signal Signal, text string, err error) {
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("eviction: %s: %s: %q: %w", field, signal, text, err))
	}
}

func (p *parser) thresholds(field string, m map[string]string) []Threshold {
	var out []Threshold
	for signal, text := range p.each(field, m) {
		if text == "0%" || text == "100%" {
			continue
		}
		v, err := parseValue(text)
		switch {
		case err != nil:
		case v.Quantity == nil && (v.Percent < 0 || v.Percent > 100):
			err = errors.New("a percentage must be from 0 to 100")
		case v.Quantity != nil && v.Quantity.Sign() <= 0:
			err = errors.New("must be above zero; 0% switches a threshold off")
		}
		p.note(field, signal, text, err)
		out = append(out, Threshold{Signal: signal, Value: v})
	}
	return out
}

func parseValue(text string) (Value, error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(number, 32)
		if err != nil || f != f {
			return Value{}, errors.New("is no percentage")
		}
		return Value{Percent: float32(f)}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Value{}, fmt.Errorf("is neither a quantity (100Mi) nor a percentage (10%%): %w", err)
	}
	return Value{Quantity: &q}, nil
}

// withContainerFs replaces the thresholds for where containers write by those of the file system that this is: it has none
// of its own.
func withContainerFs(list []Threshold, l Layout) []Threshold {
	from := map[Signal]Signal{NodeFsAvailable: ContainerFsAvailable, NodeFsInodesFree: ContainerFsInodesFree}
	if l == ImagesApart {
		from = map[Signal]Signal{ImageFsAvailable: ContainerFsAvailable, ImageFsInodesFree: ContainerFsInodesFree}
	}
	var out []Threshold
	for _, t := range list {
		if k, _ := t.Signal.kind(); k.place != containerFs {
			out = append(out, t)
		}
	}
	for _, t := range slices.Clone(out) {
		if s, ok := from[t.Signal]; ok {
			t.Signal = s
			out = append(out, t)
		}
	}
	return out
}
