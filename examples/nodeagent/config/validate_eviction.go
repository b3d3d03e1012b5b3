package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"
)

func signals() []string {
	return []string{
		"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree", "pid.available", "allocatableMemory.available",
	}
}

// eviction checks thresholds by the rules of the kubelet: 0% and 100% switch one off, zero does not.
func (p *problems) eviction(c *v1beta1.KubeletConfiguration) {
	p.signals("evictionHard", c.EvictionHard, "be a quantity above zero such as 100Mi, or between 0% and 100%", validThreshold)
	p.signals("evictionSoft", c.EvictionSoft, "be a quantity above zero such as 100Mi, or between 0% and 100%", validThreshold)
	p.signals("evictionSoftGracePeriod", c.EvictionSoftGracePeriod, "be a duration of 0 or more such as 1m30s", validGrace)
	p.signals("evictionMinimumReclaim", c.EvictionMinimumReclaim, "be a quantity of 0 or more such as 500Mi, or above 0%", validReclaim)
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		if _, ok := c.EvictionSoftGracePeriod[signal]; !ok && !slices.Contains([]string{"0%", "100%"}, c.EvictionSoft[signal]) {
			p.add("evictionSoft."+signal, c.EvictionSoft[signal], "come with evictionSoftGracePeriod.%s, a duration such as 1m30s", signal)
		}
	}
	p.atLeast("evictionPressureTransitionPeriod", c.EvictionPressureTransitionPeriod.Duration, 0)
}

func (p *problems) signals(path string, values map[string]string, must string, valid func(string) bool) {
	for _, signal := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(signals(), signal) {
			p.add(path, signal, "name only %s", strings.Join(signals(), ", "))
			continue
		}
		if !valid(values[signal]) {
			p.add(path+"."+signal, values[signal], "%s", must)
		}
	}
}

func validThreshold(v string) bool {
	if number, ok := strings.CutSuffix(v, "%"); ok {
		percent, err := strconv.ParseFloat(number, 32)
		return err == nil && percent >= 0 && percent <= 100
	}
	q, err := resource.ParseQuantity(v)
	return err == nil && q.Sign() > 0
}

func validReclaim(v string) bool {
	if number, ok := strings.CutSuffix(v, "%"); ok {
		percent, err := strconv.ParseFloat(number, 32)
		return err == nil && percent > 0
	}
	q, err := resource.ParseQuantity(v)
	return err == nil && q.Sign() >= 0
}

func validGrace(v string) bool {
	d, err := time.ParseDuration(v)
	return err == nil && d >= 0
}
