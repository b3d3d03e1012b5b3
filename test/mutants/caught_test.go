//go:build mutants

package mutants

import (
	"strings"
	"testing"
)

// The tests of every mutant, which take many minutes: make mutants runs them.
func TestEveryMutantIsCaught(t *testing.T) {
	for _, m := range read(t) {
		t.Run(m.Name, func(t *testing.T) {
			v, err := m.Try(t.Context(), root(t))
			switch {
			case err != nil:
				t.Fatal(err)
			case !v.Caught:
				t.Errorf("survives: %s", m.Fault)
			case len(v.By) == 0:
				t.Logf("the test run ends: %s", strings.TrimSpace(v.Output))
			default:
				t.Logf("caught by %s", strings.Join(v.By[:min(3, len(v.By))], ", "))
			}
		})
	}
}
