package asuser

import (
	"slices"
	"testing"
)

func TestMissingHeedsTheOrderOfOneFirstWord(t *testing.T) {
	got := []string{"a 1", "b 1", "a 2"}
	for _, c := range []struct{ want, missing []string }{
		{[]string{"a 1", "a 2", "b 1"}, nil},
		{[]string{"a 2", "a 1"}, []string{"a 1"}},
		{[]string{"a 2", "a 2"}, []string{"a 2"}},
	} {
		if m := Missing(got, c.want); !slices.Equal(m, c.missing) {
			t.Errorf("%q: %q, want %q", c.want, m, c.missing)
		}
	}
}
