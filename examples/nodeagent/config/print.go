package config

import (
	"fmt"
	"io"

	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Print writes a configuration as a file that Load reads to the same configuration.
func Print(w io.Writer, c *v1beta1.KubeletConfiguration) error {
	doc, err := untyped(c)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	// Here nothing is an answer, and leaving it out another.
	if len(c.EvictionHard) == 0 {
		doc["evictionHard"] = object{}
	}
	if len(c.EnforceNodeAllocatable) == 0 {
		doc["enforceNodeAllocatable"] = []any{}
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	_, err = w.Write(out)
	return err
}
