package probe_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/probe"
)

// Results by letter: S success, W warning, F failure, U unknown. The outcome of each is + or - when it decides for
// healthy or not, and . when it leaves things as they are.
func TestRule(t *testing.T) {
	for _, c := range []struct {
		name           string
		rule           probe.Rule
		results, wants string
	}{
		{"zero means one success and three failures", probe.Rule{}, "SFFFFS", "+..--+"},
		{"a threshold stays reached while the result goes on", probe.Rule{2, 2}, "SSSFFF", ".++.--"},
		{"another result starts the row anew", probe.Rule{2, 3}, "FFSFFSFFF", "........-"},
		{"a warning is a success", probe.Rule{2, 1}, "SWWF", ".++-"},
		{"unknown without an error is a failure", probe.Rule{1, 2}, "UFU", ".--"},
		{"one is at once", probe.Rule{1, 1}, "SFS", "+-+"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := play(c.rule, c.results); got != c.wants {
				t.Errorf("%s decides %s, want %s", c.results, got, c.wants)
			}
		})
	}
}

func play(r probe.Rule, results string) string {
	var h probe.History
	var out strings.Builder
	for _, x := range results {
		res := map[rune]probe.Result{'S': probe.Success, 'W': probe.Warning, 'F': probe.Failure, 'U': probe.Unknown}[x]
		next, verdict, decided := r.Add(h, res)
		h = next
		out.WriteByte(sign(verdict == probe.Success, decided))
	}
	return out.String()
}

func sign(good, decided bool) byte {
	switch {
	case !decided:
		return '.'
	case good:
		return '+'
	}
	return '-'
}

// A second version that looks at the whole row each time.
func TestRuleAgreesWithCountingBackwards(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		r := probe.Rule{SuccessThreshold: 1 + rng.IntN(4), FailureThreshold: 1 + rng.IntN(4)}
		results := make([]byte, rng.IntN(40))
		wants := make([]byte, len(results))
		for i := range results {
			results[i] = "SWFU"[rng.IntN(4)]
			good := func(b byte) bool { return b == 'S' || b == 'W' }
			need := r.FailureThreshold
			if good(results[i]) {
				need = r.SuccessThreshold
			}
			run := 0
			for j := i; j >= 0 && good(results[j]) == good(results[i]); j-- {
				run++
			}
			wants[i] = sign(good(results[i]), run >= need)
		}
		if got := play(r, string(results)); got != string(wants) {
			t.Fatalf("%+v: %s decides %s, want %s", r, results, got, wants)
		}
	}
}
