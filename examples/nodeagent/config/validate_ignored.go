package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// ignored refuses what the kubelet would refuse, although nothing here reads it: a file that is good here is good there.
func (p *problems) ignored(c *v1beta1.KubeletConfiguration) {
	p.reservedMemory(c.ReservedMemory)
	if t := c.Tracing; t != nil {
		number(p, "tracing.samplingRatePerMillion", t.SamplingRatePerMillion, 0, 1_000_000)
	}
	p.atLeast("logging.flushFrequency", c.Logging.FlushFrequency.Duration.Duration, 0)
	for i, m := range c.Logging.VModule {
		path := fmt.Sprintf("logging.vmodule[%d]", i)
		if m.FilePattern == "" || strings.ContainsAny(m.FilePattern, "=,") {
			p.add(path+".filePattern", m.FilePattern, "be the name of a file, without = and comma")
		}
		if c.Logging.Format != "text" {
			p.add(path, m.FilePattern, "be left out unless logging.format is text")
		}
	}
}

func (p *problems) reservedMemory(list []v1beta1.MemoryReservation) {
	type kind struct {
		node int32
		name v1.ResourceName
	}
	seen := map[kind]bool{}
	for i, r := range list {
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			path, q := fmt.Sprintf("reservedMemory[%d].limits[%s]", i, name), r.Limits[name]
			switch of := (kind{r.NumaNode, name}); {
			case name != v1.ResourceMemory && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
				p.add(path, q.String(), "be of memory or hugepages-<size>")
			case q.IsZero():
				p.add(path, q.String(), "be more than zero, or left out")
			case seen[of]:
				p.add(path, q.String(), "be given once for NUMA node %d", r.NumaNode)
			default:
				seen[of] = true
			}
		}
	}
}
