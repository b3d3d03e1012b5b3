//go:build tools

// Package tools keeps in go.mod what upstream's specs import; the programs stand in the tool lines.
package tools

import (
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e_node"
)
