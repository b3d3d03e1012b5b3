package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPriority(t *testing.T) {
	for class, want := range map[string]int32{"": 0, "mine": 0, "system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000} {
		p := &v1.Pod{Spec: v1.PodSpec{PriorityClassName: class}}
		if got := Priority(p); got != 0 {
			t.Errorf("%q that somebody only said: %d", class, got)
		}
		p.Annotations = map[string]string{SourceAnnotation: "file"}
		if got := Priority(p); got != want {
			t.Errorf("%q of a file: %d", class, got)
		}
		if p.Spec.Priority = new(int32(7)); Priority(p) != 7 {
			t.Errorf("%q hides what is said", class)
		}
	}
}

func TestCritical(t *testing.T) {
	of := func(class string, priority int32, annotation, value string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{PriorityClassName: class}}
		if priority != 0 {
			p.Spec.Priority = &priority
		}
		if annotation != "" {
			p.Annotations = map[string]string{annotation: value}
		}
		return p
	}
	const class = "system-node-critical"
	for rule, row := range map[string]struct {
		pod            *v1.Pod
		critical, node bool
	}{
		"any pod":                           {of("", 0, "", ""), false, false},
		"one of the API":                    {of("", 0, SourceAnnotation, "api"), false, false},
		"one of a file":                     {of("", 0, SourceAnnotation, "file"), true, false},
		"one of a file and the class":       {of(class, 0, SourceAnnotation, "file"), true, true},
		"the mirror of one":                 {of("", 0, MirrorAnnotation, ""), true, false},
		"a priority that is high":           {of("", 2_000_000_000, "", ""), true, false},
		"one that is not":                   {of("", 1_999_999_999, "", ""), false, false},
		"the class, and its priority":       {of(class, 2_000_001_000, "", ""), true, true},
		"the class that somebody only said": {of(class, 0, "", ""), false, false},
	} {
		if Critical(row.pod) != row.critical || NodeCritical(row.pod) != row.node {
			t.Errorf("%s: critical %v, for the node %v", rule, Critical(row.pod), NodeCritical(row.pod))
		}
	}
}

func TestHugepageSize(t *testing.T) {
	for name, want := range map[v1.ResourceName]string{
		"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-64Ki": "64KB", "hugepages-16Gi": "16GB", "hugepages-2048Ki": "2MB",
		"hugepages-1536Ki": "", "hugepages-": "", "hugepages-x": "", "hugepages-0": "", "hugepages--2Mi": "", "memory": "",
	} {
		if got, ok := HugepageSize(name); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}
